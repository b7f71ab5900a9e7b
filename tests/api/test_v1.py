"""``/v1``: the older shape, the headers of its end, and who still uses it."""

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from urllib.parse import quote

import pytest

from holdfast.api import deprecation
from holdfast.api.v1_jobs import ROUTES
from holdfast.engines.clock import SystemClock
from holdfast.model.job import NewJob
from holdfast.model.outcome import completed
from holdfast.model.permissions import Role, granted
from holdfast.model.principal import local_principal
from holdfast.operations.keys import KeyOperations

from .rig import Api, opened
from .test_access import CANARY, FOREIGN, OWN, planted

BODIES: dict[str, object] = {"createJobV1": {"type": "t"}}
DEPRECATED = ("deprecation", "sunset", "link")


def body_of(name: str) -> object:
    return BODIES.get(name, {"reason": "a test"})


async def test_the_older_shape_is_translated_both_ways():
    async with opened() as api:
        key = await api.key(Role.RESPONDER)
        when = "2099-01-02T03:04:05Z"
        new = {"type": "mail", "payload": {"to": "bob"}, "id": "a/b", "scheduled_at": when}
        made = await api.call(key, "POST", "/v1/jobs", body={**new, "needs_confirmation": True})
        assert made.status_code == 201, made.text
        assert made.headers["location"] == "/v1/tenants/acme/jobs/a%2Fb"
        assert made.json()["data"] == {"id": "a/b", "tenant": "acme", "status": "pending"}
        assert made.json()["meta"]["api_version"] == "1"
        assert made.json()["errors"] == []
        got = await api.call(key, "GET", "/v1/jobs/a%2Fb?include=payload")
        job = got.json()["data"]
        assert (job["type"], job["status"], job["needs_confirmation"]) == ("mail", "pending", True)
        assert (job["payload"], job["next_retry_at"], job["attempts"]) == ({"to": "bob"}, when, 0)
        same = await api.call(
            key,
            "GET",
            "/v1/jobs/a%2Fb?include=payload",
            headers={"if-none-match": got.headers["etag"]},
        )
        assert same.status_code == 304
        why = {"reason": "it is right"}
        confirmed = await api.call(key, "POST", "/v1/jobs/a%2Fb/confirm", body=why)
        assert confirmed.json()["data"]["needs_confirmation"] is False
        [entry] = [
            one.entry for one in await api.engine.audited() if one.entry.reason == "it is right"
        ]
        assert (entry.action, entry.user_id) == ("job.confirm", "key1")
        gone = await api.call(key, "POST", "/v1/jobs/a%2Fb/cancel", body=why)
        assert (gone.status_code, gone.json()["data"]["status"]) == (200, "cancelled")
        newer = await api.call(key, "GET", "/v2/jobs/a%2Fb")
        assert newer.json()["data"]["task"] == "mail"
        assert newer.json()["meta"]["api_version"] == "2"


async def test_statuses_have_the_older_words():
    async with opened() as api:
        key = await api.key(Role.VIEWER)
        await api.dead_letter("failed")
        names = ("done", "processing", "pending")
        for name in names:
            await api.engine.enqueue([NewJob(task="t", id=name, tenant="acme")])
        claim = await api.engine.claim(queues=["default"], worker="w", limit=2)
        await api.engine.settle([completed(claim.jobs[0])])
        blocked = NewJob(task="u", id="blocked", tenant="acme", hold=True)
        await api.engine.enqueue([blocked])
        for word in (*names, "failed"):
            got = await api.call(key, "GET", f"/v1/jobs?status={word}")
            found = {job["id"] for job in got.json()["data"]}
            assert found == ({word, "blocked"} if word == "pending" else {word})
            assert {job["status"] for job in got.json()["data"]} == {word}
        got = await api.call(key, "GET", "/v1/jobs?type=u")
        assert [job["id"] for job in got.json()["data"]] == ["blocked"]
        wrong = await api.call(key, "GET", "/v1/jobs?status=dead")
        assert (wrong.status_code, wrong.json()["errors"][0]["pointer"]) == (422, "/status")
        first = await api.call(key, "GET", "/v1/jobs?limit=2")
        cursor = first.json()["meta"]["next_cursor"]
        rest = await api.call(key, "GET", f"/v1/jobs?limit=100&cursor={quote(cursor)}")
        pages = first.json()["data"], rest.json()["data"]
        assert sorted(len(page) for page in pages) == [2, 3]


