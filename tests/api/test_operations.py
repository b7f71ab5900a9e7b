"""Operations over HTTP: planned, started as planned, followed, changed, and what is refused."""

import pytest

from holdfast.engines.contract import Engine
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.model.failure import Failure
from holdfast.model.job import NewJob
from holdfast.model.outcome import dead
from holdfast.model.permissions import Role
from holdfast.operations import bulk
from holdfast.operations.bulk import BulkOperations
from holdfast.testing import SimDisk

from .rig import Api, opened

WHY = {"why": "a test"}
REPLAY = {"verb": "replay", "filter": {"queue": "dead"}}


async def letters(engine: Engine, *names: str, reason: str = "timeout") -> None:
    jobs = [NewJob(task="t", id=name, tenant="acme", queue="dead") for name in names]
    await engine.enqueue(jobs)
    claim = await engine.claim(queues=["dead"], worker="w", limit=len(names))
    await engine.settle([dead(job, Failure.of(reason, "took long")) for job in claim.jobs])


async def test_an_operation_is_planned_started_followed_and_changed():
    async with opened() as api:
        await the_life_of_an_operation(api)


async def test_the_same_on_a_journal():
    engine = await JournalEngine.open(SimDisk(), options=JournalOptions(inline=True))
    async with opened(engine) as api:
        await the_life_of_an_operation(api)


async def the_life_of_an_operation(api: Api) -> None:
    key = await api.key(Role.RESPONDER)
    await letters(api.engine, "a", "b", "c")
    planned = await api.call(key, "POST", "/v2/operations", body={**REPLAY, "dry_run": True})
    assert planned.status_code == 200, planned.text
    plan = planned.json()["data"]
    assert (plan["would"], plan["matched"], plan["ids"]) == (3, 3, ["a", "b", "c"])
    assert plan["reasons"][0]["error_reason"] == "timeout"
    assert [job["id"] for job in plan["samples"]] == ["a", "b", "c"]
    assert all("payload" not in job for job in plan["samples"])

    await letters(api.engine, "later")
    body = {**REPLAY, **WHY, "plan_id": plan["plan_id"], "rate": "1000/s"}
    started = await api.call(key, "POST", "/v2/operations", body=body)
    assert started.status_code == 202, started.text
    place = started.headers["location"]
    operation = started.json()["data"]
    assert place == f"/v2/tenants/acme/operations/{operation['id']}"
    listed = await api.call(key, "GET", "/v2/operations?running=true")
    assert [one["id"] for one in listed.json()["data"]] == [operation["id"]]

    await change_it(api, key, place)
    await BulkOperations(api.engine).drive(operation["id"])
    done = (await api.call(key, "GET", place)).json()["data"]
    assert (done["acted"], done["new_since"], done["by"], done["why"]) == (3, 1, "key1", "a test")
    items = await api.call(key, "GET", f"{place}/items?order=created")
    assert [job["id"] for job in items.json()["data"]] == ["a", "b", "c"]
    ended = await api.call(key, "POST", f"{place}/abort", body=WHY)
    assert (ended.status_code, ended.json()["data"]["state"]) == (200, "aborted")
    again = await api.call(key, "POST", f"{place}/resume", body=WHY)
    assert again.json()["type"] == "/problems/illegal-transition"


async def change_it(api: Api, key: str, place: str) -> None:
    """Pause, resume and change the rate, with every condition."""
    shown = await api.call(key, "GET", place)
    tag = shown.headers["etag"]
    known = await api.call(key, "GET", place, headers={"if-none-match": tag})
    assert (known.status_code, known.content) == (304, b"")
    paused = await api.call(key, "POST", f"{place}/pause", body=WHY)
    assert (paused.json()["data"]["state"], paused.json()["data"]["version"]) == ("paused", 2)
    resumed = await api.call(key, "POST", f"{place}/resume", body=WHY)
    assert resumed.json()["data"]["state"] == "running"
    for more, match, status, name in (
        ({}, None, 428, "precondition-required"),
        ({"version": 1}, None, 409, "conflict"),
        ({}, tag, 412, "precondition-failed"),
        ({"rate": "soon", "version": 3}, None, 422, "invalid-input"),
    ):
        headers = {} if match is None else {"if-match": match}
        body = {"rate": "5/m", **WHY, **more}
        got = await api.call(key, "PATCH", place, body=body, headers=headers)
        assert got.status_code == status, got.text
        assert got.json()["type"] == f"/problems/{name}"
    body = {"rate": None, "version": 3, **WHY}
    changed = await api.call(key, "PATCH", place, body=body)
    assert (changed.status_code, changed.json()["data"]["rate"]) == (200, None)


