"""Every route with every role, on what is one's own and on what is another's."""

from urllib.parse import quote

import pytest

from holdfast.api.call import Route
from holdfast.api.routing import ROUTES
from holdfast.model.job import NewJob
from holdfast.model.permissions import Permission, Role, granted
from holdfast.operations.access.engine import AuthorizedEngine

from .rig import Api, opened

CANARY = "canary4111"
SCOPE_CANARY = "canary4222"
OWN, FOREIGN, BESIDE = "own1", f"foreign-{CANARY}", f"beside-{SCOPE_CANARY}"
REVEALERS = (Role.RESPONDER, Role.ADMIN)
BODIES: dict[str, object] = {
    "createJob": {"task": "t"},
    "createJobs": {"jobs": [{"task": "t"}]},
    "editJob": {"priority": 1, "version": 1, "why": "a test"},
    "replayJob": {"why": "a test"},
    "claimJobs": {"queues": ["q", f"q{CANARY}", f"q{SCOPE_CANARY}"], "worker": "w"},
    "extendClaims": {"held": [{"id": "x", "token": "1", "tenant": "other"}]},
    "settleClaims": {
        "outcomes": [{"id": "x", "token": "1", "tenant": "other", "status": "completed"}]
    },
    "releaseClaims": {"held": [{"id": "x", "token": "1", "tenant": "other"}]},
}
QUERIES = {"lookUpJob": "?id={id}", "cancelJob": "?why=a+test", "getJob": "?include=payload"}
IDS = [route.operation_id for route in ROUTES]


def path_of(route: Route, job_id: str, prefix: str = "/v2") -> str:
    return template(route, prefix).replace("{id}", quote(job_id, safe=""))


def template(route: Route, prefix: str = "/v2") -> str:
    return prefix + route.path + QUERIES.get(route.operation_id, "")


def body_of(route: Route) -> object:
    return None if route.body is None else BODIES.get(route.operation_id, {"why": "a test"})


async def planted(api: Api) -> None:
    """Give both tenants, and two scopes of one, jobs in several states."""
    for tenant, scope, job_id, text in (
        ("acme", "library:42", OWN, ""),
        ("other", "library:42", FOREIGN, CANARY),
        ("acme", "library:43", BESIDE, SCOPE_CANARY),
    ):
        await api.dead_letter(job_id, tenant, scope, text)
        waiting = NewJob(
            task="t",
            id=f"{job_id}-waiting",
            tenant=tenant,
            scope=scope,
            queue=f"q{text}",
            payload={"text": text},
            key="k",
        )
        await api.engine.enqueue([waiting])


async def others(api: Api) -> list[object]:
    """Return everything that is not the caller's."""
    page = await api.engine.find(limit=100)
    return [job for job in page.jobs if "canary" in job.id]


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("scopes", [(), ("library:42",)], ids=["tenant", "scope"])
async def test_no_route_shows_or_changes_what_is_anothers(role, scopes):
    async with opened() as api:
        await planted(api)
        before = await others(api)
        key = await api.key(role, scopes=scopes)
        hidden = [FOREIGN, f"{FOREIGN}-waiting", "nothing"]
        hidden += [BESIDE, f"{BESIDE}-waiting"] if scopes else []
        secret = [CANARY, SCOPE_CANARY] if scopes else [CANARY]
        for route in ROUTES:
            body, answers = body_of(route), []
            for job_id in hidden if "{id}" in template(route) else []:
                got = await api.call(key, route.method, path_of(route, job_id), body=body)
                # Who may not do it at all does not learn whether it is there.
                wanted = 404 if may(role, route) else 403
                assert got.status_code == wanted, (route.operation_id, job_id, got.text)
                answers.append(got)
            there = path_of(route, OWN, "/v2/tenants/other")
            got = await api.call(key, route.method, there, body=body)
            assert got.status_code == 404, (route.operation_id, got.text)
            own = await api.call(key, route.method, path_of(route, OWN), body=body)
            for one in (*answers, got, own):
                assert not any(text in one.text for text in secret), (route.operation_id, one.text)
        assert await others(api) == before


