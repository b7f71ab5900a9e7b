"""Claiming: order, leases, claims that wait."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.engines.contract import Claim
from holdfast.model.errors import (
    InvalidInput,
)
from holdfast.model.job import State
from holdfast.model.outcome import (
    completed,
    release,
    retry,
)

from .fixture import FAILURE, EngineFixture, Suite, on_engine, settle_down


class ClaimRules(Suite):
    """Claiming: order, leases, claims that wait."""

    @on_engine
    async def test_fifo_within_a_priority_and_higher_priorities_first(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("low1", "low2")
        await fixture.put("high1", "high2", priority=3)
        await fixture.put("lowest", priority=-1)
        expected = ["high1", "high2", "low1", "low2", "lowest"]
        assert await fixture.take_ids(2) + await fixture.take_ids() == expected

    @on_engine
    async def test_several_queues_and_tasks_share_one_order(self, fixture: EngineFixture) -> None:
        for number, (queue, task) in enumerate(
            [("a", "x"), ("b", "y"), ("a", "y"), ("c", "x"), ("b", "x"), ("a", "x")]
        ):
            await fixture.put(str(number), queue=queue, task=task)
        assert await fixture.take_ids(queues=["a", "b"]) == ["0", "1", "2", "4", "5"]
        assert await fixture.take_ids(queues=["c"]) == ["3"]

    @on_engine
    async def test_only_known_tasks_are_claimed(self, fixture: EngineFixture) -> None:
        await fixture.put("new", task="unknown_here")
        await fixture.put("old", task="known")
        assert await fixture.take_ids(tasks=["known", "other"]) == ["old"]
        assert await fixture.state("new") is State.PENDING
        assert await fixture.take_ids() == ["new"]

    @on_engine
    async def test_a_delayed_job_is_not_handed_out_before_it_is_due(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("later", delay_seconds=5)
        await fixture.put("now")
        assert await fixture.take_ids() == ["now"]
        fixture.clock.advance(4.999_999)
        assert await fixture.take_ids() == []
        fixture.clock.advance(0.000_001)
        assert await fixture.take_ids() == ["later"]

    @on_engine
    async def test_a_delayed_job_is_ordered_by_its_due_time(self, fixture: EngineFixture) -> None:
        await fixture.put("due_at_5", delay_seconds=5)
        fixture.clock.advance(3)
        await fixture.put("put_at_3")
        fixture.clock.advance(4)
        await fixture.put("put_at_7")
        assert await fixture.take_ids() == ["put_at_3", "due_at_5", "put_at_7"]

    @on_engine
    async def test_an_elapsed_run_at_means_now(self, fixture: EngineFixture) -> None:
        await fixture.put("first")
        fixture.clock.advance(1)
        await fixture.put("second", run_at_us=5)
        assert await fixture.take_ids() == ["first", "second"]

    @on_engine
    async def test_a_retry_goes_to_the_tail(self, fixture: EngineFixture) -> None:
        await fixture.put("a", "b")
        await fixture.settle(retry((await fixture.take())[0], FAILURE))
        assert await fixture.take_ids() == ["b", "a"]

    @on_engine
    async def test_a_released_job_keeps_its_place(self, fixture: EngineFixture) -> None:
        await fixture.put("a", "b", "c", "d")
        jobs = await fixture.take(3)
        await fixture.settle(release(jobs[1]), release(jobs[0]), release(jobs[2]))
        assert await fixture.take_ids() == ["a", "b", "c", "d"]

    @on_engine
    async def test_a_claim_charges_an_attempt_and_gives_a_token_and_a_lease(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a")
        [job] = await fixture.take(lease_seconds=10, worker="w7")
        assert (job.state, job.attempt, job.worker) == (State.IN_FLIGHT, 1, "w7")
        assert 0 < job.token < 2**63
        assert job.lease_until_us == fixture.clock.now_us() + 10_000_000
        assert await fixture.job("a") == job
        assert await fixture.take_ids() == []

    @on_engine
    async def test_tokens_of_one_claim_are_in_its_order(self, fixture: EngineFixture) -> None:
        await fixture.put("low")
        await fixture.put("high", priority=3)
        first, second = await fixture.take(2)
        assert (first.id, second.id) == ("high", "low")
        assert first.token < second.token

    @on_engine
    async def test_tokens_of_one_job_only_grow(self, fixture: EngineFixture) -> None:
        await fixture.put("a", max_attempts=10)
        tokens = []
        for give_back in (release, release, lambda job: retry(job, FAILURE)):
            [job] = await fixture.take()
            tokens.append(job.token)
            await fixture.settle(give_back(job))
        await fixture.take()
        await fixture.expire_leases()
        tokens.append((await fixture.take())[0].token)
        assert tokens == sorted(set(tokens))

    @on_engine
    async def test_an_estimate_is_the_first_lease(self, fixture: EngineFixture) -> None:
        await fixture.put("a", estimated_seconds=120)
        [job] = await fixture.take(lease_seconds=10)
        assert job.lease_until_us == fixture.clock.now_us() + 120_000_000

    @pytest.mark.parametrize(
        ("fields", "field"),
        [
            ({"limit": 0}, "limit"),
            ({"limit": 10_001}, "limit"),
            ({"lease_seconds": 0}, "lease_seconds"),
            ({"lease_seconds": 3_601}, "lease_seconds"),
            ({"worker": ""}, "worker"),
            ({"wait_seconds": -1}, "wait_seconds"),
            ({"queues": "default"}, "queues"),
        ],
    )
    @on_engine
    async def test_a_bad_claim_names_the_field_and_claims_nothing(
        self, fixture: EngineFixture, fields: dict[str, object], field: str
    ) -> None:
        await fixture.put("a")
        with pytest.raises(InvalidInput) as refused:
            await fixture.claim(**fields)
        assert refused.value.field == field
        assert await fixture.state("a") is State.PENDING

    @on_engine
    async def test_settling_and_claiming_are_one_step(self, fixture: EngineFixture) -> None:
        await fixture.put("a", "b", "c")
        first = await fixture.take(2)
        answer = await fixture.claim(limit=2, settle=[completed(job) for job in first])
        assert answer.settled == [None, None]
        assert [job.id for job in answer.jobs] == ["c"]
        assert (await fixture.counts()).completed == 2

    @on_engine
    async def test_a_claim_may_return_a_job_that_it_settles(self, fixture: EngineFixture) -> None:
        await fixture.put("a")
        [job] = await fixture.take()
        answer = await fixture.claim(settle=[retry(job, FAILURE)])
        assert [(again.id, again.attempt) for again in answer.jobs] == [("a", 2)]

    @on_engine
    async def test_a_claim_waits_for_work(self, fixture: EngineFixture) -> None:
        waiting = asyncio.create_task(fixture.take(wait_seconds=10))
        await settle_down()
        assert not waiting.done()
        await fixture.put("elsewhere", queue="other")
        await settle_down()
        assert not waiting.done()
        await fixture.put("a")
        assert [job.id for job in await waiting] == ["a"]

    @on_engine
    async def test_a_waiting_claim_gives_up_in_time(self, fixture: EngineFixture) -> None:
        waiting = asyncio.create_task(fixture.take(wait_seconds=10))
        await settle_down()
        fixture.clock.advance(9.9)
        await settle_down()
        assert not waiting.done()
        fixture.clock.advance(0.1)
        assert await waiting == []

    @on_engine
    async def test_a_waiting_claim_wakes_when_a_job_becomes_due(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a", delay_seconds=3)
        waiting = asyncio.create_task(fixture.take(wait_seconds=10))
        await settle_down()
        fixture.clock.advance(3)
        assert [job.id for job in await waiting] == ["a"]

    @on_engine
    async def test_a_claim_that_settles_does_not_wait(self, fixture: EngineFixture) -> None:
        await fixture.put("a")
        [job] = await fixture.take()
        answer = await fixture.claim(settle=[completed(job)], wait_seconds=10)
        assert answer == Claim([], [None])

    @on_engine
    async def test_a_cancelled_waiting_claim_takes_nothing(self, fixture: EngineFixture) -> None:
        waiting = asyncio.create_task(fixture.take(wait_seconds=10))
        await settle_down()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await fixture.put("a")
        assert await fixture.state("a") is State.PENDING
