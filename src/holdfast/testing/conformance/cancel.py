"""Cancelling: what waits is gone, what runs is asked to stop."""

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
    """Who is cancelled at once, who is asked, and who finishes all the same."""

    @pytest.mark.parametrize(
        "fields", [{}, {"delay_seconds": 60}, {"hold": True}, {"key": "k"}], ids=str
    )
    @on_engine
    async def test_a_job_that_nobody_runs_is_cancelled_at_once(
        self, desk: EngineFixture, fields: dict[str, object]
    ) -> None:
        await desk.put("a", **fields)
        done = await desk.engine.operate(CancelJobs(), named("a"), OPERATION)
        job = await desk.job("a")
        assert done == AdminResult([job])
        assert (job.state, job.cancel_reason) == (State.CANCELLED, OPERATION.why)
        assert job.finished_at_us == desk.clock.now_us()
        desk.clock.advance(60)
        assert await desk.take_ids() == []
        [note] = (await desk.history("a")).notes
        assert (note.kind, note.by, note.text) == (NoteKind.CANCEL, "ann", OPERATION.why)

    @on_engine
    async def test_a_job_in_flight_is_asked_to_stop_and_its_heartbeat_says_so(
        self, desk: EngineFixture
    ) -> None:
        await desk.put("a", "b")
        job, other = await desk.take(2)
        assert not job.stop_requested
        done = await desk.engine.operate(CancelJobs(), named("a"), OPERATION)
        assert [(one.state, one.stop_requested) for one in done.jobs] == [(State.IN_FLIGHT, True)]
        until_us = desk.clock.now_us() + 60_000_000
        renewed = await desk.engine.extend([job, other], lease_seconds=60)
        assert renewed == [Renewal(until_us, True), Renewal(until_us, False)]  # noqa: FBT003
        [note] = (await desk.history("a")).notes
        assert (note.kind, note.by) == (NoteKind.CANCEL, "ann")

    @on_engine
    async def test_completed_wins_over_a_request_to_stop(self, desk: EngineFixture) -> None:
        await desk.put("a")
        await desk.put("b", depends_on=("a",))
        [job] = await desk.take()
        await desk.engine.operate(CancelJobs(), named("a"), OPERATION)
        assert await desk.settle(completed(job)) == [None]
        assert await desk.state("a") is State.COMPLETED
        assert await desk.state("b") is State.PENDING

    @on_engine
    async def test_a_failure_for_good_is_recorded_as_such(self, desk: EngineFixture) -> None:
        await desk.put("a")
        [job] = await desk.take()
        await desk.engine.operate(CancelJobs(), named("a"), OPERATION)
        await desk.settle(dead(job, FAILURE))
        assert await desk.state("a") is State.DEAD
        [again] = (await desk.engine.operate(ReplayJobs(), named("a"), OPERATION)).jobs
        assert (again.stop_requested, again.cancel_reason) == (False, "")

    @pytest.mark.parametrize("end", STOPS)
    @on_engine
    async def test_one_asked_to_stop_ends_cancelled_where_it_would_have_come_back(
        self, desk: EngineFixture, end: str
    ) -> None:
        await desk.put("a")
        [job] = await desk.take()
        await desk.engine.operate(CancelJobs(), named("a"), OPERATION)
        desk.clock.advance(2)
        assert await desk.settle(STOPS[end](job)) == [None]
        gone = await desk.job("a")
        assert (gone.state, gone.cancel_reason) == (State.CANCELLED, OPERATION.why)
        assert await desk.counts() == Counts(cancelled=1)
        [attempt] = (await desk.history("a")).attempts
        assert attempt.ending == "cancelled"

    @pytest.mark.parametrize("how", ["ran out", "forced"])
    @on_engine
    async def test_one_asked_to_stop_whose_lease_ends_is_cancelled(
        self, desk: EngineFixture, how: str
    ) -> None:
        await desk.put("a")
        [job] = await desk.take()
        await desk.engine.operate(CancelJobs(), named("a"), OPERATION)
        if how == "forced":
            [lost_job] = (await desk.engine.reclaim(forced=[job])).lost
        else:
            [lost_job] = (await desk.lose()).lost
        assert (lost_job.state, lost_job.losses) == (State.CANCELLED, 0)
        assert isinstance((await desk.settle(completed(job)))[0], LeaseLost)

    @on_engine
    async def test_asking_twice_is_harmless(self, desk: EngineFixture) -> None:
        await desk.put("a")
        await desk.take()
        await desk.engine.operate(CancelJobs(), named("a"), OPERATION)
        assert await desk.engine.operate(CancelJobs(), named("a"), OPERATION) == AdminResult(
            [], kept=1
        )
        assert len((await desk.history("a")).notes) == 1

    @pytest.mark.parametrize("state", ["done", "dead", "gone", "aside"])
    @on_engine
    async def test_what_is_finished_cannot_be_cancelled(
        self, desk: EngineFixture, state: str
    ) -> None:
        await desk.put("done", "dead", "aside", "gone", "open")
        await desk.work_off("done")
        await desk.bury("dead", "aside")
        await desk.engine.operate(ArchiveJobs(), named("aside"), OPERATION)
        await desk.engine.operate(CancelJobs(), named("gone"), OPERATION)
        before = await desk.engine.get([state, "open"])
        with pytest.raises(IllegalTransition) as refused:
            await desk.engine.operate(CancelJobs(), named(state, "open"), OPERATION)
        assert refused.value.job_id == state
        assert await desk.engine.get([state, "open"]) == before

    @on_engine
    async def test_many_are_cancelled_by_filter_with_what_waits_for_them(
        self, desk: EngineFixture
    ) -> None:
        await desk.put("a", "b", "c", queue="mail")
        await desk.put("d", depends_on=("b",))
        await desk.put("e", depends_on=("d",))
        await desk.put("f")
        await desk.put_dead("dead", queue="slow")
        [flying] = await desk.take(queues=["mail"])
        done = await desk.engine.operate(CancelJobs(), wanted(queues=("mail",)), OPERATION)
        assert [(job.id, job.state) for job in done.jobs] == [
            ("a", State.IN_FLIGHT),
            ("b", State.CANCELLED),
            ("c", State.CANCELLED),
        ]
        assert await desk.find(states=(State.CANCELLED,)) == ["b", "c", "d", "e"]
        assert (await desk.job("e")).cancel_reason == "dependency_cancelled"
        await desk.settle(cancelled(flying))
        assert await desk.counts() == Counts(pending=1, cancelled=2)

    @on_engine
    async def test_a_job_and_what_waits_for_it_are_cancelled_in_one_call(
        self, desk: EngineFixture
    ) -> None:
        await desk.put("a")
        await desk.put("b", depends_on=("a",))
        done = await desk.engine.operate(CancelJobs(), wanted(), OPERATION)
        assert [job.cancel_reason for job in done.jobs] == [OPERATION.why] * 2
        assert await desk.counts() == Counts(cancelled=2)

    @on_engine
    async def test_calling_again_while_there_is_more_reaches_everything(
        self, desk: EngineFixture
    ) -> None:
        await desk.put(*"abcdef")
        await desk.take(3)
        calls = 0
        while (await desk.engine.operate(CancelJobs(), wanted(), OPERATION, limit=2)).more:
            calls += 1
            assert calls < 9, "the same ones are picked again and again"
        assert await desk.counts() == Counts(in_flight=3, cancelled=3)

    @on_engine
    async def test_a_foreign_job_is_not_cancelled(self, desk: EngineFixture) -> None:
        await desk.put("a", tenant="acme")
        await desk.put("b", tenant="other")
        caller = Caller("other")
        with pytest.raises(JobNotFound):
            await desk.engine.operate(CancelJobs(), named("a"), OPERATION, caller=caller)
        done = await desk.engine.operate(CancelJobs(), wanted(), OPERATION, caller=caller)
        assert [job.id for job in done.jobs] == ["b"]
        assert await desk.find(states=(State.PENDING,)) == ["a"]

    @on_engine
    async def test_the_unique_key_of_a_cancelled_job_is_free(self, desk: EngineFixture) -> None:
        await desk.put("a", unique="k")
        await desk.engine.operate(CancelJobs(), named("a"), OPERATION)
        assert await desk.put("b", unique="k") == ["b"]
