"""Leases that run out, caps, and jobs that expire."""

from __future__ import annotations

import pytest

from holdfast.engines.contract import Reclaim, Renewal
from holdfast.model.audit import Attribution, AuditEntry
from holdfast.model.errors import InvalidInput, LeaseLost
from holdfast.model.job import State
from holdfast.model.outcome import (
    completed,
    retry,
)

from .fixture import FAILURE, EngineFixture, Suite, on_engine


class LeaseRules(Suite):
    """Leases that run out, caps, and jobs that expire."""

    @on_engine
    async def test_an_expired_lease_is_reclaimed_with_a_loss_and_the_attempt_stays_charged(
        self, desk: EngineFixture
    ) -> None:
        await desk.put("a", "b")
        await desk.take()
        assert (await desk.lose(29.999_999)).lost == []
        [lost] = (await desk.lose(0.000_001)).lost
        assert (lost.id, lost.state, lost.attempt, lost.losses) == ("a", State.PENDING, 1, 1)
        assert lost.failure is not None
        assert lost.failure.error_reason == "worker_lost"
        assert await desk.take_ids() == ["b", "a"], "a lost job goes to the tail"

    @on_engine
    async def test_a_loop_that_reclaims_finds_what_has_run_out_since_the_last_time(
        self, desk: EngineFixture
    ) -> None:
        for seconds in (0.0, 30.0, 30.0):
            desk.clock.advance(seconds)
            lost = (await desk.engine.reclaim(every_seconds=1.0)).lost
            assert [job.id for job in lost] == ([] if seconds == 0 else ["a"])
            if seconds == 0:
                await desk.put("a")
            assert await desk.take_ids() == ["a"]

    @on_engine
    async def test_a_settle_before_the_reclaim_is_accepted_however_late(
        self, desk: EngineFixture
    ) -> None:
        await desk.put("a")
        [job] = await desk.take()
        desk.clock.advance(500)
        assert await desk.settle(completed(job)) == [None]
        assert await desk.engine.reclaim() == Reclaim([], [])

    @on_engine
    async def test_lost_three_times_is_dead(self, desk: EngineFixture) -> None:
        await desk.put("poison", max_attempts=10)
        for losses in (1, 2):
            await desk.take()
            [job] = (await desk.lose()).lost
            assert (job.state, job.losses) == (State.PENDING, losses)
        await desk.take()
        [job] = (await desk.lose()).lost
        assert (job.state, job.losses, job.attempt) == (State.DEAD, 3, 3)
        assert job.failure is not None
        assert job.failure.error_reason == "worker_lost"

    @on_engine
    async def test_losses_count_as_attempts(self, desk: EngineFixture) -> None:
        await desk.put("a", max_attempts=2)
        await desk.settle(retry((await desk.take())[0], FAILURE))
        await desk.take()
        [job] = (await desk.lose()).lost
        assert (job.state, job.attempt, job.losses) == (State.DEAD, 2, 1)

    @on_engine
    async def test_extend_renews_from_now(self, desk: EngineFixture) -> None:
        await desk.put("a")
        [job] = await desk.take(lease_seconds=10)
        desk.clock.advance(8)
        assert await desk.engine.extend([job], lease_seconds=10) == [
            Renewal(desk.clock.now_us() + 10_000_000)
        ]
        desk.clock.advance(9)
        assert (await desk.engine.reclaim()).lost == []
        assert await desk.settle(completed(job)) == [None]

    @on_engine
    async def test_extend_never_shortens_a_lease(self, desk: EngineFixture) -> None:
        await desk.put("a", estimated_seconds=120)
        [job] = await desk.take()
        assert await desk.engine.extend([job], lease_seconds=5) == [Renewal(job.lease_until_us)]

    @on_engine
    async def test_no_heartbeat_holds_a_job_past_max_processing_seconds(
        self, desk: EngineFixture
    ) -> None:
        await desk.put("a", max_processing_seconds=100)
        [job] = await desk.take(lease_seconds=60)
        started_us = desk.clock.now_us()
        desk.clock.advance(50)
        capped = Renewal(started_us + 100_000_000)
        assert await desk.engine.extend([job], lease_seconds=60) == [capped]
        [lost] = (await desk.lose(50)).lost
        assert lost.failure is not None
        assert lost.failure.error_reason == "stuck"
        assert isinstance((await desk.engine.extend([job], lease_seconds=60))[0], LeaseLost)

    @on_engine
    async def test_the_engine_has_a_cap_on_processing_of_its_own(self, desk: EngineFixture) -> None:
        await desk.put("a")
        [job] = await desk.take(lease_seconds=3_600)
        assert job.lease_until_us == desk.clock.now_us() + 600_000_000

    @on_engine
    async def test_an_operator_can_end_a_lease(self, desk: EngineFixture) -> None:
        await desk.put("a", "b", "c")
        held, _other = await desk.take(2)
        waiting = await desk.job("c")
        answer = await desk.engine.reclaim(forced=[held, waiting, held])
        assert [job.id for job in answer.lost] == ["a"]
        assert answer.lost[0].failure is not None
        assert answer.lost[0].failure.error_reason == "stuck"
        assert isinstance((await desk.settle(completed(held)))[0], LeaseLost)
        assert await desk.state("b") is State.IN_FLIGHT

    @on_engine
    async def test_who_ends_a_lease_and_why_is_in_the_failure_and_in_the_audit_of_that_commit(
        self,
        desk: EngineFixture,
    ) -> None:
        entry = AuditEntry("job.reclaim", "job", "a", "ann", "{}", "it hangs")
        attribution = Attribution("ann", "it hangs", (entry,))
        await desk.put("a", "b")
        [held] = await desk.take(1)
        waiting = await desk.job("b")
        assert (await desk.engine.reclaim(forced=[waiting], attribution=attribution)).lost == []
        assert await desk.engine.audited() == []
        answer = await desk.engine.reclaim(forced=[held], attribution=attribution)
        assert answer.lost[0].failure is not None
        assert answer.lost[0].failure.message == "ann ended its lease: it hangs"
        assert [record.entry for record in await desk.engine.audited()] == [entry]
        for wrong in (Attribution("", "why"), Attribution("ann", "")):
            with pytest.raises(InvalidInput):
                await desk.engine.reclaim(forced=[held], attribution=wrong)

    @on_engine
    async def test_a_lease_that_ran_out_by_itself_is_nobodys_operation(
        self, desk: EngineFixture
    ) -> None:
        entry = AuditEntry("job.reclaim", "job", "a", "ann")
        await desk.put("a")
        await desk.take(lease_seconds=1)
        desk.clock.advance(2)
        found = await desk.engine.reclaim(attribution=Attribution("ann", "why", (entry,)))
        assert [job.id for job in found.lost] == ["a"]
        assert found.lost[0].failure is not None
        assert "ann" not in found.lost[0].failure.message
        assert await desk.engine.audited() == []

    @on_engine
    async def test_reclaim_takes_no_more_than_its_limit_oldest_first(
        self, desk: EngineFixture
    ) -> None:
        await desk.put("a", "b", "c")
        await desk.take(lease_seconds=20)
        await desk.take(lease_seconds=10)
        await desk.take(lease_seconds=30)
        desk.clock.advance(60)
        first = await desk.engine.reclaim(limit=2)
        assert [job.id for job in first.lost] == ["b", "a"]
        assert [job.id for job in (await desk.engine.reclaim(limit=2)).lost] == ["c"]

    @on_engine
    async def test_an_expired_job_is_not_handed_out_and_dies(self, desk: EngineFixture) -> None:
        await desk.put("old", expires_seconds=5)
        await desk.put("good")
        desk.clock.advance(5)
        assert await desk.take_ids() == ["good"]
        [job] = (await desk.engine.reclaim()).expired
        assert (job.id, job.state) == ("old", State.DEAD)
        assert job.failure is not None
        assert job.failure.error_reason == "expired"

    @on_engine
    async def test_a_claimed_job_does_not_expire_but_a_retried_one_does(
        self, desk: EngineFixture
    ) -> None:
        await desk.put("a", expires_seconds=5)
        [job] = await desk.take()
        desk.clock.advance(6)
        assert (await desk.engine.reclaim()).expired == []
        await desk.settle(retry(job, FAILURE))
        assert [dead.id for dead in (await desk.engine.reclaim()).expired] == ["a"]

    @on_engine
    async def test_a_scheduled_job_can_expire_before_it_is_due(self, desk: EngineFixture) -> None:
        await desk.put("a", delay_seconds=60, expires_seconds=5)
        desk.clock.advance(5)
        assert [job.id for job in (await desk.engine.reclaim()).expired] == ["a"]

    @on_engine
    async def test_expired_jobs_are_buried_oldest_first(self, desk: EngineFixture) -> None:
        for seconds in (3, 1, 2):
            await desk.put(f"in{seconds}", expires_seconds=seconds)
        desk.clock.advance(10)
        answer = await desk.engine.reclaim(limit=2)
        assert [job.id for job in answer.expired] == ["in1", "in2"]
