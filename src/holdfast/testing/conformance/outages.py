"""Outages: what is claimed while one lasts, what its failures cost, and how it ends."""

from __future__ import annotations

import pytest

from holdfast.model.access import Caller
from holdfast.model.audit import Attribution, AuditEntry
from holdfast.model.errors import AccessDenied, InvalidInput
from holdfast.model.failure import Failure
from holdfast.model.job import State
from holdfast.model.outage import DependencyReport, Outage, OutagePhase
from holdfast.model.outcome import completed, dead, release, retry
from holdfast.model.policy import Rate

from .fixture import FAILURE, OPERATION, EngineFixture, Suite, WaitingClaim, on_engine

API = ["mail@api", "sms@api"]
STARTS = Attribution("ann", "maintenance", (AuditEntry("start", "outage", "api", "ann"),))


async def trip(fixture: EngineFixture, dependency: str = "default") -> Outage:
    """Report that a dependency is out, and return its outage."""
    report = DependencyReport(dependency, tripped=True, failure=FAILURE)
    update = await fixture.engine.report_outage([report])
    return next(one for one in update.outages if one.dependency == dependency)


async def outage_of(fixture: EngineFixture, dependency: str = "default") -> Outage | None:
    """Return the outage of a dependency, if it lasts."""
    found = await fixture.engine.outages()
    return next((one for one in found if one.dependency == dependency), None)


async def recover(fixture: EngineFixture, job_id: str, queue: str = "default") -> None:
    """Have the next probe, which must be this job, succeed."""
    [probe] = await fixture.take(9, queues=[queue])
    assert probe.id == job_id
    await fixture.settle(completed(probe))
    dependency = queue.rpartition("@")[2]
    await fixture.engine.report_outage([DependencyReport(dependency, 1, probe.claimed_at_us)])


