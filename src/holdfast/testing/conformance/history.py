"""The history of a job: attempts and notes."""

from __future__ import annotations

import pytest

from holdfast.model.access import Caller
from holdfast.model.actions import (
    ArchiveJobs,
    CancelJobs,
    ConfirmJobs,
    NoteJobs,
    ReplayJobs,
    RestoreJobs,
)
from holdfast.model.audit import Attribution
from holdfast.model.errors import InvalidInput, JobNotFound
from holdfast.model.failure import Failure
from holdfast.model.history import AttemptRecord, Note, NoteKind
from holdfast.model.job import State
from holdfast.model.outcome import completed, dead, release, retry, snooze

from .fixture import FAILURE, OPERATION, WRONG, EngineFixture, Suite, named, on_engine, wanted


class HistoryRules(Suite):
    """Attempts and notes, oldest first."""

    @on_engine
    async def test_every_attempt_is_kept_with_how_it_ended(self, fixture: EngineFixture) -> None:
        await fixture.put("a", max_attempts=9)
        expected: list[AttemptRecord] = []
        for number, ending in (
            *((1, "retry"), (2, "release"), (2, "snooze"), (2, "lost"), (3, "dead")),
            *((4, "retry"), (5, "completed")),
        ):
            if number == 4:
                await fixture.engine.operate(ReplayJobs(fixed="the mapping"), named("a"), OPERATION)
            [job] = await fixture.take(worker=f"w{len(expected)}")
            began_us = fixture.clock.now_us()
            failure: Failure | None = None
            if ending == "lost":
                [lost] = (await fixture.expire_leases()).lost
                failure = lost.failure
            else:
                fixture.clock.advance(1.5)
                failure = {"retry": FAILURE, "dead": WRONG}.get(ending)
                outcomes = {
                    "retry": retry(job, FAILURE),
                    "release": release(job),
                    "snooze": snooze(job, 0),
                    "dead": dead(job, WRONG),
                    "completed": completed(job),
                }
                await fixture.settle(outcomes[ending])
            ended_us = fixture.clock.now_us()
            expected.append(
                AttemptRecord(number, job.token, job.worker, began_us, ended_us, ending, failure)
            )
            assert (await fixture.history("a")).attempts == expected
        assert expected[0].duration_seconds == 1.5
        assert (await fixture.history("a")).job.state is State.COMPLETED

    @on_engine
    async def test_history_has_only_attempts_that_have_ended(self, fixture: EngineFixture) -> None:
        await fixture.put("a")
        history = await fixture.history("a")
        assert (history.job, history.attempts, history.notes) == (await fixture.job("a"), [], [])
        [job] = await fixture.take()
        await fixture.engine.extend([job], lease_seconds=60)
        assert (await fixture.history("a")).attempts == []

    @on_engine
    async def test_a_job_that_expires_unclaimed_had_no_attempt(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a", expires_seconds=1)
        await fixture.expire_leases()
        history = await fixture.history("a")
        assert (history.job.state, history.attempts) == (State.DEAD, [])

    @on_engine
    async def test_every_admin_action_leaves_a_note(self, fixture: EngineFixture) -> None:
        await fixture.put("a", hold=True)
        engine = fixture.engine

        def by(name: str) -> Attribution:
            fixture.clock.advance(1)
            return Attribution(name, f"{name} says so")

        await engine.operate(ConfirmJobs(), named("a"), by("bob"))
        await fixture.dead_letter("a")
        await engine.operate(ArchiveJobs(), named("a"), by("cid"))
        await engine.operate(RestoreJobs(), named("a"), by("dan"))
        await engine.operate(NoteJobs("it was the mail server"), named("a"), by("eve"))
        await engine.operate(ReplayJobs(), named("a"), by("fay"))
        await engine.operate(CancelJobs(), named("a"), by("gus"))
        notes = (await fixture.history("a")).notes
        assert [(note.kind, note.by) for note in notes] == [
            (NoteKind.CONFIRM, "bob"),
            (NoteKind.ARCHIVE, "cid"),
            (NoteKind.RESTORE, "dan"),
            (NoteKind.NOTE, "eve"),
            (NoteKind.REPLAY, "fay"),
            (NoteKind.CANCEL, "gus"),
        ]
        texts = [f"{note.by} says so" for note in notes]
        texts[3] = "it was the mail server"
        assert [note.text for note in notes] == texts
        began_us = notes[0].at_us
        assert [note.at_us - began_us for note in notes] == [
            seconds * 1_000_000 for seconds in range(6)
        ]

    @on_engine
    async def test_a_note_changes_nothing_else_and_may_be_left_on_any_job(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("done", "dead", "flying", "waiting")
        await fixture.complete("done")
        await fixture.dead_letter("dead")
        await fixture.take()
        ids = ["done", "dead", "flying", "waiting"]
        before = await fixture.engine.get(ids)
        noted = await fixture.engine.operate(NoteJobs("look here"), named(*ids), OPERATION)
        assert sorted(job.id for job in noted.jobs) == sorted(ids)
        assert await fixture.engine.get(ids) == before
        for one in ids:
            [note] = (await fixture.history(one)).notes
            assert note == Note(NoteKind.NOTE, fixture.clock.now_us(), "ann", "look here")

    @on_engine
    async def test_a_note_on_many_by_filter(self, fixture: EngineFixture) -> None:
        await fixture.put_dead("a", "b")
        await fixture.put("c")
        done = await fixture.engine.operate(
            NoteJobs("known"), wanted(states=(State.DEAD,)), OPERATION
        )
        assert [job.id for job in done.jobs] == ["a", "b"]
        assert (await fixture.history("c")).notes == []

    @pytest.mark.parametrize("text", ["", "  ", "x" * 4_001, 7])
    @on_engine
    async def test_a_bad_note_is_refused(self, fixture: EngineFixture, text: str) -> None:
        await fixture.put("a")
        with pytest.raises(InvalidInput) as refused:
            await fixture.engine.operate(NoteJobs(text), named("a"), OPERATION)
        assert refused.value.field == "text"
        assert (await fixture.history("a")).notes == []

    @on_engine
    async def test_a_foreign_job_has_no_history_and_takes_no_note(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a", scope="library:43")
        stranger = Caller("default", ("library:42",))
        assert await fixture.engine.history(["a", "nix"], caller=stranger) == [None, None]
        with pytest.raises(JobNotFound):
            await fixture.engine.operate(NoteJobs("hello"), named("a"), OPERATION, caller=stranger)
        assert (await fixture.history("a")).notes == []

    @on_engine
    async def test_history_is_kept_as_long_as_its_job(self, fixture: EngineFixture) -> None:
        await fixture.put("done")
        await fixture.complete("done")
        await fixture.put_dead("dead")
        fixture.clock.advance(61)
        assert await fixture.engine.history(["done"]) == [None]
        assert len((await fixture.history("dead")).attempts) == 1
        await fixture.put("done")
        history = await fixture.history("done")
        assert (history.attempts, history.notes) == ([], [])
