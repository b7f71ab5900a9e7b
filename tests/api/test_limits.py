"""Limits: who sends too much is told when to come again, and others do not notice."""

import asyncio
import re

import httpx
import pytest

from holdfast.api import limits
from holdfast.api.limits import Bucket, LimitOptions, RequestLimits
from holdfast.engines.protocol import messages
from holdfast.model.access import Caller
from holdfast.model.api_key import KeyText
from holdfast.model.job import NewJob
from holdfast.model.permissions import Role
from holdfast.model.principal import Principal, local_principal
from holdfast.operations.keys import KeyOperations, KeyView

from .rig import Api, opened

QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"
FEW = LimitOptions(key_rate=5, tenant_rate=8)


async def statuses(api: Api, key: str, count: int) -> list[int]:
    calls = [api.call(key, "GET", "/v2/me") for _number in range(count)]
    return [one.status_code for one in await asyncio.gather(*calls)]


async def test_headers_say_what_is_left_and_a_refusal_when_to_come_again():
    async with opened(limits=FEW) as api:
        key = await api.key(Role.VIEWER)
        got = await api.call(key, "GET", "/v2/me")
        assert got.headers["ratelimit-policy"] == '"key";q=5;w=60, "tenant";q=8;w=60'
        assert got.headers["ratelimit"] == '"key";r=4;t=12, "tenant";r=7;t=8'
        assert await statuses(api, key, 5) == [200] * 4 + [429]
        refused = await api.call(key, "GET", "/v2/me")
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.json()["type"] == QUOTA_EXCEEDED
        assert refused.json()["violated-policies"] == ["key"]
        assert refused.json()["retryable"] is True
        assert 1 <= int(refused.headers["retry-after"]) <= 12
        assert refused.headers["ratelimit"].startswith('"key";r=0;t=')


async def test_keys_of_one_tenant_share_its_limit_and_another_tenant_goes_on():
    async with opened(limits=FEW) as api:
        flood = [await api.key(Role.VIEWER) for _number in range(3)]
        calm = await api.key(Role.VIEWER, tenants=("other",))
        answers = [await statuses(api, key, 4) for key in flood]
        assert sum(one.count(200) for one in answers) == 8
        refused = await api.call(flood[2], "GET", "/v2/me")
        assert refused.json()["violated-policies"] == ["tenant"]
        assert await statuses(api, calm, 4) == [200] * 4


async def test_a_key_may_have_a_rate_of_its_own():
    async with opened(limits=LimitOptions(key_rate=2)) as api:
        plain, fast = await api.key(Role.VIEWER), await api.key(Role.VIEWER, rate=6)
        assert await statuses(api, plain, 4) == [200, 200, 429, 429]
        assert await statuses(api, fast, 7) == [200] * 6 + [429]
        [view] = [one for one in await keys_of(api) if one.requests_per_minute]
        assert view.requests_per_minute == 6


async def keys_of(api: Api) -> list[KeyView]:
    return await KeyOperations(api.engine, local_principal("ann")).all()


async def test_what_is_unchanged_and_health_cost_nothing():
    async with opened(limits=LimitOptions(key_rate=3)) as api:
        key = await api.key(Role.RESPONDER)
        await api.call(key, "POST", "/v2/jobs", body={"task": "t", "id": "a"})
        tag = (await api.call(key, "GET", "/v2/jobs/a")).headers["etag"]
        for _again in range(5):
            same = await api.call(key, "GET", "/v2/jobs/a", headers={"if-none-match": tag})
            assert same.status_code == 304
            assert re.match(r'"key";r=1;', same.headers["ratelimit"])
            assert (await api.http.get("/health/live")).status_code == 200


async def test_without_limits_there_are_no_headers():
    async with opened(limits=LimitOptions(key_rate=0, tenant_rate=0)) as api:
        key = await api.key(Role.VIEWER)
        got = await api.call(key, "GET", "/v2/me")
        assert "ratelimit" not in got.headers


async def test_a_flood_and_wrong_keys_do_not_reach_the_store(monkeypatch):
    async with opened(limits=LimitOptions(key_rate=1)) as api:
        key = await api.key(Role.VIEWER)
        assert await statuses(api, key, 2) == [200, 429]
        asked = []
        for verb in ("now_us", "records"):
            monkeypatch.setattr(api.engine, verb, lambda *_args: asked.append(1))
        assert await statuses(api, key, 3) == [429] * 3
        mistyped = key[:-1] + ("0" if key[-1] != "0" else "1")
        assert await statuses(api, mistyped, 3) == [401] * 3
        assert asked == []