def may(role: Role, route: Route) -> bool:
    """Whether the table allows a call: that of one job asks for its payload, too."""
    held = granted([role])
    if route.operation_id == "getJob" and Permission.PAYLOAD_READ not in held:
        return False
    return route.permission is None or route.permission in held


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("name", IDS)
async def test_inside_the_reach_exactly_the_table_decides(name, role):
    (route,) = [one for one in ROUTES if one.operation_id == name]
    async with opened() as api:
        await planted(api)
        key = await api.key(role)
        got = await api.call(key, route.method, path_of(route, OWN), body=body_of(route))
        if may(role, route):
            assert got.status_code < 300 or got.status_code == 409, got.text
        else:
            assert got.status_code == 403, got.text
            assert got.json()["type"] == "/problems/forbidden"
            assert got.json()["required_permission"]
        me = await api.call(key, "GET", "/v2/me")
        listed = name in me.json()["data"]["operations"]
        assert listed == (route.permission is None or route.permission in granted([role]))


async def test_without_a_right_to_payloads_none_is_shown():
    async with opened() as api:
        payload = {"card": CANARY}
        await api.engine.enqueue([NewJob(task="t", id="a", tenant="acme", payload=payload)])
        for role in Role:
            key = await api.key(role)
            for path in ("/v2/jobs/a", "/v2/jobs", "/v2/jobs/a/history", "/v2/jobs/a/explain"):
                assert CANARY not in (await api.call(key, "GET", path)).text
            got = await api.call(key, "GET", "/v2/jobs?include=payload")
            assert (CANARY in got.text) == (role in REVEALERS)
            got = await api.call(key, "GET", f"/v2/jobs?q=payload.card={CANARY}")
            assert got.status_code == (200 if role in REVEALERS else 403)


async def test_a_key_of_several_tenants_names_one():
    async with opened() as api:
        key = await api.key(Role.OPERATOR, tenants=("acme", "other"))
        got = await api.call(key, "GET", "/v2/jobs")
        assert (got.status_code, got.json()["type"]) == (400, "/problems/tenant-required")
        body = {"task": "t", "id": "a"}
        for tenant in ("acme", "other"):
            made = await api.call(key, "POST", f"/v2/tenants/{tenant}/jobs", body=body)
            assert made.headers["location"] == f"/v2/tenants/{tenant}/jobs/a"
        got = await api.call(key, "GET", "/v2/tenants/third/jobs")
        assert got.status_code == 404


async def test_a_key_of_every_tenant_sees_all_and_creates_in_the_default_one():
    async with opened() as api:
        key = await api.key(Role.OPERATOR, tenants=())
        await api.call(key, "POST", "/v2/jobs", body={"task": "t", "id": "a"})
        await api.call(key, "POST", "/v2/tenants/acme/jobs", body={"task": "t", "id": "b"})
        got = await api.call(key, "GET", "/v2/jobs?order=created")
        found = [(job["tenant"], job["id"]) for job in got.json()["data"]]
        assert found == [("default", "a"), ("acme", "b")]


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Basic YTpi", "Bearer hf_k_x_y", "Bearer {wrong}"]
)
async def test_without_a_valid_key_nothing_is_answered(header):
    async with opened() as api:
        key = await api.key(Role.ADMIN)
        wrong = key[:-10] + ("0" if key[-10] != "0" else "1") + key[-9:]
        headers = {} if header is None else {"authorization": header.format(wrong=wrong)}
        for route in ROUTES:
            path = path_of(route, OWN)
            got = await api.http.request(route.method, path, headers=headers)
            assert (got.status_code, got.json()["type"]) == (401, "/problems/unauthenticated")
            assert got.headers["www-authenticate"].startswith("Bearer")


async def test_the_use_of_a_key_is_stored_and_a_denial_audited_once():
    async with opened() as api:
        key = await api.key(Role.VIEWER)
        for _call in range(3):
            await api.call(key, "POST", "/v2/jobs", body={"task": "t"})
        assert len(await api.engine.records("key_use")) == 1
        actions = [one.entry.action for one in await api.engine.audited(limit=100)]
        assert actions.count("access.denied") == 1


async def test_control_without_the_reach_another_tenant_is_seen(monkeypatch):
    """The engine below is asked for everything: the matrix has to notice."""
    monkeypatch.setattr(AuthorizedEngine, "_reach", lambda _self, caller: caller)
    with pytest.raises(AssertionError):
        await test_no_route_shows_or_changes_what_is_anothers(Role.VIEWER, ())
