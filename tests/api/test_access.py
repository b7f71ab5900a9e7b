"""Every route with every role, on what is one's own and on what is another's."""

from urllib.parse import quote

import pytest
from msgspec.structs import replace

from holdfast.api.call import Route
from holdfast.api.routing import ROUTES
from holdfast.model.access import Caller
from holdfast.model.actions import ReplayJobs
from holdfast.model.audit import Attribution, AuditEntry
from holdfast.model.effects import ScheduleState
from holdfast.model.fingerprint import fingerprint
from holdfast.model.group_life import GroupKey, group_id
from holdfast.model.job import NewJob
from holdfast.model.operation import NewOperation
from holdfast.model.permissions import Permission, Role, granted
from holdfast.model.search import Filter
from holdfast.operations.access.engine import AuthorizedEngine
from holdfast.operations.bulk import BulkOperations

from .rig import Api, opened

CANARY = "canary4111"
SCOPE_CANARY = "canary4222"
OWN, FOREIGN, BESIDE = "own1", f"foreign-{CANARY}", f"beside-{SCOPE_CANARY}"
UUID = "00000000-0000-7000-8000-00000000000{}"
OWN_EVENT, FOREIGN_EVENT, BESIDE_EVENT = UUID.format(1), UUID.format(2), UUID.format(3)
REVEALERS = (Role.RESPONDER, Role.ADMIN)
BODIES: dict[str, object] = {
    "createJob": {"task": "t"},
    "createJobs": {"jobs": [{"task": "t"}]},
    "ingestJobs": b'{"task":"t"}\n',
    "editJob": {"priority": 1, "version": 1, "why": "a test"},
    "replayJob": {"why": "a test"},
    "appendEvent": {"event_type": "book.added", "payload": {"book_id": "b1", "title": "Dune"}},
    "appendEvents": {"events": []},
    "ingestEvents": b'{"event_type":"book.added","payload":{"book_id":"b1","title":"Dune"}}\n',
    "createKey": {"name": "new", "roles": ["viewer"], "why": "a test"},
    "correctEvent": {"why": "a test", "set": {"payload.title": "Dune"}},
    "createOperation": {"verb": "replay", "ids": ["own1"], "why": "a test"},
    "setOperationRate": {"rate": "5/m", "version": 1, "why": "a test"},
    "editFailure": {"state": "acknowledged", "why": "a test"},
    "setQueuePolicy": {"policy": {"max_in_flight": 5}, "why": "a test"},
    "startOutage": {"new": True, "why": "a test"},
    "setFlag": {"on": True, "why": "a test"},
    "resizeWorker": {"slots": 2, "why": "a test"},
    "resizeWorkers": {"slots": 2, "why": "a test"},
    "setLogLevelWorker": {"level": "debug", "why": "a test"},
    "setLogLevelWorkers": {"level": "debug", "why": "a test"},
    "claimJobs": {"queues": ["q", f"q{CANARY}", f"q{SCOPE_CANARY}"], "worker": "w"},
    "extendClaims": {"held": [{"id": "x", "token": "1", "tenant": "other"}]},
    "settleClaims": {
        "outcomes": [{"id": "x", "token": "1", "tenant": "other", "status": "completed"}]
    },
    "releaseClaims": {"held": [{"id": "x", "token": "1", "tenant": "other"}]},
}
HEADERS = {"setQueuePolicy": {"if-none-match": "*"}}
NEEDED_TOO = {
    "getJob": Permission.PAYLOAD_READ,
    "createOperation": Permission.JOB_REPLAY,
    "setOperationRate": Permission.JOB_REPLAY,
    "pauseOperation": Permission.JOB_REPLAY,
    "resumeOperation": Permission.JOB_REPLAY,
    "abortOperation": Permission.JOB_REPLAY,
    "listOutages": Permission.COUNTS_READ,
    "listProjections": Permission.COUNTS_READ,
    "getProjection": Permission.COUNTS_READ,
}
"""What a call needs beside the permission of its route."""
QUERIES = {
    "lookUpJob": "?id={id}",
    "cancelJob": "?why=a+test",
    "revokeKey": "?why=a+test",
    "getJob": "?include=payload",
    "forgetFailure": "?why=a+test",
    "streamChanges": "?topic=jobs",
}
IDS = [route.operation_id for route in ROUTES]


