"""Leases: expiry, renewal and caps; and jobs that expire."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast.engines.contract import EngineOptions, Reclaim, Renewal
from holdfast.model.audit import Attribution, AuditEntry
from holdfast.model.errors import InvalidInput, LeaseLost
from holdfast.model.job import State
from holdfast.model.outcome import (
    completed,
    retry,
)

from .fixture import FAILURE, EngineFixture, Suite, on_engine


class LeaseRules(Suite):
    """Leases: expiry, renewal and caps; and jobs that expire."""

    @on_engine
    async def test_an_expired_lease_is_reclaimed_with_a_loss_and_the_attempt_stays_charged(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a", "b")
        await fixture.take()
        assert (await fixture.expire_leases(29.999_999)).lost == []
        [lost] = (await fixture.expire_leases(0.000_001)).lost
        assert (lost.id, lost.state, lost.attempt, lost.losses) == ("a", State.PENDING, 1, 1)
        assert lost.failure is not None
        assert lost.failure.error_reason == "worker_lost"
        assert await fixture.take_ids() == ["b", "a"], "a lost job goes to the tail"

    @on_engine
    async def test_repeated_reclaims_find_leases_expired_since_the_last_one(
        self, fixture: EngineFixture
    ) -> None:
        for seconds in (0.0, 30.0, 30.0):
            fixture.clock.advance(seconds)
            lost = (await fixture.engine.reclaim(every_seconds=1.0)).lost
            assert [job.id for job in lost] == ([] if seconds == 0 else ["a"])
            if seconds == 0:
                await fixture.put("a")
            assert await fixture.take_ids() == ["a"]

    @on_engine
    async def test_a_settle_before_the_reclaim_is_accepted_however_late(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a")
        [job] = await fixture.take()
        fixture.clock.advance(500)
        assert await fixture.settle(completed(job)) == [None]
        assert await fixture.engine.reclaim() == Reclaim([], [])

    @on_engine
    async def test_lost_three_times_is_dead(self, fixture: EngineFixture) -> None:
        await fixture.put("poison", max_attempts=10)
        for losses in (1, 2):
            await fixture.take()
            [job] = (await fixture.expire_leases()).lost
            assert (job.state, job.losses) == (State.PENDING, losses)
        await fixture.take()
        [job] = (await fixture.expire_leases()).lost
        assert (job.state, job.losses, job.attempt) == (State.DEAD, 3, 3)
        assert job.failure is not None
        assert job.failure.error_reason == "worker_lost"

    @on_engine
    async def test_losses_count_as_attempts(self, fixture: EngineFixture) -> None:
        await fixture.put("a", max_attempts=2)
        await fixture.settle(retry((await fixture.take())[0], FAILURE))
        await fixture.take()
        [job] = (await fixture.expire_leases()).lost
        assert (job.state, job.attempt, job.losses) == (State.DEAD, 2, 1)

    @on_engine
    async def test_extend_renews_from_now(self, fixture: EngineFixture) -> None:
        await fixture.put("a")
        [job] = await fixture.take(lease_seconds=10)
        fixture.clock.advance(8)
        assert await fixture.engine.extend([job], lease_seconds=10) == [
            Renewal(fixture.clock.now_us() + 10_000_000)
        ]
        fixture.clock.advance(9)
        assert (await fixture.engine.reclaim()).lost == []
        assert await fixture.settle(completed(job)) == [None]

    @on_engine
    async def test_extend_never_shortens_a_lease(self, fixture: EngineFixture) -> None:
        await fixture.put("a", estimated_seconds=120)
        [job] = await fixture.take()
        assert await fixture.engine.extend([job], lease_seconds=5) == [Renewal(job.lease_until_us)]

    @on_engine
    async def test_no_heartbeat_holds_a_job_longer_than_max_processing_seconds(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a", max_processing_seconds=100)
        [job] = await fixture.take(lease_seconds=60)
        started_us = fixture.clock.now_us()
        fixture.clock.advance(50)
        capped = Renewal(started_us + 100_000_000)
        assert await fixture.engine.extend([job], lease_seconds=60) == [capped]
        [lost] = (await fixture.expire_leases(50)).lost
        assert lost.failure is not None
        assert lost.failure.error_reason == "stuck"
        assert isinstance((await fixture.engine.extend([job], lease_seconds=60))[0], LeaseLost)

    @on_engine
    async def test_the_engine_has_a_cap_on_processing_of_its_own(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a")
        [job] = await fixture.take(lease_seconds=3_600)
        assert job.lease_until_us == fixture.clock.now_us() + 600_000_000

    def test_without_a_cap_in_job_and_engine_the_holder_has_one(self) -> None:
        async def scenario(fixture: EngineFixture) -> None:
            await fixture.put("a")
            [job] = await fixture.take(lease_seconds=60)
            held = replace(job, max_processing_seconds=2_000.0)
            for _half_a_minute in range(50):
                fixture.clock.advance(30)
                [renewed] = await fixture.engine.extend([held], lease_seconds=60)
                assert isinstance(renewed, Renewal)
                assert renewed.lease_until_us == fixture.clock.now_us() + 60_000_000
            # It is 25 minutes later: its worker dies, and it was not held for too long.
            [lost] = (await fixture.expire_leases(61)).lost
            assert lost.failure is not None
            assert lost.failure.error_reason == "worker_lost"
            [job] = await fixture.take(lease_seconds=60)
            capped_us = fixture.clock.now_us() + 100_000_000
            fixture.clock.advance(50)
            held = replace(job, max_processing_seconds=100.0)
            assert await fixture.engine.extend([held], lease_seconds=60) == [Renewal(capped_us)]

        self.check(scenario, EngineOptions(remember_seconds=60.0))

    @on_engine
    async def test_the_caps_of_job_and_engine_go_over_that_of_the_holder(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a")
        await fixture.put("b", max_processing_seconds=100)
        started_us = fixture.clock.now_us()
        jobs = await fixture.take(2, lease_seconds=99)
        fixture.clock.advance(90)
        held = [replace(job, max_processing_seconds=9_000.0) for job in jobs]
        answers = await fixture.engine.extend(held, lease_seconds=3_600)
        ends = (600_000_000, 100_000_000)
        assert answers == [Renewal(started_us + end_us) for end_us in ends]

    @on_engine
    async def test_an_operator_can_end_a_lease(self, fixture: EngineFixture) -> None:
        await fixture.put("a", "b", "c")
        held, _other = await fixture.take(2)
        waiting = await fixture.job("c")
        answer = await fixture.engine.reclaim(forced=[held, waiting, held])
        assert [job.id for job in answer.lost] == ["a"]
        assert answer.lost[0].failure is not None
        assert answer.lost[0].failure.error_reason == "stuck"
        assert isinstance((await fixture.settle(completed(held)))[0], LeaseLost)
        assert await fixture.state("b") is State.IN_FLIGHT

    @on_engine
    async def test_a_forced_reclaim_records_actor_and_reason_in_failure_and_audit(
        self,
        fixture: EngineFixture,
    ) -> None:
        entry = AuditEntry("job.reclaim", "job", "a", "ann", "{}", "it hangs")
        attribution = Attribution("ann", "it hangs", (entry,))
        await fixture.put("a", "b")
        [held] = await fixture.take(1)
        waiting = await fixture.job("b")
        assert (await fixture.engine.reclaim(forced=[waiting], attribution=attribution)).lost == []
        assert await fixture.engine.audited() == []
        answer = await fixture.engine.reclaim(forced=[held], attribution=attribution)
        assert answer.lost[0].failure is not None
        assert answer.lost[0].failure.message == "ann ended its lease: it hangs"
        done = replace(entry, changes='{"count":1,"ids":["a"]}')
        assert [record.entry for record in await fixture.engine.audited()] == [done]
        for wrong in (Attribution("", "why"), Attribution("ann", "")):
            with pytest.raises(InvalidInput):
                await fixture.engine.reclaim(forced=[held], attribution=wrong)

    @on_engine
    async def test_an_expired_lease_is_not_attributed_to_an_actor(
        self, fixture: EngineFixture
    ) -> None:
        entry = AuditEntry("job.reclaim", "job", "a", "ann")
        await fixture.put("a")
        await fixture.take(lease_seconds=1)
        fixture.clock.advance(2)
        found = await fixture.engine.reclaim(attribution=Attribution("ann", "why", (entry,)))
        assert [job.id for job in found.lost] == ["a"]
        assert found.lost[0].failure is not None
        assert "ann" not in found.lost[0].failure.message
        assert await fixture.engine.audited() == []

    @on_engine
    async def test_reclaim_takes_no_more_than_its_limit_oldest_first(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a", "b", "c")
        await fixture.take(lease_seconds=20)
        await fixture.take(lease_seconds=10)
        await fixture.take(lease_seconds=30)
        fixture.clock.advance(60)
        first = await fixture.engine.reclaim(limit=2)
        assert [job.id for job in first.lost] == ["b", "a"]
        assert [job.id for job in (await fixture.engine.reclaim(limit=2)).lost] == ["c"]

    @on_engine
    async def test_an_expired_job_is_not_handed_out_and_dies(self, fixture: EngineFixture) -> None:
        await fixture.put("old", expires_seconds=5)
        await fixture.put("good")
        fixture.clock.advance(5)
        assert await fixture.take_ids() == ["good"]
        [job] = (await fixture.engine.reclaim()).expired
        assert (job.id, job.state) == ("old", State.DEAD)
        assert job.failure is not None
        assert job.failure.error_reason == "expired"

    @on_engine
    async def test_a_claimed_job_does_not_expire_but_a_retried_one_does(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a", expires_seconds=5)
        [job] = await fixture.take()
        fixture.clock.advance(6)
        assert (await fixture.engine.reclaim()).expired == []
        await fixture.settle(retry(job, FAILURE))
        assert [dead.id for dead in (await fixture.engine.reclaim()).expired] == ["a"]

    @on_engine
    async def test_a_scheduled_job_can_expire_before_it_is_due(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a", delay_seconds=60, expires_seconds=5)
        fixture.clock.advance(5)
        assert [job.id for job in (await fixture.engine.reclaim()).expired] == ["a"]

    @on_engine
    async def test_expired_jobs_die_oldest_first(self, fixture: EngineFixture) -> None:
        for seconds in (3, 1, 2):
            await fixture.put(f"in{seconds}", expires_seconds=seconds)
        fixture.clock.advance(10)
        answer = await fixture.engine.reclaim(limit=2)
        assert [job.id for job in answer.expired] == ["in1", "in2"]