@pytest.mark.parametrize(
    ("body", "status", "name"),
    [
        ({"verb": "replay", "ids": ["a"]}, 422, "why-required"),
        ({"verb": "replay", "ids": ["a"], "why": " "}, 422, "why-required"),
        ({**REPLAY, **WHY}, 428, "plan-required"),
        ({"verb": "replay", "filter": {}, **WHY}, 428, "plan-required"),
        ({"verb": "replay", "ids": [f"j{n}" for n in range(101)], **WHY}, 428, "plan-required"),
        ({"verb": "replay", **WHY}, 428, "plan-required"),
        ({"verb": "replay", "dry_run": True}, 422, "invalid-input"),
        ({"verb": "explode", "ids": ["a"], **WHY}, 422, "invalid-input"),
        ({"verb": "archive", "ids": ["a"], "fixed": "it", **WHY}, 422, "invalid-input"),
        ({"verb": "edit", "ids": ["a"], **WHY}, 422, "invalid-input"),
        ({"verb": "edit", "ids": ["a"], "set": {"x": 1}, **WHY}, 422, "invalid-input"),
        ({"verb": "retarget", "ids": ["a"], **WHY}, 422, "invalid-input"),
        ({"verb": "replay", "ids": ["a"], "rate": "0/s", **WHY}, 422, "invalid-input"),
        ({"verb": "replay", "ids": ["a"], "canary": 101, **WHY}, 422, "invalid-input"),
        ({"verb": "replay", "ids": ["a"], "limit": 0, **WHY}, 422, "invalid-input"),
        ({"verb": "cancel", "ids": ["a"], "canary": 1, **WHY}, 422, "invalid-input"),
        ({**REPLAY, "filter": {"queu": "x"}, "dry_run": True}, 422, "invalid-input"),
        ({**REPLAY, "filter": {"status": "tired"}, "dry_run": True}, 422, "invalid-input"),
        ({**REPLAY, "filter": {"text": ["x", "y"]}, "dry_run": True}, 422, "invalid-input"),
        ({**REPLAY, "plan_id": "nonsense", **WHY}, 422, "invalid-input"),
        ({"verb": "replay", "ids": ["nothing"], **WHY}, 404, "not-found"),
        ({"verb": "restore", "ids": ["a"], **WHY}, 409, "illegal-transition"),
        ({"verb": "replay", "ids": ["wrong"], **WHY}, 422, "fix-required"),
    ],
)
async def test_what_is_refused_starts_nothing(body, status, name):
    async with opened() as api:
        key = await api.key(Role.ADMIN)
        await letters(api.engine, "a")
        await letters(api.engine, "wrong", reason="parse_error")
        got = await api.call(key, "POST", "/v2/operations", body=body)
        assert (got.status_code, got.json()["type"]) == (status, f"/problems/{name}"), got.text
        assert await api.engine.operations() == []


async def test_a_plan_that_does_not_hold_any_more_is_refused():
    async with opened() as api:
        key = await api.key(Role.RESPONDER)
        await letters(api.engine, "a", "b", "c")
        planned = await api.call(key, "POST", "/v2/operations", body={**REPLAY, "dry_run": True})
        plan_id = planned.json()["data"]["plan_id"]
        body = {**REPLAY, **WHY, "plan_id": plan_id}
        other = await api.call(key, "POST", "/v2/operations", body={**body, "limit": 5})
        assert other.json()["type"] == "/problems/selection-changed"
        moment, _dash, rest = plan_id.removeprefix("plan-").partition("-")
        old = f"plan-{int(moment) - 3_601_000_000}-{rest}"
        for late in (old, f"plan-{int(moment) + 60_000_000}-{rest}"):
            got = await api.call(key, "POST", "/v2/operations", body={**body, "plan_id": late})
            assert got.json()["type"] == "/problems/selection-changed", got.text
        await api.call(key, "POST", "/v2/jobs/a/archive", body=WHY)
        changed = await api.call(key, "POST", "/v2/operations", body=body)
        assert changed.status_code == 409, changed.text
        assert (changed.json()["expected"], changed.json()["found"]) == (3, 2)
        assert changed.json()["type"] == "/problems/selection-changed"
        assert await api.engine.operations() == []


