"""Failures, queues, outages, schedules, flags and workers over HTTP: a life of each."""

import datetime as dt

import pytest

from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.model.audit import Attribution
from holdfast.model.effects import ScheduleState
from holdfast.model.job import NewJob
from holdfast.model.permissions import Role
from holdfast.testing import SimDisk

from .rig import Api, opened
from .test_operations import the_life_of_an_operation

WHY = {"why": "a test"}


async def test_each_resource_is_read_and_changed():
    async with opened() as api:
        await every_life(api)


async def test_the_same_on_a_journal():
    engine = await JournalEngine.open(SimDisk(), options=JournalOptions(inline=True))
    async with opened(engine) as api:
        await every_life(api)


async def test_the_same_on_postgresql(server18):
    for life in (every_life, the_life_of_an_operation):
        with server18.fresh() as url:
            async with opened(await PostgresEngine.open(url)) as api:
                await life(api)


async def every_life(api: Api) -> None:
    key = await api.key(Role.ADMIN, tenants=())
    await the_life_of_a_group(api, key)
    await the_life_of_a_policy(api, key)
    await the_life_of_an_outage(api, key)
    await the_life_of_a_schedule(api, key)
    await the_life_of_a_flag(api, key)
    await the_life_of_a_worker(api, key)
    audited = {one.entry.action for one in await api.engine.audited(limit=1_000)}
    assert audited >= {
        *("group.acknowledge", "group.fix", "group.mute", "group.note", "group.forget"),
        *("queue.policy", "outage.start", "outage.end", "schedule.set", "flag.set"),
        *("worker.drain", "worker.resume", "worker.resize", "worker.log_level", "worker.reload"),
    }


async def the_life_of_a_group(api: Api, key: str) -> None:
    await api.dead_letter("boom", text="secret4111")
    listed = await api.call(key, "GET", "/v2/failures?text=boom")
    (group,) = listed.json()["data"]
    at = f"/v2/failures/{group['id']}"
    shown = await api.call(key, "GET", at)
    assert [job["id"] for job in shown.json()["data"]["samples"]] == ["boom"]
    assert shown.json()["data"]["hit"] == [["acme", ""]]
    assert "secret4111" not in shown.text
    tag = {"if-none-match": shown.headers["etag"]}
    assert (await api.call(key, "GET", at, headers=tag)).status_code == 304
    later = dt.datetime.now(dt.UTC) + dt.timedelta(hours=8)
    for change, field, value in (
        ({"state": "acknowledged"}, "state", "acknowledged"),
        ({"state": "fixed", "fixed_in": "2.1"}, "fixed_in", "2.1"),
        ({"state": "open"}, "state", "open"),
        ({"owner": "bob"}, "owner", "bob"),
        ({"owner": None}, "owner", ""),
        ({"muted_until": None}, "muted_until", None),
    ):
        got = await api.call(key, "PATCH", at, body={**change, **WHY})
        assert (got.status_code, got.json()["data"][field]) == (200, value), got.text
    muted = await api.call(key, "PATCH", at, body={"muted_until": later.isoformat(), **WHY})
    assert muted.json()["data"]["muted_until"] is not None
    noted = await api.call(key, "POST", f"{at}/notes", body={"why": "seen it"})
    assert noted.json()["data"]["acts"][-1]["text"] == "seen it"
    assert (await api.call(key, "GET", at, headers=tag)).status_code == 200
    members = await api.call(key, "GET", f"{at}/members?limit=5&status=dead")
    assert [job["id"] for job in members.json()["data"]] == ["boom"]
    gone = await api.call(key, "DELETE", f"{at}?why=over")
    assert gone.json()["data"]["acts"] == []


