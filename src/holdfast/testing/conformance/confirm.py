"""Jobs that wait for a person."""

from __future__ import annotations

import pytest

from holdfast.model.access import Caller
from holdfast.model.actions import CancelJobs, ConfirmJobs, ReplayJobs
from holdfast.model.errors import IllegalTransition, InvalidInput, JobNotFound
from holdfast.model.history import NoteKind
from holdfast.model.job import Edit, State

from .fixture import OPERATION, EngineFixture, Suite, WaitingClaim, named, on_engine, wanted


class ConfirmRules(Suite):
    """Jobs that wait for a person."""

    @on_engine
    async def test_a_held_job_waits_until_a_person_confirms_it(self, desk: EngineFixture) -> None:
        await desk.put("a", hold=True)
        assert await desk.state("a") is State.BLOCKED
        assert await desk.take_ids() == []
        desk.clock.advance(7)
        done = await desk.engine.operate(ConfirmJobs(), named("a"), OPERATION)
        assert [(job.id, job.state) for job in done.jobs] == [("a", State.PENDING)]
        assert not done.jobs[0].ties.hold
        [note] = (await desk.history("a")).notes
        assert (note.kind, note.by, note.text) == (NoteKind.CONFIRM, "ann", OPERATION.why)
        assert note.at_us == desk.clock.now_us()
        await desk.work_off("a")

    @pytest.mark.parametrize("first", ["person", "jobs"])
    @on_engine
    async def test_a_person_and_other_jobs_are_both_waited_for(
        self, desk: EngineFixture, first: str
    ) -> None:
        await desk.put("a")
        await desk.put("b", depends_on=("a",), hold=True)
        person_first = first == "person"
        if person_first:
            [job] = (await desk.engine.operate(ConfirmJobs(), named("b"), OPERATION)).jobs
        else:
            await desk.work_off("a")
            job = await desk.job("b")
        assert job.state is State.BLOCKED
        assert (job.ties.hold, job.ties.waiting_for) == (
            not person_first,
            ("a",) if person_first else (),
        )
        if person_first:
            await desk.work_off("a")
        else:
            await desk.engine.operate(ConfirmJobs(), named("b"), OPERATION)
        await desk.work_off("b")

    @on_engine
    async def test_only_what_waits_for_a_person_is_confirmed(self, desk: EngineFixture) -> None:
        await desk.put("held", hold=True)
        await desk.put("pending")
        await desk.put("blocked", depends_on=("pending",))
        for other in ("pending", "blocked"):
            with pytest.raises(IllegalTransition) as refused:
                await desk.engine.operate(ConfirmJobs(), named("held", other), OPERATION)
            assert refused.value.job_id == other
            assert await desk.state("held") is State.BLOCKED
        await desk.engine.operate(ConfirmJobs(), named("held"), OPERATION)
        with pytest.raises(IllegalTransition):
            await desk.engine.operate(ConfirmJobs(), named("held"), OPERATION)
        with pytest.raises(JobNotFound):
            await desk.engine.operate(ConfirmJobs(), named("nobody"), OPERATION)

    @on_engine
    async def test_a_filter_confirms_what_waits_for_a_person_and_passes_over_the_rest(
        self, desk: EngineFixture
    ) -> None:
        await desk.put("a", queue="other")
        await desk.put("b1", "b2", "b3", depends_on=("a",))
        await desk.put("c1", "c2", "c3", hold=True)
        first = await desk.engine.operate(
            ConfirmJobs(), wanted(queues=("default",)), OPERATION, limit=2
        )
        assert ([job.id for job in first.jobs], first.more) == (["c1", "c2"], True)
        last = await desk.engine.operate(
            ConfirmJobs(), wanted(queues=("default",)), OPERATION, limit=2
        )
        assert ([job.id for job in last.jobs], last.more) == (["c3"], False)

    @on_engine
    async def test_a_foreign_job_is_not_confirmed(self, desk: EngineFixture) -> None:
        await desk.put("a", hold=True, scope="library:43")
        caller = Caller("default", ("library:42",))
        with pytest.raises(JobNotFound):
            await desk.engine.operate(ConfirmJobs(), named("a"), OPERATION, caller=caller)
        done = await desk.engine.operate(ConfirmJobs(), wanted(), OPERATION, caller=caller)
        assert done.jobs == []
        assert await desk.state("a") is State.BLOCKED

    @on_engine
    async def test_a_held_job_that_expires_waits_for_a_person_again_after_its_replay(
        self, desk: EngineFixture
    ) -> None:
        await desk.put("a", hold=True, expires_seconds=5)
        desk.clock.advance(5)
        assert [job.id for job in (await desk.engine.reclaim()).expired] == ["a"]
        await desk.engine.operate(ReplayJobs(fixed="no expiry"), named("a"), OPERATION)
        assert await desk.state("a") is State.BLOCKED
        await desk.engine.operate(ConfirmJobs(), named("a"), OPERATION)
        await desk.work_off("a")

    @on_engine
    async def test_a_held_job_can_be_edited_and_cancelled(self, desk: EngineFixture) -> None:
        await desk.put("a", "b", hold=True)
        await desk.engine.edit(await desk.job("a"), Edit(payload={"n": 2}), OPERATION)
        await desk.engine.operate(CancelJobs(), named("b"), OPERATION)
        await desk.engine.operate(ConfirmJobs(), named("a"), OPERATION)
        [job] = await desk.take(2)
        assert (job.id, job.arguments()) == ("a", {"n": 2})

    @on_engine
    async def test_a_waiting_claim_is_woken_by_a_confirmation(self, desk: EngineFixture) -> None:
        await desk.put("a", hold=True)
        waiting = WaitingClaim(desk)
        await waiting.still_waits()
        await desk.engine.operate(ConfirmJobs(), named("a"), OPERATION)
        assert await waiting.ids() == ["a"]

    @pytest.mark.parametrize("hold", [1, "yes", None])
    @on_engine
    async def test_a_hold_that_is_not_true_or_false_is_refused(
        self, desk: EngineFixture, hold: object
    ) -> None:
        with pytest.raises(InvalidInput) as refused:
            await desk.put("a", hold=hold, key="k")
        assert refused.value.field == "hold"