class ProbeRules(Suite):
    """One job at a time while a dependency is out."""

    @on_engine
    async def test_while_out_the_next_job_is_a_probe_after_a_pause(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put(*"abc")
        await trip(fixture)
        assert await fixture.take_ids() == []
        fixture.clock.advance(2)
        assert await fixture.take_ids() == ["a"]
        assert await fixture.take_ids() == []

    @on_engine
    async def test_all_queues_of_a_dependency_share_its_probe(self, fixture: EngineFixture) -> None:
        await fixture.put("a", queue="mail@api")
        await fixture.put("b", queue="sms@api")
        await fixture.put("c", queue="api")
        await fixture.put("d", queue="mail")
        await trip(fixture, "api")
        fixture.clock.advance(2)
        assert await fixture.take_ids(queues=["sms@api", "mail"]) == ["b", "d"]
        assert await fixture.take_ids(queues=[*API, "api"]) == []

    @on_engine
    async def test_other_dependencies_are_not_held_back(self, fixture: EngineFixture) -> None:
        await fixture.put(*"ab")
        await fixture.put("c", queue="other", priority=1)
        await trip(fixture)
        assert await fixture.take_ids(queues=["default", "other"]) == ["c"]

    @on_engine
    async def test_a_failed_probe_goes_to_the_tail_and_the_pause_grows(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put(*"abc")
        await trip(fixture)
        waited: list[float] = []
        for job_id in "abca":
            seconds = 0.0
            while not (jobs := await fixture.take(9)):
                fixture.clock.advance(1)
                seconds += 1
            waited.append(seconds)
            assert [job.id for job in jobs] == [job_id]
            await fixture.settle(retry(jobs[0], FAILURE, 900))
        assert waited == [2, 4, 8, 16]
        found = await outage_of(fixture)
        assert found is not None
        assert (found.probes, found.pause_us) == (4, 32_000_000)

    @on_engine
    async def test_a_job_that_always_fails_is_not_every_probe(self, fixture: EngineFixture) -> None:
        await fixture.put("poison", priority=9)
        await fixture.put("good")
        await trip(fixture)
        fixture.clock.advance(2)
        [probe] = await fixture.take(9)
        assert probe.id == "poison"
        await fixture.settle(retry(probe, FAILURE))
        fixture.clock.advance(4)
        assert await fixture.take_ids() == ["good"]

    @on_engine
    async def test_a_probe_that_takes_long_is_followed_by_another(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put(*"ab")
        await trip(fixture)
        fixture.clock.advance(2)
        assert await fixture.take_ids(lease_seconds=600) == ["a"]
        fixture.clock.advance(59)
        assert await fixture.take_ids() == []
        fixture.clock.advance(1)
        assert await fixture.take_ids() == ["b"]

    @on_engine
    async def test_jobs_under_way_when_it_begins_do_not_move_the_probe(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put(*"abcd")
        jobs = await fixture.take(3)
        await trip(fixture)
        await fixture.settle(*(retry(job, FAILURE) for job in jobs))
        fixture.clock.advance(2)
        assert await fixture.take_ids() == ["d"]

    @on_engine
    async def test_a_waiting_claim_is_woken_for_the_probe(self, fixture: EngineFixture) -> None:
        await fixture.put("a", queue="mail@api")
        await trip(fixture, "api")
        waiting = WaitingClaim(fixture, queues=API)
        await waiting.still_waits()
        fixture.clock.advance(2)
        assert await waiting.ids() == ["a"]

    @pytest.mark.parametrize("end", ["by hand", "recovering"])
    @on_engine
    async def test_a_waiting_claim_is_woken_when_it_ends(
        self, fixture: EngineFixture, end: str
    ) -> None:
        await fixture.put(*"ab")
        await trip(fixture)
        fixture.clock.advance(2)
        [probe] = await fixture.take(9)
        waiting = WaitingClaim(fixture)
        await waiting.still_waits()
        if end == "by hand":
            await fixture.engine.set_outage("default", OPERATION, on=False)
        else:
            report = DependencyReport("default", 1, probe.claimed_at_us)
            await fixture.engine.report_outage([report])
        assert await waiting.ids() == ["b"]

    @on_engine
    async def test_limits_of_the_queue_hold_too(self, fixture: EngineFixture) -> None:
        await fixture.set_policy(paused=True)
        await fixture.set_policy("sms@api", rate=Rate(1, 60.0))
        await fixture.put("a")
        await trip(fixture)
        fixture.clock.advance(2)
        assert await fixture.take_ids() == []

    @on_engine
    async def test_keys_tenants_and_tasks_choose_the_probe_too(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("other", task="unknown")
        await fixture.put("first", "second", key="k")
        await trip(fixture)
        fixture.clock.advance(2)
        assert await fixture.take_ids(tasks=["t"]) == ["first"]


class SpareRules(Suite):
    """Failures of an outage cost no attempt."""

    @pytest.mark.parametrize("reason", ["upstream_5xx", "timeout", "connection"])
    @pytest.mark.parametrize("kind", ["retry", "last retry", "dead"])
    @on_engine
    async def test_a_failure_of_the_outage_is_not_charged(
        self, fixture: EngineFixture, reason: str, kind: str
    ) -> None:
        await fixture.put("a", max_attempts=1 if kind == "last retry" else 5)
        [job] = await fixture.take()
        await trip(fixture)
        failure = Failure.of(reason, "no answer")
        await fixture.settle(dead(job, failure) if kind == "dead" else retry(job, failure, 900))
        after = await fixture.job("a")
        assert (after.state, after.attempt, after.failure) == (State.PENDING, 0, failure)
        [attempt] = (await fixture.history("a")).attempts
        assert (attempt.ending, attempt.failure) == ("snooze", failure)

    @pytest.mark.parametrize("reason", ["rate_limited", "mapping_error", "unexpected"])
    @on_engine
    async def test_other_failures_are(self, fixture: EngineFixture, reason: str) -> None:
        await fixture.put("a")
        [job] = await fixture.take()
        await trip(fixture)
        await fixture.settle(retry(job, Failure.of(reason, "no")))
        assert (await fixture.job("a")).attempt == 1

    @on_engine
    async def test_failures_of_other_dependencies_are(self, fixture: EngineFixture) -> None:
        await fixture.put("a", queue="mail")
        [job] = await fixture.take(queues=["mail"])
        await trip(fixture, "api")
        await fixture.settle(retry(job, FAILURE))
        assert (await fixture.job("a")).attempt == 1

    @on_engine
    async def test_after_outage_max_seconds_they_are_charged_again(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a", "b", max_attempts=1)
        await trip(fixture)
        fixture.clock.advance(86_399)
        jobs = await fixture.take()
        await fixture.settle(retry(jobs[0], FAILURE))
        fixture.clock.advance(86_400)
        jobs = await fixture.take()
        await fixture.settle(retry(jobs[0], FAILURE))
        assert [await fixture.state("a"), await fixture.state("b")] == [State.PENDING, State.DEAD]

    @on_engine
    async def test_one_that_was_asked_to_stop_is_cancelled(self, fixture: EngineFixture) -> None:
        from holdfast.model.actions import CancelJobs  # noqa: PLC0415
        from holdfast.model.search import Filter  # noqa: PLC0415

        await fixture.put("a")
        [job] = await fixture.take()
        await trip(fixture)
        await fixture.engine.operate(CancelJobs(), Filter(ids=("a",)), OPERATION)
        await fixture.settle(retry(job, FAILURE))
        assert await fixture.state("a") is State.CANCELLED

    @on_engine
    async def test_expires_at_ends_a_job_that_waits(self, fixture: EngineFixture) -> None:
        await fixture.put("a", expires_seconds=60)
        await trip(fixture)
        fixture.clock.advance(61)
        reclaimed = await fixture.engine.reclaim()
        assert [job.id for job in reclaimed.expired] == ["a"]


class RecoveryRules(Suite):
    """From the first success to the end."""

    @on_engine
    async def test_the_success_of_a_probe_opens_it_gradually(self, fixture: EngineFixture) -> None:
        await fixture.put(*(f"j{n:02}" for n in range(60)))
        await trip(fixture)
        fixture.clock.advance(2)
        await recover(fixture, "j00")
        found = await outage_of(fixture)
        assert found is not None
        assert (found.phase, found.rate) == (OutagePhase.RECOVERING, 1.0)
        claimed: list[int] = []
        for _second in range(5):
            count = 0
            for _tenth in range(10):
                jobs = await fixture.take(99)
                count += len(jobs)
                await fixture.settle(*map(completed, jobs))
                fixture.clock.advance(0.1)
            claimed.append(count)
            await fixture.engine.report_outage([DependencyReport("default", count, 0)])
        assert claimed[0] == 1
        assert claimed == sorted(claimed)
        assert 10 <= claimed[-1] <= 18

    @on_engine
    async def test_the_success_of_a_job_that_was_under_way_tells_nothing(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put(*"ab")
        [job] = await fixture.take()
        fixture.clock.advance(1)
        await trip(fixture)
        await fixture.settle(completed(job))
        await fixture.engine.report_outage([DependencyReport("default", 1, job.claimed_at_us)])
        found = await outage_of(fixture)
        assert found is not None
        assert found.phase is OutagePhase.OUT

    @on_engine
    async def test_a_failure_while_it_recovers_halves_the_rate_and_costs_nothing(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put(*"abc", max_attempts=1)
        await trip(fixture)
        fixture.clock.advance(2)
        await recover(fixture, "a")
        [job] = await fixture.take(9)
        fixture.clock.advance(1)
        await fixture.settle(retry(job, FAILURE))
        found = await outage_of(fixture)
        assert found is not None
        assert (found.phase, found.rate) == (OutagePhase.RECOVERING, 0.5)
        assert ((await fixture.job("b")).attempt, (await fixture.job("b")).state) == (0, "pending")

    @on_engine
    async def test_a_recovery_without_waiting_work_ends_by_itself(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a")
        began = await trip(fixture)
        fixture.clock.advance(2)
        await recover(fixture, "a")
        fixture.clock.advance(10)
        assert (await fixture.engine.report_outage()).outages == []
        assert await fixture.engine.outages() == []
        [ended] = await fixture.engine.outages(ended=True)
        assert (ended.since_us, ended.phase) == (began.since_us, OutagePhase.ENDED)
        assert ended.ended_at_us == fixture.clock.now_us()
        await fixture.put(*"bcd")
        assert await fixture.take_ids() == ["b", "c", "d"]

    @on_engine
    async def test_a_health_check_is_asked_for_instead_of_risking_a_job(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a")
        checked = DependencyReport("default", tripped=True, has_health_check=True)
        assert (await fixture.engine.report_outage([checked])).health_checks == []
        fixture.clock.advance(2)
        assert await fixture.take_ids() == []
        able = DependencyReport("default", has_health_check=True)
        assert (await fixture.engine.report_outage([able])).health_checks == ["default"]
        assert (await fixture.engine.report_outage([able])).health_checks == [], "one is asked"
        sick = DependencyReport("default", has_health_check=True, healthy=False)
        assert (await fixture.engine.report_outage([sick])).health_checks == []
        fixture.clock.advance(4)
        assert (await fixture.engine.report_outage([able])).health_checks == ["default"]
        well = DependencyReport("default", has_health_check=True, healthy=True)
        [found] = (await fixture.engine.report_outage([well])).outages
        assert found.phase is OutagePhase.RECOVERING
        assert await fixture.take_ids() == ["a"]


class OutageRules(ProbeRules, SpareRules, RecoveryRules):
    """Outages by report and by hand."""

    @on_engine
    async def test_a_second_report_changes_nothing(self, fixture: EngineFixture) -> None:
        began = await trip(fixture)
        fixture.clock.advance(1)
        assert await trip(fixture) == began
        assert (began.by, began.error_reason, began.message) == (
            "",
            FAILURE.error_reason,
            FAILURE.message,
        )

    @on_engine
    async def test_without_a_trip_nothing_begins(self, fixture: EngineFixture) -> None:
        update = await fixture.engine.report_outage([DependencyReport("default", failure=FAILURE)])
        assert update.outages == []

    @on_engine
    async def test_a_person_starts_and_ends_one(self, fixture: EngineFixture) -> None:
        await fixture.put("a", queue="mail@api")
        begun = await fixture.engine.set_outage("api", STARTS, on=True)
        assert (begun.by, begun.why, begun.phase) == ("ann", "maintenance", OutagePhase.OUT)
        assert await fixture.take_ids(queues=API) == []
        fixture.clock.advance(1)
        ended = await fixture.engine.set_outage("api", STARTS, on=False)
        assert (ended.phase, ended.ended_by) == (OutagePhase.ENDED, "ann")
        assert await fixture.engine.outages(ended=True) == [ended]
        assert await fixture.take_ids(queues=API) == ["a"]
        audited = await fixture.engine.audited()
        assert [record.entry for record in audited] == [STARTS.audit[0]] * 2

    @on_engine
    async def test_what_a_person_asks_for_must_make_sense(self, fixture: EngineFixture) -> None:
        with pytest.raises(InvalidInput, match="is not out"):
            await fixture.engine.set_outage("api", OPERATION, on=False)
        await fixture.engine.set_outage("api", OPERATION, on=True)
        with pytest.raises(InvalidInput, match="is out already"):
            await fixture.engine.set_outage("api", OPERATION, on=True)
        with pytest.raises(InvalidInput):
            await fixture.engine.set_outage("", OPERATION, on=True)
        with pytest.raises(InvalidInput):
            await fixture.engine.set_outage("api", Attribution("", ""), on=True)
        with pytest.raises(AccessDenied):
            await fixture.engine.set_outage(
                "b", OPERATION, on=True, caller=Caller(tenant="default")
            )
        assert [one.dependency for one in await fixture.engine.outages()] == ["api"]

    @on_engine
    async def test_the_last_hundred_that_ended_are_remembered(self, fixture: EngineFixture) -> None:
        for _round in range(102):
            await fixture.engine.set_outage("api", OPERATION, on=True)
            fixture.clock.advance(1)
            await fixture.engine.set_outage("api", OPERATION, on=False)
        ended = await fixture.engine.outages(ended=True)
        assert len(ended) == 100
        assert [one.ended_at_us for one in ended] == sorted(one.ended_at_us for one in ended)
        assert ended[-1].ended_at_us == fixture.clock.now_us()

    @on_engine
    async def test_a_released_probe_is_replaced(self, fixture: EngineFixture) -> None:
        await fixture.put("a")
        await trip(fixture)
        fixture.clock.advance(2)
        [probe] = await fixture.take()
        await fixture.settle(release(probe))
        assert await fixture.take_ids() == []
        fixture.clock.advance(60)
        assert await fixture.take_ids() == ["a"]