async def test_a_tenant_has_at_most_so_many_unfinished_jobs():
    async with opened(limits=LimitOptions(max_jobs=3)) as api:
        key = await api.key(Role.RESPONDER)
        other = await api.key(Role.PRODUCER, tenants=("other",))
        post = ("POST", "/v2/jobs")
        for number in range(3):
            made = await api.call(key, *post, body={"task": "t", "id": f"j{number}"})
            assert made.status_code == 201
        refused = await api.call(key, *post, body={"task": "t"})
        assert (refused.status_code, refused.json()["violated-policies"]) == (429, ["jobs"])
        assert refused.headers["retry-after"] == "1"
        batch = await api.call(key, "POST", "/v2/jobs:batch", body={"jobs": [{"task": "t"}]})
        assert batch.status_code == 429
        assert (await api.call(other, *post, body={"task": "t"})).status_code == 201
        await api.call(key, "DELETE", "/v2/jobs/j0?why=enough")
        monotonic = api.application._handler._bounded._monotonic  # type: ignore[attr-defined]
        api.application._handler._bounded._monotonic = lambda: monotonic() + 1  # type: ignore[attr-defined]
        assert (await api.call(key, *post, body={"task": "t"})).status_code == 201


async def test_the_protocol_of_remote_engines_has_the_same_quota():
    async with opened(limits=LimitOptions(max_jobs=1)) as api:
        key = await api.key(Role.PRODUCER)

        async def send(tenant: str) -> int:
            call = messages.EnqueueCall([NewJob(task="t", tenant=tenant)])
            sent = messages.ENQUEUE.write_call(call)
            return (await api.call(key, "POST", "/engine/v1/enqueue", body=sent)).status_code

        # What is refused anyway costs another tenant nothing.
        assert [await send(one) for one in ("other", "other", "acme", "acme")] == [422] * 2 + [
            200,
            422,
        ]
        other = await api.key(Role.PRODUCER, tenants=("other",))
        made = await api.call(other, "POST", "/v2/jobs", body={"task": "t"})
        assert made.status_code == 201
        assert (await api.engine.counts())["default"].pending == 2


async def test_a_repeat_of_what_was_taken_is_answered_over_the_quota():
    async with opened(limits=LimitOptions(max_jobs=1)) as api:
        key = await api.key(Role.PRODUCER)
        headers = {"idempotency-key": "k1"}
        first = await api.call(key, "POST", "/v2/jobs", body={"task": "t"}, headers=headers)
        again = await api.call(key, "POST", "/v2/jobs", body={"task": "t"}, headers=headers)
        assert (again.status_code, again.content) == (201, first.content)


def test_a_bucket_fills_evenly_and_never_above_its_quota():
    bucket = Bucket("key", 60, 0.0)
    bucket.add(-60)
    assert bucket.empty
    assert bucket.retry_seconds == 1
    bucket.fill(60, 10.0)
    assert bucket.state == '"key";r=10;t=50'
    bucket.fill(60, 1_000.0)
    assert bucket.state == '"key";r=60;t=0'


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(limits, "MAX_BUCKETS", 10)
    counted = RequestLimits(LimitOptions())
    for number in range(100):
        name = f"tenant{number}"
        who = Principal(name=name, roles=(), caller=Caller(name), key_id=name)
        counted.admit(who)
        counted.check_key(f"Bearer {KeyText('x' * 12, 'y' * 43)}")
    assert len(counted._buckets) == 10


async def test_control_without_the_buckets_a_flood_is_answered(monkeypatch):
    monkeypatch.setattr(Bucket, "empty", False)
    with pytest.raises(AssertionError):
        await test_keys_of_one_tenant_share_its_limit_and_another_tenant_goes_on()


async def test_every_answer_under_the_flood_is_whole():
    async with opened(limits=FEW) as api:
        key = await api.key(Role.VIEWER)
        calls = [api.call(key, "GET", "/v2/jobs") for _number in range(50)]
        answers: list[httpx.Response] = await asyncio.gather(*calls)
        assert {one.status_code for one in answers} == {200, 429}
        assert all("retry-after" in one.headers for one in answers if one.status_code == 429)