async def test_every_answer_of_v1_says_when_it_ends_and_none_of_v2():
    async with opened() as api:
        key = await api.key(Role.VIEWER)
        now = datetime.now(UTC)
        for path, status in (
            ("/v1/jobs", 200),
            ("/v1/jobs/none", 404),
            ("/v1/jobs?statsu=x", 400),
            ("/v1/queues", 404),
        ):
            got = await api.call(key, "GET", path)
            assert got.status_code == status, got.text
            since = int(got.headers["deprecation"].removeprefix("@"))
            sunset = parsedate_to_datetime(got.headers["sunset"])
            assert sunset.timestamp() > since
            assert sunset > now, "give it a later end, or remove /v1"
            assert sunset - datetime.fromtimestamp(since, UTC) >= timedelta(days=365)
            for rel in ("deprecation", "sunset", "successor-version"):
                assert f'rel="{rel}"' in got.headers["link"]
            assert got.json()["meta"]["api_version"] == "1"
        denied = await api.call(key, "POST", "/v1/jobs", body={"type": "t"})
        unknown = await api.http.get("/v1/jobs")
        assert (denied.status_code, unknown.status_code) == (403, 401)
        for one in (denied, unknown):
            assert all(name in one.headers for name in DEPRECATED)
        newer = await api.call(key, "GET", "/v2/jobs")
        assert not any(name in newer.headers for name in DEPRECATED)


async def test_after_its_end_it_is_gone(monkeypatch):
    async with opened() as api:
        key = await api.key(Role.RESPONDER)
        late_us = int(deprecation.SUNSET.timestamp()) * 1_000_000
        monkeypatch.setattr(deprecation, "SystemClock", lambda: _Clock(late_us))
        got = await api.call(key, "POST", "/v1/jobs", body={"type": "t"})
        assert (got.status_code, got.json()["type"]) == (410, "/problems/sunset")
        assert "sunset" in got.headers
        assert (await api.engine.find()).jobs == []
        assert (await api.call(key, "GET", "/v2/jobs")).status_code == 200


class _Clock(SystemClock):
    def __init__(self, at_us: int) -> None:
        self._at_us = at_us

    def now_us(self) -> int:
        return self._at_us


@pytest.mark.parametrize("role", Role)
async def test_v1_has_the_checks_of_v2(role):
    async with opened() as api:
        await planted(api)
        key = await api.key(role)
        for route in ROUTES:
            body = None if route.body is None else body_of(route.operation_id)
            may = route.permission in granted([role])
            path = f"/v1{route.path}"
            for job_id in (FOREIGN, "nothing") if "{id}" in path else ():
                there = path.replace("{id}", quote(job_id, safe=""))
                got = await api.call(key, route.method, there, body=body)
                assert got.status_code == (404 if may else 403), (route.operation_id, got.text)
                assert CANARY not in got.text
            elsewhere = path.replace("/v1", "/v1/tenants/other", 1).replace("{id}", OWN)
            got = await api.call(key, route.method, elsewhere, body=body)
            assert got.status_code == 404
            own = await api.call(key, route.method, path.replace("{id}", OWN), body=body)
            assert own.status_code in ((200, 201, 409) if may else (403,)), own.text
            assert CANARY not in own.text


async def test_a_repeat_has_the_older_shape_too():
    async with opened() as api:
        key = await api.key(Role.RESPONDER)
        headers = {"idempotency-key": "k1"}
        first = await api.call(key, "POST", "/v1/jobs", body={"type": "t"}, headers=headers)
        again = await api.call(key, "POST", "/v1/jobs", body={"type": "t"}, headers=headers)
        assert (again.status_code, again.content) == (201, first.content)
        assert again.headers["location"] == first.headers["location"]
        assert len(await api.engine.records("once")) == 1
        other = await api.call(key, "POST", "/v2/jobs", body={"task": "t"}, headers=headers)
        assert "idempotency-replayed" not in other.headers


async def calls_of(api: Api) -> list[int]:
    keys = KeyOperations(api.engine, local_principal("ann"))
    return [one.deprecated_calls for one in await keys.all()]


async def test_the_calls_of_a_key_to_v1_are_counted_with_its_use(monkeypatch):
    async with opened() as api:
        key = await api.key(Role.VIEWER)
        for version in ("v2", "v1", "v1"):
            await api.call(key, "GET", f"/{version}/jobs")
        assert await calls_of(api) == [0], "it is stored once a minute"
        monkeypatch.setattr("holdfast.operations.keys._USE_EVERY_US", 0)
        api.application._handler._authenticator._used.clear()
        await api.call(key, "GET", "/v1/jobs")
        assert await calls_of(api) == [3]
        api.application._handler._authenticator._used.clear()
        await api.call(key, "GET", "/v2/jobs")
        assert await calls_of(api) == [3]
