"""Workers in other languages: claim, extend, settle and release over HTTP."""

import asyncio

import httpx
import pytest

from holdfast.api import claims
from holdfast.model.job import NewJob, State
from holdfast.model.outcome import OutcomeKind
from holdfast.model.permissions import Role

from .remote_rig import Remote, remote
from .rig import Api, opened


async def claimed(api: Api, key: str, **more: object) -> dict[str, object]:
    """Make a job and claim it."""
    await api.engine.enqueue([NewJob(task="t", id="a", tenant="acme", payload={"n": 1})])
    body = {"queues": ["default"], "worker": "w", **more}
    got = await api.call(key, "POST", "/v2/claims", body=body)
    assert got.status_code == 200, got.text
    (job,) = got.json()["data"]["jobs"]
    return dict(job)


async def state(api: Api) -> State:
    (job,) = await api.engine.get(["a"], tenant="acme")
    assert job is not None
    return job.state


@pytest.mark.parametrize(
    ("outcome", "then"),
    [
        ({"status": "completed", "result": {"sum": 3}}, State.COMPLETED),
        ({"status": "failed", "failure": {"error_reason": "timeout"}}, State.PENDING),
        ({"status": "failed", "failure": {"error_reason": "parse_error"}}, State.DEAD),
        ({"status": "failed"}, State.PENDING),
        ({"status": "dead", "failure": {"message": "no"}}, State.DEAD),
        ({"status": "cancelled"}, State.CANCELLED),
        ({"status": "snoozed", "delay_seconds": 60}, State.PENDING),
        ({"status": "released"}, State.PENDING),
    ],
)
async def test_each_outcome_is_recorded(outcome, then):
    async with opened() as api:
        key = await api.key(Role.WORKER)
        job = await claimed(api, key)
        assert (job["payload"], job["attempt"]) == ({"n": 1}, 1)
        assert isinstance(job["token"], str)
        body = {"outcomes": [{"id": "a", "token": job["token"], **outcome}]}
        got = await api.call(key, "POST", "/v2/claims/settle", body=body)
        assert got.json()["data"] == [{"id": "a", "token": job["token"], "accepted": True}]
        assert await state(api) is then


async def test_a_claim_records_outcomes_in_the_same_call():
    async with opened() as api:
        key = await api.key(Role.WORKER)
        job = await claimed(api, key)
        await api.engine.enqueue([NewJob(task="t", id="b", tenant="acme")])
        done = {"id": "a", "token": job["token"], "status": "completed"}
        body = {"queues": ["default"], "worker": "w", "settle": [done], "wait_seconds": 30}
        data = (await api.call(key, "POST", "/v2/claims", body=body)).json()["data"]
        assert [one["id"] for one in data["jobs"]] == ["b"]
        assert [one["accepted"] for one in data["settled"]] == [True]


@pytest.mark.parametrize("path", ["settle", "extend", "release"])
async def test_a_stale_token_is_refused(path):
    async with opened() as api:
        key = await api.key(Role.WORKER)
        job = await claimed(api, key)
        (held,) = await api.engine.get(["a"], tenant="acme")
        assert held is not None
        await api.engine.reclaim(forced=[held])
        old = {"id": "a", "token": job["token"]}
        outcome = {**old, "status": "completed"}
        body = {"outcomes": [outcome]} if path == "settle" else {"held": [old]}
        got = await api.call(key, "POST", f"/v2/claims/{path}", body=body)
        assert (got.status_code, got.json()["type"]) == (409, "/problems/lease-lost")
        assert await state(api) is State.PENDING


async def test_control_without_its_token_an_outcome_would_be_recorded(monkeypatch):
    """The token of the job as it is: what fencing is against."""
    async with opened() as api:
        key = await api.key(Role.WORKER)
        await claimed(api, key)
        (held,) = await api.engine.get(["a"], tenant="acme")
        assert held is not None
        monkeypatch.setattr(claims, "_token", lambda _text: held.token)
        body = {"outcomes": [{"id": "a", "token": "1", "status": "completed"}]}
        await api.call(key, "POST", "/v2/claims/settle", body=body)
        assert await state(api) is State.COMPLETED


