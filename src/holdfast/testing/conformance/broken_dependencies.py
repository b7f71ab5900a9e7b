"""Dependencies that do not complete, and their dependents."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.engines.contract import Counts
from holdfast.model.actions import ArchiveJobs, CancelJobs, PurgeJobs, ReplayJobs
from holdfast.model.errors import InvalidInput
from holdfast.model.job import Job, State
from holdfast.model.outcome import Outcome, cancelled, completed, dead

from .fixture import FAILURE, OPERATION, EngineFixture, Suite, named, on_engine

GONE = (State.CANCELLED, "dependency_cancelled")


class BrokenDependencyRules(Suite):
    """What happens to the dependents of a job that does not complete."""

    @on_engine
    async def test_dependents_of_a_dead_job_stay_blocked_until_its_replay_completes(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a")
        await fixture.put("b", depends_on=("a",))
        await fixture.put("c", depends_on=("b",))
        await fixture.dead_letter("a")
        assert [await fixture.state(one) for one in "bc"] == [State.BLOCKED] * 2
        await fixture.engine.operate(ReplayJobs(), named("a"), OPERATION)
        assert await fixture.state("b") is State.BLOCKED
        for one in "abc":
            await fixture.complete(one)

    @on_engine
    async def test_a_job_may_depend_on_a_dead_job(self, fixture: EngineFixture) -> None:
        await fixture.put_dead("a")
        await fixture.put("b", depends_on=("a",))
        assert await fixture.state("b") is State.BLOCKED
        await fixture.engine.operate(ReplayJobs(), named("a"), OPERATION)
        await fixture.complete("a")
        await fixture.complete("b")

    @pytest.mark.parametrize("end", ["cancelled", "cancel", "archive", "purge", "stopped", "lost"])
    @on_engine
    async def test_dependents_of_a_job_that_will_not_run_are_cancelled_with_it(
        self, fixture: EngineFixture, end: str
    ) -> None:
        await fixture.put("a")
        await fixture.put("b", depends_on=("a",))
        await fixture.put("c", depends_on=("b",), priority=5)
        await fixture.put("other")
        await fixture.put("d", depends_on=("c", "other"))
        await self._end(fixture, end)
        for one in "bcd":
            job = await fixture.job(one)
            assert (job.state, job.cancel_reason) == GONE
        assert await fixture.state("other") is State.PENDING

    @staticmethod
    async def _end(fixture: EngineFixture, end: str) -> None:
        engine = fixture.engine
        if end == "cancel":
            await engine.operate(CancelJobs(), named("a"), OPERATION)
            return
        [job] = await fixture.take()
        settles: dict[str, Callable[[Job], Outcome]] = {
            "cancelled": cancelled,
            "archive": lambda job: dead(job, FAILURE),
            "purge": lambda job: dead(job, FAILURE),
        }
        if end in settles:
            await fixture.settle(settles[end](job))
            assert await fixture.state("b") is (
                State.CANCELLED if end == "cancelled" else State.BLOCKED
            )
        if end == "archive":
            await engine.operate(ArchiveJobs(), named("a"), OPERATION)
        elif end == "purge":
            await engine.operate(PurgeJobs(), named("a"), OPERATION)
        elif end in ("stopped", "lost"):
            await engine.operate(CancelJobs(), named("a"), OPERATION)
            assert await fixture.state("b") is State.BLOCKED, "it may complete yet"
            if end == "lost":
                await fixture.expire_leases()
            else:
                await fixture.settle(cancelled(job))

    @on_engine
    async def test_one_of_several_dependencies_is_enough_to_cancel(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a", "b")
        await fixture.put("c", depends_on=("a", "b"))
        await fixture.complete("a")
        await fixture.engine.operate(CancelJobs(), named("b"), OPERATION)
        assert await fixture.state("c") is State.CANCELLED
        assert await fixture.counts() == Counts(completed=1, cancelled=2)

    @pytest.mark.parametrize("first_to_end", ["completed", "cancelled"])
    @on_engine
    async def test_dependencies_that_end_differently_in_one_call_cancel(
        self, fixture: EngineFixture, first_to_end: str
    ) -> None:
        await fixture.put("a", "b")
        await fixture.put("c", depends_on=("a", "b"))
        first, second = await fixture.take(2)
        outcomes = [completed(first), cancelled(second)]
        await fixture.settle(*(outcomes if first_to_end == "completed" else reversed(outcomes)))
        job = await fixture.job("c")
        assert (job.state, job.cancel_reason) == GONE

    @pytest.mark.parametrize("verb", ["cancel", "archive"])
    @on_engine
    async def test_a_dependency_that_will_not_run_is_refused(
        self, fixture: EngineFixture, verb: str
    ) -> None:
        if verb == "cancel":
            await fixture.put("a")
            await fixture.engine.operate(CancelJobs(), named("a"), OPERATION)
        else:
            await fixture.put_dead("a")
            await fixture.engine.operate(ArchiveJobs(), named("a"), OPERATION)
        with pytest.raises(InvalidInput) as refused:
            await fixture.put("b", depends_on=("a",))
        assert refused.value.field == "depends_on"
        assert await fixture.engine.get(["b"]) == [None]

    @on_engine
    async def test_a_blocked_job_expires_and_its_replay_waits_for_open_dependencies(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a", "b")
        await fixture.put("c", depends_on=("a", "b"), expires_seconds=5)
        fixture.clock.advance(5)
        [expired] = (await fixture.engine.reclaim()).expired
        assert (expired.id, expired.state) == ("c", State.DEAD)
        assert expired.failure is not None
        assert expired.failure.error_reason == "expired"
        await fixture.complete("a")
        assert await fixture.state("c") is State.DEAD
        await fixture.engine.operate(ReplayJobs(fixed="no expiry"), named("c"), OPERATION)
        job = await fixture.job("c")
        assert (job.state, job.ties.waiting_for) == (State.BLOCKED, ("b",))
        await fixture.complete("b")
        await fixture.complete("c")

    @on_engine
    async def test_a_replay_does_not_wait_for_a_new_job_with_the_id_of_a_dependency(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a", delay_seconds=600)
        await fixture.put("b", depends_on=("a",), expires_seconds=5)
        fixture.clock.advance(5)
        await fixture.engine.reclaim()
        await fixture.engine.operate(CancelJobs(), named("a"), OPERATION)
        await fixture.engine.operate(PurgeJobs(), named("a"), OPERATION)
        await fixture.put("a", depends_on=("b",))
        await fixture.engine.operate(ReplayJobs(fixed="no expiry"), named("b"), OPERATION)
        await fixture.complete("b")
        await fixture.complete("a")
