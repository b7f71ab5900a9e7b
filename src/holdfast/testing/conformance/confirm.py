"""Held jobs, which wait for confirmation."""

from __future__ import annotations

import pytest

from holdfast.model.access import Caller
from holdfast.model.actions import CancelJobs, ConfirmJobs, ReplayJobs
from holdfast.model.errors import IllegalTransition, InvalidInput, JobNotFound
from holdfast.model.history import NoteKind
from holdfast.model.job import Edit, State

from .fixture import OPERATION, EngineFixture, Suite, WaitingClaim, named, on_engine, wanted


class ConfirmRules(Suite):
    """Held jobs, which wait for confirmation."""

    @on_engine
    async def test_a_held_job_waits_until_a_person_confirms_it(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a", hold=True)
        assert await fixture.state("a") is State.BLOCKED
        assert await fixture.take_ids() == []
        fixture.clock.advance(7)
        done = await fixture.engine.operate(ConfirmJobs(), named("a"), OPERATION)
        assert [(job.id, job.state) for job in done.jobs] == [("a", State.PENDING)]
        assert not done.jobs[0].ties.hold
        [note] = (await fixture.history("a")).notes
        assert (note.kind, note.by, note.text) == (NoteKind.CONFIRM, "ann", OPERATION.why)
        assert note.at_us == fixture.clock.now_us()
        await fixture.complete("a")

    @pytest.mark.parametrize("first", ["person", "jobs"])
    @on_engine
    async def test_a_held_job_waits_for_confirmation_and_dependencies(
        self, fixture: EngineFixture, first: str
    ) -> None:
        await fixture.put("a")
        await fixture.put("b", depends_on=("a",), hold=True)
        person_first = first == "person"
        if person_first:
            [job] = (await fixture.engine.operate(ConfirmJobs(), named("b"), OPERATION)).jobs
        else:
            await fixture.complete("a")
            job = await fixture.job("b")
        assert job.state is State.BLOCKED
        assert (job.ties.hold, job.ties.waiting_for) == (
            not person_first,
            ("a",) if person_first else (),
        )
        if person_first:
            await fixture.complete("a")
        else:
            await fixture.engine.operate(ConfirmJobs(), named("b"), OPERATION)
        await fixture.complete("b")

    @on_engine
    async def test_only_a_held_job_can_be_confirmed(self, fixture: EngineFixture) -> None:
        await fixture.put("held", hold=True)
        await fixture.put("pending")
        await fixture.put("blocked", depends_on=("pending",))
        for other in ("pending", "blocked"):
            with pytest.raises(IllegalTransition) as refused:
                await fixture.engine.operate(ConfirmJobs(), named("held", other), OPERATION)
            assert refused.value.job_id == other
            assert await fixture.state("held") is State.BLOCKED
        await fixture.engine.operate(ConfirmJobs(), named("held"), OPERATION)
        with pytest.raises(IllegalTransition):
            await fixture.engine.operate(ConfirmJobs(), named("held"), OPERATION)
        with pytest.raises(JobNotFound):
            await fixture.engine.operate(ConfirmJobs(), named("nobody"), OPERATION)

    @on_engine
    async def test_a_filter_confirms_held_jobs_and_skips_the_rest(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a", queue="other")
        await fixture.put("b1", "b2", "b3", depends_on=("a",))
        await fixture.put("c1", "c2", "c3", hold=True)
        first = await fixture.engine.operate(
            ConfirmJobs(), wanted(queues=("default",)), OPERATION, limit=2
        )
        assert ([job.id for job in first.jobs], first.more) == (["c1", "c2"], True)
        last = await fixture.engine.operate(
            ConfirmJobs(), wanted(queues=("default",)), OPERATION, limit=2
        )
        assert ([job.id for job in last.jobs], last.more) == (["c3"], False)

    @on_engine
    async def test_a_foreign_job_is_not_confirmed(self, fixture: EngineFixture) -> None:
        await fixture.put("a", hold=True, scope="library:43")
        caller = Caller("default", ("library:42",))
        with pytest.raises(JobNotFound):
            await fixture.engine.operate(ConfirmJobs(), named("a"), OPERATION, caller=caller)
        done = await fixture.engine.operate(ConfirmJobs(), wanted(), OPERATION, caller=caller)
        assert done.jobs == []
        assert await fixture.state("a") is State.BLOCKED

    @on_engine
    async def test_a_held_job_that_expired_is_held_again_after_its_replay(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a", hold=True, expires_seconds=5)
        fixture.clock.advance(5)
        assert [job.id for job in (await fixture.engine.reclaim()).expired] == ["a"]
        await fixture.engine.operate(ReplayJobs(fixed="no expiry"), named("a"), OPERATION)
        assert await fixture.state("a") is State.BLOCKED
        await fixture.engine.operate(ConfirmJobs(), named("a"), OPERATION)
        await fixture.complete("a")

    @on_engine
    async def test_a_held_job_can_be_edited_and_cancelled(self, fixture: EngineFixture) -> None:
        await fixture.put("a", "b", hold=True)
        await fixture.engine.edit(await fixture.job("a"), Edit(payload={"n": 2}), OPERATION)
        await fixture.engine.operate(CancelJobs(), named("b"), OPERATION)
        await fixture.engine.operate(ConfirmJobs(), named("a"), OPERATION)
        [job] = await fixture.take(2)
        assert (job.id, job.arguments()) == ("a", {"n": 2})

    @on_engine
    async def test_a_waiting_claim_is_woken_by_a_confirmation(self, fixture: EngineFixture) -> None:
        await fixture.put("a", hold=True)
        waiting = WaitingClaim(fixture)
        await waiting.still_waits()
        await fixture.engine.operate(ConfirmJobs(), named("a"), OPERATION)
        assert await waiting.ids() == ["a"]

    @pytest.mark.parametrize("hold", [1, "yes", None])
    @on_engine
    async def test_a_hold_that_is_not_true_or_false_is_refused(
        self, fixture: EngineFixture, hold: object
    ) -> None:
        with pytest.raises(InvalidInput) as refused:
            await fixture.put("a", hold=hold, key="k")
        assert refused.value.field == "hold"