async def the_life_of_a_policy(api: Api, key: str) -> None:
    await api.engine.enqueue([NewJob(task="t", queue="mail@smtp", tenant="acme")])
    at = "/v2/queues/mail%40smtp"
    shown = await api.call(key, "GET", at)
    assert shown.json()["data"]["counts"]["pending"] == 1
    assert shown.json()["data"]["policy"]["paused"] is False
    wanted = {"policy": {"max_in_flight": 5, "rate": "10/m"}, **WHY}
    seen = {"if-match": shown.headers["etag"]}
    put = await api.call(key, "PUT", f"{at}/policy", body=wanted, headers=seen)
    assert (put.status_code, put.json()["data"]["rate"]) == (200, "10/1m"), put.text
    for headers, status in (
        (seen, 412),
        ({"if-none-match": "*"}, 412),
        ({"if-match": "*"}, 412),
        ({}, 428),
    ):
        got = await api.call(key, "PUT", f"{at}/policy", body=wanted, headers=headers)
        assert got.status_code == status, got.text
    paused = await api.call(key, "POST", f"{at}/pause", body=WHY)
    assert (paused.json()["data"]["paused"], paused.json()["data"]["max_in_flight"]) == (True, 5)
    resumed = await api.call(key, "POST", f"{at}/resume", body=WHY)
    now = {"if-match": resumed.headers["etag"]}
    body = {"policy": None, **WHY}
    reset = await api.call(key, "PUT", f"{at}/policy", body=body, headers=now)
    assert (reset.status_code, reset.json()["data"]["max_in_flight"]) == (200, None)
    assert "mail@smtp" not in await api.engine.policies()
    unknown = await api.call(key, "PUT", "/v2/queues/new/policy", body=wanted, headers=now)
    assert unknown.status_code == 404
    new = {"if-none-match": "*"}
    made = await api.call(key, "PUT", "/v2/queues/new/policy", body=wanted, headers=new)
    assert made.status_code == 200
    assert (await api.call(key, "GET", "/v2/queues/new")).json()["data"]["counts"] is None
    assert (await api.call(key, "POST", "/v2/queues/none/pause", body=WHY)).status_code == 404


async def the_life_of_an_outage(api: Api, key: str) -> None:
    at = "/v2/outages/smtp"
    assert (await api.call(key, "POST", f"{at}/end", body=WHY)).status_code == 409
    started = await api.call(key, "POST", f"{at}/start", body=WHY)
    assert (started.status_code, started.json()["data"]["waiting"]) == (200, 1), started.text
    assert (await api.call(key, "POST", f"{at}/start", body=WHY)).status_code == 409
    listed = await api.call(key, "GET", "/v2/outages")
    assert [one["dependency"] for one in listed.json()["data"]] == ["smtp"]
    ended = await api.call(key, "POST", f"{at}/end", body=WHY)
    assert ended.json()["data"]["ended_why"] == "a test"
    assert (await api.call(key, "GET", "/v2/outages")).json()["data"] == []
    listed = await api.call(key, "GET", "/v2/outages?ended=true")
    assert [one["dependency"] for one in listed.json()["data"]] == ["smtp"]
    unknown = await api.call(key, "POST", "/v2/outages/nothing/start", body=WHY)
    assert unknown.status_code == 422


async def the_life_of_a_schedule(api: Api, key: str) -> None:
    state = ScheduleState("0 3 * * *", "UTC", "t", "default")
    await api.engine.set_schedule("nightly", state, Attribution("ann", "a test", ()))
    listed = await api.call(key, "GET", "/v2/schedules")
    assert [one["name"] for one in listed.json()["data"]] == ["nightly"]
    at = "/v2/schedules/nightly"
    first = (await api.call(key, "GET", at)).json()["data"]["next_at"]
    skipped = await api.call(key, "POST", f"{at}/skip", body=WHY)
    assert skipped.json()["data"]["next_at"] > first
    paused = await api.call(key, "POST", f"{at}/pause", body=WHY)
    assert paused.json()["data"]["paused"] is True
    resumed = await api.call(key, "POST", f"{at}/resume", body=WHY)
    assert (resumed.json()["data"]["paused"], resumed.json()["data"]["skip_until"]) == (False, None)
    assert (await api.call(key, "GET", "/v2/schedules/none")).status_code == 404
    assert (await api.call(key, "POST", "/v2/schedules/none/skip", body=WHY)).status_code == 404


async def the_life_of_a_flag(api: Api, key: str) -> None:
    at = "/v2/flags/auto_replay%2Fmail"
    for on, is_set in ((False, True), (None, False)):
        got = await api.call(key, "PUT", at, body={"on": on, **WHY})
        assert got.status_code == 200, got.text
        assert (got.json()["data"]["on"], got.json()["data"]["is_set"]) == (False, is_set)
        flags = await api.call(key, "GET", "/v2/flags")
        assert ("auto_replay/mail" in [one["name"] for one in flags.json()["data"]]) == is_set