async def test_extend_says_until_when_and_whether_to_stop():
    async with opened() as api:
        key = await api.key(Role.WORKER)
        job = await claimed(api, key, lease_seconds=5)
        lease = {"id": "a", "token": job["token"]}
        held = {"held": [lease], "lease_seconds": 60}
        (kept,) = (await api.call(key, "POST", "/v2/claims/extend", body=held)).json()["data"]
        assert kept["lease_until"] > str(job["lease_until"])
        both = {"held": [lease, {"id": "a", "token": "7"}]}
        got = await api.call(key, "POST", "/v2/claims/extend", body=both)
        assert [one["accepted"] for one in got.json()["data"]] == [True, False]


@pytest.mark.parametrize(
    "body",
    [
        {"queues": ["default"]},
        {"queues": ["default"], "worker": "w", "wait_seconds": 31},
        {"queues": ["default"], "worker": "w", "limit": 0},
        {"queues": ["default"], "worker": "w", "settle": [{"id": "a", "token": "x"}]},
        {"queues": ["default"], "worker": "w", "typo": 1},
    ],
)
async def test_bad_claims_are_refused(body):
    async with opened() as api:
        got = await api.call(await api.key(Role.WORKER), "POST", "/v2/claims", body=body)
        assert got.status_code == 422, got.text


async def waiting_claim(
    there: Remote, key: str, ended: asyncio.Event | None = None
) -> asyncio.Task[httpx.Response]:
    """Start a claim that waits on the server; ``ended`` is set when it does not any more."""
    asked = asyncio.Event()
    ask = there.store.claim

    async def noticed(**more):
        asked.set()
        try:
            return await ask(**more)
        finally:
            there.store.claim = ask  # type: ignore[method-assign]
            if ended is not None:
                ended.set()

    there.store.claim = noticed  # type: ignore[method-assign]
    body = {"queues": ["default"], "worker": "w", "wait_seconds": 30}

    async def send() -> httpx.Response:
        async with httpx.AsyncClient(base_url=there.url, timeout=60) as http:
            headers = {"authorization": f"Bearer {key}"}
            return await http.post("/v2/claims", headers=headers, json=body)

    task = asyncio.create_task(send())
    await asked.wait()
    return task


async def test_a_claim_that_waits_gets_what_comes(monkeypatch):
    async with remote() as there:
        key = await there.api.key(Role.WORKER)
        waiting = await waiting_claim(there, key)
        await there.store.enqueue([NewJob(task="t", id="a", tenant="acme")])
        assert [job["id"] for job in (await waiting).json()["data"]["jobs"]] == ["a"]


async def test_a_claim_that_waits_ends_when_the_server_drains(monkeypatch):
    monkeypatch.setattr(claims, "_SLICE_SECONDS", 0.01)
    async with remote() as there:
        waiting = await waiting_claim(there, await there.api.key(Role.WORKER))
        there.api.application.drain()
        got = await waiting
        assert (got.status_code, got.json()["data"]["jobs"]) == (200, [])


async def test_who_hangs_up_holds_nothing():
    async with remote() as there:
        key = await there.api.key(Role.WORKER)
        ended = asyncio.Event()
        waiting = await waiting_claim(there, key, ended)
        waiting.cancel()
        await ended.wait()
        await there.store.enqueue([NewJob(task="t", id="a", tenant="acme")])
        body = {"queues": ["default"], "worker": "w2", "wait_seconds": 5}
        got = await there.api.call(key, "POST", "/v2/claims", body=body)
        assert [job["id"] for job in got.json()["data"]["jobs"]] == ["a"]


def test_every_status_has_a_kind():
    assert set(claims._KINDS.values()) < set(OutcomeKind)