async def test_control_without_the_check_of_the_count_a_changed_plan_is_started(monkeypatch):
    monkeypatch.setattr(bulk, "check_expected", lambda _plan, _expect: None)
    with pytest.raises(AssertionError):
        await test_a_plan_that_does_not_hold_any_more_is_refused()


async def test_an_age_of_the_filter_counts_from_the_moment_of_the_plan():
    async with opened() as api:
        key = await api.key(Role.RESPONDER)
        await letters(api.engine, "a")
        body = {"verb": "replay", "filter": {"since": "1h", "queue": ["dead", "other"]}}
        planned = await api.call(key, "POST", "/v2/operations", body={**body, "dry_run": True})
        plan_id = planned.json()["data"]["plan_id"]
        body = {**body, **WHY, "plan_id": plan_id}
        started = await api.call(key, "POST", "/v2/operations", body=body)
        assert started.status_code == 202, started.text
        (stored,) = await api.engine.operations()
        moment = int(plan_id.split("-")[1])
        assert stored.as_of_us == moment
        assert stored.wanted.finished_from_us == moment - 3_600_000_000


@pytest.mark.parametrize(
    ("more", "roles"),
    [
        ({"verb": "replay"}, ["operator", "responder", "admin"]),
        ({"verb": "replay", "fixed": "a release"}, ["responder", "admin"]),
        ({"verb": "replay", "limit": 1_001}, ["responder", "admin"]),
        ({"verb": "replay", "limit": None}, ["responder", "admin"]),
        ({"verb": "archive"}, ["operator", "responder", "admin"]),
        ({"verb": "purge"}, ["admin"]),
        ({"verb": "edit", "set": {"payload.x": 1}}, ["responder", "admin"]),
        ({"verb": "retarget", "task": "u"}, ["responder", "admin"]),
    ],
)
async def test_who_may_start_depends_on_the_verb_and_the_size(more, roles):
    async with opened() as api:
        await letters(api.engine, "a")
        for role in Role:
            key = await api.key(role)
            got = await api.call(key, "POST", "/v2/operations", body={"ids": ["a"], **WHY, **more})
            assert got.status_code == (202 if role in roles else 403), (role, got.text)


@pytest.mark.parametrize("text", ["payload.card=4111", "-payload.card=4111"])
async def test_a_condition_on_payloads_is_shown_to_those_who_may_see_them(text):
    async with opened() as api:
        key = await api.key(Role.RESPONDER)
        body = {"verb": "replay", "filter": {"q": text}}
        planned = await api.call(key, "POST", "/v2/operations", body={**body, "dry_run": True})
        body = {**body, **WHY, "plan_id": planned.json()["data"]["plan_id"]}
        started = await api.call(key, "POST", "/v2/operations", body=body)
        place = started.headers["location"]
        for role in Role:
            key = await api.key(role)
            for method, path in (
                ("GET", "/v2/operations"),
                ("GET", place),
                ("POST", f"{place}/pause"),
            ):
                got = await api.call(key, method, path, body=WHY if method == "POST" else None)
                seen = role in (Role.RESPONDER, Role.ADMIN)
                assert ("4111" in got.text) == seen, (role, got.text)


@pytest.mark.parametrize(
    ("verb", "more", "state"),
    [
        ("archive", {}, "archived"),
        ("edit", {"set": {"payload.locale": "en"}}, "dead"),
        ("retarget", {"task": "u"}, "dead"),
        ("purge", {}, None),
    ],
)
async def test_every_verb_is_carried_out(verb, more, state):
    async with opened() as api:
        key = await api.key(Role.ADMIN)
        await letters(api.engine, "a")
        body = {"verb": verb, "ids": ["a"], **WHY, **more}
        started = await api.call(key, "POST", "/v2/operations", body=body)
        assert started.status_code == 202, started.text
        await BulkOperations(api.engine).drive(started.json()["data"]["id"])
        (job,) = await api.engine.get(["a"], tenant="acme")
        assert (None if job is None else job.state.value) == state
        if job is not None:
            assert (job.payload, job.task) == (
                b'{"locale":"en"}' if verb == "edit" else b"{}",
                more.get("task", "t"),
            )
        items = await api.call(key, "GET", f"{started.headers['location']}/items")
        assert items.status_code == 404