OWN_IDS = {
    "/events": OWN_EVENT,
    "/catalog": "book.added",
    "/projections": "titles",
    "/chronicle": OWN_EVENT,
    "/keys": "spare",
    "/tenants": "acme",
}
"""What the caller may see, by resource; other resources have a job."""
NOTHING = ("nothing", "nothing")
HIDDEN_IDS = {
    "/events": (FOREIGN_EVENT, BESIDE_EVENT),
    "/chronicle": (FOREIGN_EVENT, BESIDE_EVENT),
    "/catalog": NOTHING,
    "/projections": NOTHING,
    "/rebuilds": NOTHING,
    "/audit": ("999999", "999999"),
    "/keys": (f"spare-{CANARY}", f"spare-{SCOPE_CANARY}"),
    "/tenants": ("other", "nothing"),
}
"""What another tenant, and another scope of the same tenant, has there."""


def resource(route: Route) -> str:
    return "/" + route.path.split("/")[1].partition(":")[0]


def group_of(job_id: str) -> str:
    """Return the id of the group of a dead letter of the rig."""
    shape = fingerprint(f"took long {job_id}")
    return group_id(GroupKey("dead", "t", "timeout", 0, shape))


OWN_NAMES = {
    "id": OWN,
    "operation": "op-own",
    "group": group_of(OWN),
    "queue": "dead",
    "dependency": "smtp",
    "schedule": "nightly",
    "flag": "auto_replay/mail",
    "worker": "w1",
}
HIDDEN_NAMES = {
    "id": [FOREIGN, f"{FOREIGN}-waiting", "nothing"],
    "operation": [f"op-{CANARY}", "op-everything", "nothing"],
    "group": [group_of(FOREIGN), "nothing"],
    "queue": [f"q{CANARY}", "nothing"],
}
BESIDE_NAMES = {
    "id": [BESIDE, f"{BESIDE}-waiting"],
    "operation": [f"op-{SCOPE_CANARY}"],
    "group": [group_of(BESIDE)],
    "queue": [f"q{SCOPE_CANARY}"],
}
"""Of another scope."""


def variable_of(route: Route) -> str:
    return next((one for one in OWN_NAMES if f"{{{one}}}" in template(route)), "")


def own_name(api: Api, route: Route) -> str:
    """Return what the caller has there."""
    if resource(route) == "/rebuilds":
        return api.rebuild_id
    if resource(route) == "/audit":
        return "1"
    return OWN_IDS.get(resource(route), OWN_NAMES.get(variable_of(route), ""))


def hidden_names(route: Route, *, scoped: bool) -> list[str]:
    """Return what others have there, and what is not there."""
    variable = variable_of(route)
    if not variable:
        return []
    if resource(route) in HIDDEN_IDS:
        foreign, beside = HIDDEN_IDS[resource(route)]
        return [foreign, "nothing", *([beside] if scoped else [])]
    return HIDDEN_NAMES.get(variable, []) + (BESIDE_NAMES.get(variable, []) if scoped else [])


def path_of(route: Route, name: str, prefix: str = "/v2") -> str:
    """Return the path with this name in it."""
    path = template(route, prefix)
    for variable in OWN_NAMES:
        path = path.replace(f"{{{variable}}}", quote(name, safe=""))
    return path


def template(route: Route, prefix: str = "/v2") -> str:
    return prefix + route.path + QUERIES.get(route.operation_id, "")


def body_of(route: Route) -> object:
    return None if route.body is None else BODIES.get(route.operation_id, {"why": "a test"})


