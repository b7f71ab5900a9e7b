"""Editing jobs that are not running."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.engines.contract import EngineOptions
from holdfast.model.access import Caller
from holdfast.model.actions import ArchiveJobs, CancelJobs, PurgeJobs, ReplayJobs
from holdfast.model.errors import IllegalTransition, InvalidInput, JobNotFound, StaleVersion
from holdfast.model.history import NoteKind
from holdfast.model.job import Edit, State
from holdfast.model.outcome import retry

from .fixture import (
    FAILURE,
    OPERATION,
    EngineFixture,
    Suite,
    WaitingClaim,
    named,
    new_job,
    on_engine,
)


class EditRules(Suite):
    """What an edit changes, and what it does not."""

    @on_engine
    async def test_an_edit_raises_the_version_and_keeps_the_original_payload(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a")
        first = await fixture.job("a")
        job = await fixture.engine.edit(first, Edit(payload={"n": 2}), OPERATION)
        assert (job.version, job.arguments(), job.state) == (2, {"n": 2}, State.PENDING)
        assert job == await fixture.job("a")
        job = await fixture.engine.edit(first, Edit(max_attempts=9), OPERATION)
        assert (job.version, job.max_attempts, job.arguments()) == (3, 9, {"n": 2})
        notes = (await fixture.history("a")).notes
        assert [(note.kind, note.by, note.text) for note in notes] == [
            (NoteKind.EDIT, "ann", OPERATION.why)
        ] * 2
        assert [note.before for note in notes] == [b'{"n":1}', None]

    @on_engine
    async def test_max_attempts_cannot_be_less_than_a_job_has_used(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a", max_attempts=5)
        for _ in range(2):
            await fixture.settle(*(retry(one, FAILURE) for one in await fixture.take()))
        job = await fixture.job("a")
        with pytest.raises(InvalidInput, match="has used 2 attempts: give 3 or more"):
            await fixture.engine.edit(job, Edit(max_attempts=2), OPERATION)
        assert (await fixture.job("a")).max_attempts == 5
        await fixture.engine.edit(job, Edit(max_attempts=3), OPERATION)
        await fixture.dead_letter("a")
        await fixture.engine.edit(job, Edit(max_attempts=3), OPERATION)
        with pytest.raises(InvalidInput):
            await fixture.engine.edit(job, Edit(max_attempts=2), OPERATION)
        await fixture.engine.operate(ReplayJobs(), named("a"), OPERATION)
        await fixture.engine.edit(job, Edit(max_attempts=1), OPERATION)  # its budget is fresh
        [job] = await fixture.take()
        await fixture.settle(retry(job, FAILURE))
        assert await fixture.state("a") is State.DEAD

    @on_engine
    async def test_a_stale_version_is_refused_and_nothing_is_changed(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a")
        first = await fixture.job("a")
        current = await fixture.engine.edit(first, Edit(priority=1), OPERATION, version=1)
        with pytest.raises(StaleVersion) as refused:
            await fixture.engine.edit(first, Edit(priority=7), OPERATION, version=1)
        assert (refused.value.job_id, refused.value.expected) == ("a", 1)
        assert refused.value.version == 2
        assert await fixture.job("a") == current
        job = await fixture.engine.edit(first, Edit(priority=7), OPERATION, version=2)
        assert (job.priority, job.version) == (7, 3)

    @on_engine
    async def test_of_two_edits_at_once_one_is_stale(self, fixture: EngineFixture) -> None:
        await fixture.put("a")
        job = await fixture.job("a")
        answers = await asyncio.gather(
            *(
                fixture.engine.edit(job, Edit(priority=number), OPERATION, version=1)
                for number in (1, 2)
            ),
            return_exceptions=True,
        )
        assert sorted(type(answer).__name__ for answer in answers) == ["Job", "StaleVersion"]
        assert (await fixture.job("a")).version == 2

    @on_engine
    async def test_an_edited_priority_moves_the_job(self, fixture: EngineFixture) -> None:
        await fixture.put(*"abc")
        await fixture.engine.edit(await fixture.job("c"), Edit(priority=5), OPERATION)
        await fixture.engine.edit(await fixture.job("a"), Edit(priority=-5), OPERATION)
        assert await fixture.take_ids() == ["c", "b", "a"]

    @on_engine
    async def test_an_edited_time_moves_the_job(self, fixture: EngineFixture) -> None:
        await fixture.put("a")
        await fixture.put("b", delay_seconds=600)
        now_us = fixture.clock.now_us()
        later = Edit(run_at_us=now_us + 5_000_000)
        await fixture.engine.edit(await fixture.job("a"), later, OPERATION)
        sooner = await fixture.engine.edit(await fixture.job("b"), Edit(run_at_us=1), OPERATION)
        assert sooner.run_at_us == now_us, "an elapsed time means now"
        assert await fixture.take_ids() == ["b"]
        fixture.clock.advance(5)
        assert await fixture.take_ids() == ["a"]

    @on_engine
    async def test_a_waiting_claim_is_woken_by_an_edit_that_makes_a_job_due(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a", delay_seconds=600)
        waiting = WaitingClaim(fixture)
        await waiting.still_waits()
        await fixture.engine.edit(await fixture.job("a"), Edit(run_at_us=0), OPERATION)
        assert await waiting.ids() == ["a"]

    @on_engine
    async def test_an_edited_payload_does_not_move_the_job(self, fixture: EngineFixture) -> None:
        await fixture.put(*"abc")
        await fixture.engine.edit(await fixture.job("a"), Edit(payload={"n": 2}), OPERATION)
        assert await fixture.take_ids() == ["a", "b", "c"]

    @on_engine
    async def test_a_blocked_job_can_be_edited(self, fixture: EngineFixture) -> None:
        await fixture.put("a")
        await fixture.put("b", depends_on=("a",))
        job = await fixture.engine.edit(await fixture.job("b"), Edit(payload={"n": 2}), OPERATION)
        assert job.state is State.BLOCKED
        await fixture.complete("a")
        [job] = await fixture.take()
        assert (job.id, job.arguments()) == ("b", {"n": 2})

    @on_engine
    async def test_a_dead_job_is_edited_and_replayed_with_the_change(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put_dead("a")
        job = await fixture.engine.edit(await fixture.job("a"), Edit(payload={"n": 2}), OPERATION)
        assert (job.state, job.version) == (State.DEAD, 2)
        assert job == await fixture.job("a")
        assert (await fixture.history("a")).notes[0].before == b'{"n":1}'
        await fixture.engine.operate(ReplayJobs(), named("a"), OPERATION)
        [again] = await fixture.take()
        assert (again.arguments(), again.version) == ({"n": 2}, 2)

    @pytest.mark.parametrize("name", ["flying", "done", "gone", "aside"])
    @on_engine
    async def test_running_and_finished_jobs_cannot_be_edited(
        self, fixture: EngineFixture, name: str
    ) -> None:
        await fixture.put("flying", "done", "aside", "gone")
        await fixture.take()
        await fixture.complete("done")
        await fixture.dead_letter("aside")
        await fixture.engine.operate(ArchiveJobs(), named("aside"), OPERATION)
        await fixture.engine.operate(CancelJobs(), named("gone"), OPERATION)
        before = await fixture.job(name)
        with pytest.raises(IllegalTransition) as refused:
            await fixture.engine.edit(before, Edit(priority=5), OPERATION)
        assert refused.value.job_id == name
        assert await fixture.job(name) == before

    @pytest.mark.parametrize(
        ("changes", "field"),
        [
            (Edit(priority=40_000), "priority"),
            (Edit(max_attempts=0), "max_attempts"),
            (Edit(run_at_us=-1), "run_at_us"),
            (Edit(payload=b"[]"), "payload"),
            (Edit(payload={"x": "y" * 2_000}), "payload"),
            ({"priority": 5}, "changes"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_a_bad_edit_is_refused_and_nothing_is_changed(self, changes: Edit, field: str) -> None:
        async def scenario(fixture: EngineFixture) -> None:
            await fixture.put("a")
            before = await fixture.job("a")
            with pytest.raises(InvalidInput) as refused:
                await fixture.engine.edit(before, changes, OPERATION)
            assert refused.value.field == field
            assert await fixture.job("a") == before

        self.check(scenario, EngineOptions(max_payload_bytes=2_000))

    @on_engine
    async def test_an_unknown_or_unreachable_job_is_not_found(self, fixture: EngineFixture) -> None:
        await fixture.engine.enqueue([new_job(id="a", tenant="acme", scope="library:42")])
        [job] = await fixture.engine.get(["a"], tenant="acme")
        assert job is not None
        for caller in (Caller("other"), Caller("acme", ("library:43",))):
            with pytest.raises(JobNotFound):
                await fixture.engine.edit(job, Edit(priority=5), OPERATION, caller=caller)
        await fixture.engine.operate(CancelJobs(), named("a"), OPERATION)
        await fixture.engine.operate(PurgeJobs(), named("a"), OPERATION)
        with pytest.raises(JobNotFound):
            await fixture.engine.edit(job, Edit(priority=5), OPERATION)