async def the_life_of_a_worker(api: Api, key: str) -> None:
    none = await api.call(key, "POST", "/v2/workers:drain", body=WHY)
    assert (none.status_code, none.headers["retry-after"]) == (503, "1")
    async with api.worker("w1"):
        listed = await api.call(key, "GET", "/v2/workers")
        assert [one["worker"] for one in listed.json()["data"]] == ["w1"]
        (shown,) = (await api.call(key, "GET", "/v2/workers/w1")).json()["data"]
        assert (shown["slots"], shown["draining"]) == (4, False)
        assert (await api.call(key, "GET", "/v2/workers/w2")).status_code == 404
        for path, body in (
            ("/v2/workers/w1/drain", WHY),
            ("/v2/workers:resume", WHY),
            ("/v2/workers/w1/resize", {"slots": 2, **WHY}),
            ("/v2/workers:log-level", {"level": "debug", **WHY}),
            ("/v2/settings:reload", WHY),
        ):
            got = await api.call(key, "POST", path, body=body)
            assert got.status_code == 200, (path, got.text)
            assert [(one["worker"], one["outcome"]) for one in got.json()["data"]] == [
                ("w1", "done")
            ]
        assert (await api.call(key, "POST", "/v2/workers/w2/drain", body=WHY)).status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "name"),
    [
        ("PATCH", "/v2/failures/g-1", {"state": "fixed", **WHY}, 422, "invalid-input"),
        ("PATCH", "/v2/failures/g-1", {"state": "lost", **WHY}, 422, "invalid-input"),
        ("PATCH", "/v2/failures/g-1", {**WHY}, 422, "invalid-input"),
        ("PATCH", "/v2/failures/g-1", {"state": "open", "owner": "b"}, 422, "invalid-input"),
        ("PATCH", "/v2/failures/g-1", {"owner": "bob"}, 422, "why-required"),
        ("PATCH", "/v2/failures/g-1", {"owner": "b" * 5_000, **WHY}, 422, "invalid-input"),
        ("PATCH", "/v2/failures/g-1", {"owner": "bob", **WHY}, 404, "not-found"),
        ("GET", "/v2/failures/g-1/members", None, 404, "not-found"),
        ("GET", "/v2/queues/none", None, 404, "not-found"),
        ("PUT", "/v2/queues/q/policy", {"policy": {"rate": "x"}, **WHY}, 422, "invalid-input"),
        ("PUT", "/v2/queues/q/policy", {"policy": {"fiar": True}, **WHY}, 422, "invalid-input"),
        ("PUT", "/v2/queues/q/policy", {"policy": None}, 422, "why-required"),
        ("PUT", "/v2/flags/%0A", {"on": True, **WHY}, 422, "invalid-input"),
        ("POST", "/v2/workers/w1/resize", {"slots": 0, **WHY}, 422, "invalid-input"),
        ("POST", "/v2/workers/w1/log-level", {"level": "loud", **WHY}, 422, "invalid-input"),
        ("POST", "/v2/workers/w1/drain", {}, 422, "why-required"),
        ("GET", "/v2/outages?ended=perhaps", None, 422, "invalid-input"),
        ("GET", "/v2/operations?running=1", None, 422, "invalid-input"),
        ("DELETE", "/v2/failures/g-1", None, 422, "why-required"),
    ],
)
async def test_what_is_wrong_is_a_problem_and_changes_nothing(method, path, body, status, name):
    async with opened() as api:
        key = await api.key(Role.ADMIN, tenants=())
        before = len(await api.engine.audited(limit=100))
        headers = {"if-none-match": "*"} if method == "PUT" else {}
        got = await api.call(key, method, path, body=body, headers=headers)
        assert (got.status_code, got.json()["type"]) == (status, f"/problems/{name}"), got.text
        assert len(await api.engine.audited(limit=100)) == before


async def test_who_may_pause_may_not_set_limits_and_reload_is_for_admins():
    async with opened() as api:
        await api.engine.enqueue([NewJob(task="t", queue="mail", tenant="acme")])
        key = await api.key(Role.OPERATOR, tenants=())
        paused = await api.call(key, "POST", "/v2/queues/mail/pause", body=WHY)
        assert paused.status_code == 200, paused.text
        body = {"policy": {"paused": True}, **WHY}
        refused = await api.call(key, "PUT", "/v2/queues/mail/policy", body=body)
        assert refused.json()["required_permission"] == "queue.policy"
        key = await api.key(Role.RESPONDER, tenants=())
        refused = await api.call(key, "POST", "/v2/settings:reload", body=WHY)
        assert refused.json()["required_permission"] == "settings.reload"