async def planted(api: Api, *, projected: bool = True) -> None:
    """Give both tenants, and two scopes of one, jobs in several states, events and more.

    The first entry of the audit is an act of the key that the test makes.
    """
    own = AuditEntry("job.note", "job", OWN, "key1", tenant="acme")
    foreign = replace(own, user_id="bob", tenant="other", reason=CANARY, resource_id=FOREIGN)
    await api.engine.audit([own, foreign, replace(foreign, tenant="", user_id="key1")])
    for tenant, scope, job_id, event_id, text in (
        ("acme", "library:42", OWN, OWN_EVENT, ""),
        ("other", "library:42", FOREIGN, FOREIGN_EVENT, CANARY),
        ("acme", "library:43", BESIDE, BESIDE_EVENT, SCOPE_CANARY),
    ):
        await api.event(event_id, tenant, scope, f"Ulysses {text}")
        name = f"spare-{text}" if text else "spare"
        await api.key(Role.VIEWER, tenants=(tenant,), scopes=(scope,), name=name)
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
    if projected:
        await api.project()
    for name, why, caller in (
        ("own", "a test", Caller("acme", ("library:42",))),
        (CANARY, CANARY, Caller("other")),
        (SCOPE_CANARY, SCOPE_CANARY, Caller("acme", ("library:43",))),
        ("everything", CANARY, Caller()),
    ):
        new = NewOperation(id=f"op-{name}", action=ReplayJobs(), wanted=Filter(queues=("none",)))
        await api.engine.start_operation(new, Attribution("ann", why, ()), caller=caller)
    nightly = ScheduleState("0 3 * * *", "UTC", "t", "default")
    await api.engine.set_schedule("nightly", nightly, Attribution("ann", CANARY, ()))
    await api.engine.set_outage("smtp", Attribution("ann", CANARY, ()), on=True)


async def others(api: Api) -> list[object]:
    """Return everything that is not the caller's, after what was started is carried out."""
    for operation in await api.engine.operations(running=True):
        if "canary" not in operation.id:
            await BulkOperations(api.engine).drive(operation.id)
    page = await api.engine.find(limit=100)
    events = await api.engine.find_events(limit=100)
    return [
        *(job for job in page.jobs if "canary" in job.id),
        *(event for event in events.events if b"canary" in event.payload),
        *(one for one in await api.engine.records("key") if "canary" in one.value),
        *(one for one in await api.engine.operations() if "canary" in one.id),
    ]


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("scopes", [(), ("library:42",)], ids=["tenant", "scope"])
async def test_no_route_shows_or_changes_what_is_anothers(role, scopes):
    async with opened() as api:
        await planted(api)
        api.application.drain()  # or a stream does not end
        before = await others(api)
        key = await api.key(role, scopes=scopes)
        secret = [CANARY, SCOPE_CANARY] if scopes else [CANARY]
        for route in ROUTES:
            body, answers = body_of(route), []
            for hidden in hidden_names(route, scoped=bool(scopes)):
                got = await api.call(key, route.method, path_of(route, hidden), body=body)
                # Who may not do it at all does not learn whether it is there.
                wanted = 404 if may(role, route) else 403
                allowed = {wanted, 404} if variable_of(route) == "operation" else {wanted}
                assert got.status_code in allowed, (route.operation_id, hidden, got.text)
                answers.append(got)
            there = path_of(route, own_name(api, route), "/v2/tenants/other")
            got = await api.call(key, route.method, there, body=body)
            assert got.status_code == 404, (route.operation_id, got.text)
            own = await api.call(key, route.method, path_of(route, own_name(api, route)), body=body)
            if route.everything:
                held = route.permission in granted([role])
                assert own.status_code == (404 if held else 403), (route.operation_id, own.text)
            for one in (*answers, got, own):
                assert not any(text in one.text for text in secret), (route.operation_id, one.text)
        assert await others(api) == before


def may(role: Role, route: Route) -> bool:
    """Whether the table allows a call."""
    held = granted([role])
    needed = {route.permission, NEEDED_TOO.get(route.operation_id)} - {None}
    return needed <= held


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("name", IDS)
async def test_inside_the_reach_exactly_the_table_decides(name, role):
    (route,) = [one for one in ROUTES if one.operation_id == name]
    async with opened() as api:
        tables = ("/projections", "/rebuilds", "/chronicle")
        await planted(api, projected=resource(route) in tables)
        api.application.drain()
        key = await api.key(role, tenants=() if route.everything else ("acme",))
        async with api.worker("w1"):
            got = await api.call(
                key,
                route.method,
                path_of(route, own_name(api, route)),
                body=body_of(route),
                headers=HEADERS.get(route.operation_id),
            )
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
            got = await api.call(key, "GET", f"/v2/jobs?status=pending&q=payload.card={CANARY}")
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
            path = path_of(route, "any")
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
