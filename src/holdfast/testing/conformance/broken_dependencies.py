"""Dependencies that do not complete: what becomes of those that wait for them."""

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
    """What becomes of those that wait for what does not complete."""

    @on_engine
    async def test_what_waits_for_a_dead_job_stays_blocked_until_its_replay_is_completed(
        self, desk: EngineFixture
    ) -> None:
        await desk.put("a")
        await desk.put("b", depends_on=("a",))
        await desk.put("c", depends_on=("b",))
        await desk.bury("a")
        assert [await desk.state(one) for one in "bc"] == [State.BLOCKED] * 2
        await desk.engine.operate(ReplayJobs(), named("a"), OPERATION)
        assert await desk.state("b") is State.BLOCKED
        for one in "abc":
            await desk.work_off(one)

    @on_engine
    async def test_a_job_may_be_made_to_wait_for_a_dead_one(self, desk: EngineFixture) -> None:
        await desk.put_dead("a")
        await desk.put("b", depends_on=("a",))
        assert await desk.state("b") is State.BLOCKED
        await desk.engine.operate(ReplayJobs(), named("a"), OPERATION)
        await desk.work_off("a")
        await desk.work_off("b")

    @pytest.mark.parametrize("end", ["cancelled", "cancel", "archive", "purge", "stopped", "lost"])
    @on_engine
    async def test_what_waits_for_a_job_that_will_not_run_is_cancelled_with_it(
        self, desk: EngineFixture, end: str
    ) -> None:
        await desk.put("a")
        await desk.put("b", depends_on=("a",))
        await desk.put("c", depends_on=("b",), priority=5)
        await desk.put("other")
        await desk.put("d", depends_on=("c", "other"))
        await self._end(desk, end)
        for one in "bcd":
            job = await desk.job(one)
            assert (job.state, job.cancel_reason) == GONE
        assert await desk.state("other") is State.PENDING

    @staticmethod
    async def _end(desk: EngineFixture, end: str) -> None:
        engine = desk.engine
        if end == "cancel":
            await engine.operate(CancelJobs(), named("a"), OPERATION)
            return
        [job] = await desk.take()
        settles: dict[str, Callable[[Job], Outcome]] = {
            "cancelled": cancelled,
            "archive": lambda job: dead(job, FAILURE),
            "purge": lambda job: dead(job, FAILURE),
        }
        if end in settles:
            await desk.settle(settles[end](job))
            assert await desk.state("b") is (
                State.CANCELLED if end == "cancelled" else State.BLOCKED
            )
        if end == "archive":
            await engine.operate(ArchiveJobs(), named("a"), OPERATION)
        elif end == "purge":
            await engine.operate(PurgeJobs(), named("a"), OPERATION)
        elif end in ("stopped", "lost"):
            await engine.operate(CancelJobs(), named("a"), OPERATION)
            assert await desk.state("b") is State.BLOCKED, "it may complete yet"
            if end == "lost":
                await desk.lose()
            else:
                await desk.settle(cancelled(job))

    @on_engine
    async def test_one_of_several_dependencies_is_enough_to_cancel(
        self, desk: EngineFixture
    ) -> None:
        await desk.put("a", "b")
        await desk.put("c", depends_on=("a", "b"))
        await desk.work_off("a")
        await desk.engine.operate(CancelJobs(), named("b"), OPERATION)
        assert await desk.state("c") is State.CANCELLED
        assert await desk.counts() == Counts(completed=1, cancelled=2)

    @pytest.mark.parametrize("first_to_end", ["completed", "cancelled"])
    @on_engine
    async def test_dependencies_that_end_differently_in_one_call_cancel(
        self, desk: EngineFixture, first_to_end: str
    ) -> None:
        await desk.put("a", "b")
        await desk.put("c", depends_on=("a", "b"))
        first, second = await desk.take(2)
        outcomes = [completed(first), cancelled(second)]
        await desk.settle(*(outcomes if first_to_end == "completed" else reversed(outcomes)))
        job = await desk.job("c")
        assert (job.state, job.cancel_reason) == GONE

    @pytest.mark.parametrize("verb", ["cancel", "archive"])
    @on_engine
    async def test_nothing_can_be_made_to_wait_for_what_will_not_run(
        self, desk: EngineFixture, verb: str
    ) -> None:
        if verb == "cancel":
            await desk.put("a")
            await desk.engine.operate(CancelJobs(), named("a"), OPERATION)
        else:
            await desk.put_dead("a")
            await desk.engine.operate(ArchiveJobs(), named("a"), OPERATION)
        with pytest.raises(InvalidInput) as refused:
            await desk.put("b", depends_on=("a",))
        assert refused.value.field == "depends_on"
        assert await desk.engine.get(["b"]) == [None]

    @on_engine
    async def test_a_blocked_job_expires_and_its_replay_waits_for_what_is_still_open(
        self, desk: EngineFixture
    ) -> None:
        await desk.put("a", "b")
        await desk.put("c", depends_on=("a", "b"), expires_seconds=5)
        desk.clock.advance(5)
        [expired] = (await desk.engine.reclaim()).expired
        assert (expired.id, expired.state) == ("c", State.DEAD)
        assert expired.failure is not None
        assert expired.failure.error_reason == "expired"
        await desk.work_off("a")
        assert await desk.state("c") is State.DEAD
        await desk.engine.operate(ReplayJobs(fixed="no expiry"), named("c"), OPERATION)
        job = await desk.job("c")
        assert (job.state, job.ties.waiting_for) == (State.BLOCKED, ("b",))
        await desk.work_off("b")
        await desk.work_off("c")

    @on_engine
    async def test_a_replay_does_not_wait_for_another_job_that_has_got_the_id(
        self, desk: EngineFixture
    ) -> None:
        await desk.put("a", delay_seconds=600)
        await desk.put("b", depends_on=("a",), expires_seconds=5)
        desk.clock.advance(5)
        await desk.engine.reclaim()
        await desk.engine.operate(CancelJobs(), named("a"), OPERATION)
        await desk.engine.operate(PurgeJobs(), named("a"), OPERATION)
        await desk.put("a", depends_on=("b",))
        await desk.engine.operate(ReplayJobs(fixed="no expiry"), named("b"), OPERATION)
        await desk.work_off("b")
        await desk.work_off("a")
