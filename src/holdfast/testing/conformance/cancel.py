"""Cancelling: waiting jobs end at once, running jobs are asked to stop."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.engines.contract import AdminResult, Counts, Renewal
from holdfast.model.access import Caller
from holdfast.model.actions import ArchiveJobs, CancelJobs, ReplayJobs
from holdfast.model.errors import IllegalTransition, JobNotFound, LeaseLost
from holdfast.model.history import NoteKind
from holdfast.model.job import Job, State
from holdfast.model.outcome import Outcome, cancelled, completed, dead, lost, release, retry, snooze

from .fixture import FAILURE, OPERATION, EngineFixture, Suite, named, on_engine, wanted

STOPS: dict[str, Callable[[Job], Outcome]] = {
    "cancelled": cancelled,
    "retry": lambda job: retry(job, FAILURE),
    "release": release,
    "snooze": lambda job: snooze(job, 5),
    "lost": lambda job: lost(job, "killed"),
}


class CancelRules(Suite):
    """Which jobs end at once, which are asked to stop, and which finish anyway."""

    @pytest.mark.parametrize(
        "fields", [{}, {"delay_seconds": 60}, {"hold": True}, {"key": "k"}], ids=str
    )
    @on_engine
    async def test_a_job_that_is_not_running_is_cancelled_at_once(
        self, fixture: EngineFixture, fields: dict[str, object]
    ) -> None:
        await fixture.put("a", **fields)
        done = await fixture.engine.operate(CancelJobs(), named("a"), OPERATION)
        job = await fixture.job("a")
        assert done == AdminResult([job])
        assert (job.state, job.cancel_reason) == (State.CANCELLED, OPERATION.why)
        assert job.finished_at_us == fixture.clock.now_us()
        fixture.clock.advance(60)
        assert await fixture.take_ids() == []
        [note] = (await fixture.history("a")).notes
        assert (note.kind, note.by, note.text) == (NoteKind.CANCEL, "ann", OPERATION.why)

    @on_engine
    async def test_a_job_in_flight_is_asked_to_stop_at_its_next_heartbeat(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a", "b")
        job, other = await fixture.take(2)
        assert not job.stop_requested
        done = await fixture.engine.operate(CancelJobs(), named("a"), OPERATION)
        assert [(one.state, one.stop_requested) for one in done.jobs] == [(State.IN_FLIGHT, True)]
        until_us = fixture.clock.now_us() + 60_000_000
        renewed = await fixture.engine.extend([job, other], lease_seconds=60)
        assert renewed == [Renewal(until_us, True), Renewal(until_us, False)]  # noqa: FBT003
        [note] = (await fixture.history("a")).notes
        assert (note.kind, note.by) == (NoteKind.CANCEL, "ann")

    @on_engine
    async def test_completed_wins_over_a_request_to_stop(self, fixture: EngineFixture) -> None:
        await fixture.put("a")
        await fixture.put("b", depends_on=("a",))
        [job] = await fixture.take()
        await fixture.engine.operate(CancelJobs(), named("a"), OPERATION)
        assert await fixture.settle(completed(job)) == [None]
        assert await fixture.state("a") is State.COMPLETED
        assert await fixture.state("b") is State.PENDING

    @on_engine
    async def test_a_permanent_failure_wins_over_a_request_to_stop(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a")
        [job] = await fixture.take()
        await fixture.engine.operate(CancelJobs(), named("a"), OPERATION)
        await fixture.settle(dead(job, FAILURE))
        assert await fixture.state("a") is State.DEAD
        [again] = (await fixture.engine.operate(ReplayJobs(), named("a"), OPERATION)).jobs
        assert (again.stop_requested, again.cancel_reason) == (False, "")

    @pytest.mark.parametrize("end", STOPS)
    @on_engine
    async def test_a_job_asked_to_stop_is_cancelled_instead_of_rescheduled(
        self, fixture: EngineFixture, end: str
    ) -> None:
        await fixture.put("a")
        [job] = await fixture.take()
        await fixture.engine.operate(CancelJobs(), named("a"), OPERATION)
        fixture.clock.advance(2)
        assert await fixture.settle(STOPS[end](job)) == [None]
        gone = await fixture.job("a")
        assert (gone.state, gone.cancel_reason) == (State.CANCELLED, OPERATION.why)
        assert await fixture.counts() == Counts(cancelled=1)
        [attempt] = (await fixture.history("a")).attempts
        assert attempt.ending == "cancelled"

    @pytest.mark.parametrize("how", ["ran out", "forced"])
    @on_engine
    async def test_a_job_asked_to_stop_is_cancelled_when_its_lease_ends(
        self, fixture: EngineFixture, how: str
    ) -> None:
        await fixture.put("a")
        [job] = await fixture.take()
        await fixture.engine.operate(CancelJobs(), named("a"), OPERATION)
        if how == "forced":
            [lost_job] = (await fixture.engine.reclaim(forced=[job])).lost
        else:
            [lost_job] = (await fixture.expire_leases()).lost
        assert (lost_job.state, lost_job.losses) == (State.CANCELLED, 0)
        assert isinstance((await fixture.settle(completed(job)))[0], LeaseLost)

    @on_engine
    async def test_cancelling_twice_is_harmless(self, fixture: EngineFixture) -> None:
        await fixture.put("a")
        await fixture.take()
        await fixture.engine.operate(CancelJobs(), named("a"), OPERATION)
        assert await fixture.engine.operate(CancelJobs(), named("a"), OPERATION) == AdminResult(
            [], kept=1
        )
        assert len((await fixture.history("a")).notes) == 1

    @pytest.mark.parametrize("state", ["done", "dead", "gone", "aside"])
    @on_engine
    async def test_what_is_finished_cannot_be_cancelled(
        self, fixture: EngineFixture, state: str
    ) -> None:
        await fixture.put("done", "dead", "aside", "gone", "open")
        await fixture.complete("done")
        await fixture.dead_letter("dead", "aside")
        await fixture.engine.operate(ArchiveJobs(), named("aside"), OPERATION)
        await fixture.engine.operate(CancelJobs(), named("gone"), OPERATION)
        before = await fixture.engine.get([state, "open"])
        with pytest.raises(IllegalTransition) as refused:
            await fixture.engine.operate(CancelJobs(), named(state, "open"), OPERATION)
        assert refused.value.job_id == state
        assert await fixture.engine.get([state, "open"]) == before

    @on_engine
    async def test_a_filter_cancels_jobs_and_their_dependents(self, fixture: EngineFixture) -> None:
        await fixture.put("a", "b", "c", queue="mail")
        await fixture.put("d", depends_on=("b",))
        await fixture.put("e", depends_on=("d",))
        await fixture.put("f")
        await fixture.put_dead("dead", queue="slow")
        [flying] = await fixture.take(queues=["mail"])
        done = await fixture.engine.operate(CancelJobs(), wanted(queues=("mail",)), OPERATION)
        assert [(job.id, job.state) for job in done.jobs] == [
            ("a", State.IN_FLIGHT),
            ("b", State.CANCELLED),
            ("c", State.CANCELLED),
        ]
        assert await fixture.find(states=(State.CANCELLED,)) == ["b", "c", "d", "e"]
        assert (await fixture.job("e")).cancel_reason == "dependency_cancelled"
        await fixture.settle(cancelled(flying))
        assert await fixture.counts() == Counts(pending=1, cancelled=2)

    @on_engine
    async def test_a_job_and_its_dependent_are_cancelled_in_one_call(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a")
        await fixture.put("b", depends_on=("a",))
        done = await fixture.engine.operate(CancelJobs(), wanted(), OPERATION)
        assert [job.cancel_reason for job in done.jobs] == [OPERATION.why] * 2
        assert await fixture.counts() == Counts(cancelled=2)

    @on_engine
    async def test_repeating_a_limited_cancel_reaches_every_job(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put(*"abcdef")
        await fixture.take(3)
        calls = 0
        while (await fixture.engine.operate(CancelJobs(), wanted(), OPERATION, limit=2)).more:
            calls += 1
            assert calls < 9, "the same ones are picked again and again"
        assert await fixture.counts() == Counts(in_flight=3, cancelled=3)

    @on_engine
    async def test_a_foreign_job_is_not_cancelled(self, fixture: EngineFixture) -> None:
        await fixture.put("a", tenant="acme")
        await fixture.put("b", tenant="other")
        caller = Caller("other")
        with pytest.raises(JobNotFound):
            await fixture.engine.operate(CancelJobs(), named("a"), OPERATION, caller=caller)
        done = await fixture.engine.operate(CancelJobs(), wanted(), OPERATION, caller=caller)
        assert [job.id for job in done.jobs] == ["b"]
        assert await fixture.find(states=(State.PENDING,)) == ["a"]

    @on_engine
    async def test_the_unique_key_of_a_cancelled_job_is_free(self, fixture: EngineFixture) -> None:
        await fixture.put("a", unique="k")
        await fixture.engine.operate(CancelJobs(), named("a"), OPERATION)
        assert await fixture.put("b", unique="k") == ["b"]
