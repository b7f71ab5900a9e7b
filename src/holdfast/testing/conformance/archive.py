"""Archive, restore, purge."""

from __future__ import annotations

import pytest

from holdfast.engines.contract import AdminResult, Counts
from holdfast.model.access import Caller
from holdfast.model.actions import ArchiveJobs, CancelJobs, NoteJobs, PurgeJobs, RestoreJobs
from holdfast.model.errors import IllegalTransition, JobNotFound
from holdfast.model.job import State

from .fixture import OPERATION, EngineFixture, Suite, named, on_engine, wanted


class ArchiveRules(Suite):
    """Archiving and restoring dead letters."""

    @on_engine
    async def test_archive_and_restore_leave_a_job_unchanged(self, fixture: EngineFixture) -> None:
        await fixture.put_dead("a")
        before = await fixture.job("a")
        fixture.clock.advance(100)
        done = await fixture.engine.operate(ArchiveJobs(), named("a"), OPERATION)
        assert [job.state for job in done.jobs] == [State.ARCHIVED]
        assert await fixture.counts() == Counts(archived=1)
        assert done.jobs == [await fixture.job("a")]
        fixture.clock.advance(100)
        done = await fixture.engine.operate(RestoreJobs(), named("a"), OPERATION)
        assert done.jobs == [before] == [await fixture.job("a")]
        assert await fixture.counts() == Counts(dead=1)

    @on_engine
    async def test_an_archived_job_is_kept_and_its_id_refused_for_good(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put_dead("a")
        await fixture.engine.operate(ArchiveJobs(), named("a"), OPERATION)
        fixture.clock.advance(10_000)
        assert await fixture.state("a") is State.ARCHIVED

    @pytest.mark.parametrize("other", ["open", "flying", "done", "aside"])
    @on_engine
    async def test_only_what_is_dead_is_archived(self, fixture: EngineFixture, other: str) -> None:
        await _one_of_each(fixture)
        with pytest.raises(IllegalTransition) as refused:
            await fixture.engine.operate(ArchiveJobs(), named("dead", other), OPERATION)
        assert (refused.value.job_id, refused.value.move) == (other, "archive")
        assert await fixture.state("dead") is State.DEAD

    @pytest.mark.parametrize("other", ["open", "flying", "done", "dead"])
    @on_engine
    async def test_only_what_is_archived_is_restored(
        self, fixture: EngineFixture, other: str
    ) -> None:
        await _one_of_each(fixture)
        with pytest.raises(IllegalTransition) as refused:
            await fixture.engine.operate(RestoreJobs(), named("aside", other), OPERATION)
        assert (refused.value.job_id, refused.value.move) == (other, "restore")
        assert await fixture.state("aside") is State.ARCHIVED

    @on_engine
    async def test_a_filter_takes_the_oldest_and_reports_more(self, fixture: EngineFixture) -> None:
        await fixture.put("open")
        await fixture.put_dead("a", "b", "c", queue="mail")
        done = await fixture.engine.operate(ArchiveJobs(), wanted(), OPERATION, limit=2)
        assert ([job.id for job in done.jobs], done.more) == (["a", "b"], True)
        done = await fixture.engine.operate(RestoreJobs(), wanted(), OPERATION)
        assert ([job.id for job in done.jobs], done.more) == (["a", "b"], False)
        assert (await fixture.counts("mail")).dead == 3

    @on_engine
    async def test_a_foreign_job_is_not_archived_restored_or_purged(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put_dead("a", "b", tenant="acme")
        await fixture.engine.operate(ArchiveJobs(), named("b"), OPERATION)
        caller = Caller("other")
        for action in (ArchiveJobs(), RestoreJobs(), PurgeJobs()):
            with pytest.raises(JobNotFound):
                await fixture.engine.operate(action, named("a"), OPERATION, caller=caller)
            found = await fixture.engine.operate(action, wanted(), OPERATION, caller=caller)
            assert found == AdminResult([])
        assert await fixture.counts() == Counts(dead=1, archived=1)


class PurgeRules(Suite):
    """Deleting finished jobs."""

    @pytest.mark.parametrize("name", ["done", "dead", "aside", "gone"])
    @on_engine
    async def test_a_purged_job_is_gone_with_its_history_and_its_id_is_free(
        self, fixture: EngineFixture, name: str
    ) -> None:
        await _one_of_each(fixture)
        await fixture.engine.operate(NoteJobs("soon gone"), named(name), OPERATION)
        done = await fixture.engine.operate(PurgeJobs(), named(name), OPERATION)
        assert [job.id for job in done.jobs] == [name]
        assert await fixture.engine.get([name]) == [None]
        assert await fixture.engine.history([name]) == [None]
        assert name not in await fixture.find()
        assert sum(_numbers(await fixture.counts())) == 5
        await fixture.put(name)
        history = await fixture.history(name)
        assert (history.attempts, history.notes) == ([], [])

    @pytest.mark.parametrize("other", ["open", "flying"])
    @on_engine
    async def test_unfinished_work_is_not_purged(self, fixture: EngineFixture, other: str) -> None:
        await _one_of_each(fixture)
        with pytest.raises(IllegalTransition) as refused:
            await fixture.engine.operate(PurgeJobs(), named("dead", other), OPERATION)
        assert refused.value.job_id == other
        assert await fixture.state("dead") is State.DEAD

    @on_engine
    async def test_a_filter_purges_finished_work_only(self, fixture: EngineFixture) -> None:
        await _one_of_each(fixture)
        only = wanted(states=(State.DEAD, State.ARCHIVED))
        done = await fixture.engine.operate(PurgeJobs(), only, OPERATION)
        assert [job.id for job in done.jobs] == ["aside", "dead"]
        done = await fixture.engine.operate(PurgeJobs(), wanted(), OPERATION)
        assert [job.id for job in done.jobs] == ["done", "gone"]
        assert await fixture.counts() == Counts(pending=1, in_flight=1)


async def _one_of_each(fixture: EngineFixture) -> None:
    await fixture.put("flying", "done", "aside", "dead", "gone", "open")
    await fixture.take()
    await fixture.complete("done")
    await fixture.dead_letter("aside", "dead")
    await fixture.engine.operate(ArchiveJobs(), named("aside"), OPERATION)
    await fixture.engine.operate(CancelJobs(), named("gone"), OPERATION)


def _numbers(counts: Counts) -> list[int]:
    return [getattr(counts, field) for field in counts.__struct_fields__]
