"""What an effect says of an attempt, and of a person's doing."""

import pytest

from holdfast.model import effects as fx
from holdfast.model.failure import Failure
from holdfast.model.history import (
    AttemptRecord,
    Note,
    NoteKind,
    attempt_of,
    completing_attempt,
    note_of,
)
from holdfast.model.job import Job, State

FAILURE = Failure.of("timeout", "took 31 s")


def a_job(state: State) -> Job:
    return Job(
        "j1",
        "acme",
        "",
        "mail",
        "send",
        b"{}",
        0,
        3,
        created_at_us=1,
        run_at_us=1,
        seq=1,
        state=state,
        attempt=2,
        token=7,
        worker="w1",
        claimed_at_us=100,
        finished_at_us=300 if state.finished else 0,
    )


ENDINGS: list[tuple[fx.JobEffect, str, Failure | None]] = [
    (fx.Cancelled(300, "acme", "j1"), "cancelled", None),
    (fx.Retried(300, "acme", "j1", 400, FAILURE), "retry", FAILURE),
    (fx.Released(300, "acme", "j1"), "release", None),
    (fx.Snoozed(300, "acme", "j1", 400), "snooze", None),
    (fx.Lost(300, "acme", "j1", FAILURE), "lost", FAILURE),
    (fx.Died(300, "acme", "j1", FAILURE, 0), "dead", FAILURE),
]
DEEDS: list[tuple[fx.JobEffect, Note]] = [
    (fx.Noted(300, "acme", "j1", "ann", "look"), Note(NoteKind.NOTE, 300, "ann", "look")),
    (
        fx.Edited(300, a_job(State.DEAD), "ann", "why", b"{}"),
        Note(NoteKind.EDIT, 300, "ann", "why", b"{}"),
    ),
    (fx.Cancelled(300, "acme", "j1", "why", "ann"), Note(NoteKind.CANCEL, 300, "ann", "why")),
    (fx.StopRequested(300, "acme", "j1", "ann", "why"), Note(NoteKind.CANCEL, 300, "ann", "why")),
    (fx.Confirmed(300, "acme", "j1", "ann", "why"), Note(NoteKind.CONFIRM, 300, "ann", "why")),
    (
        fx.Replayed(300, a_job(State.PENDING), "ann", "why"),
        Note(NoteKind.REPLAY, 300, "ann", "why"),
    ),
    (
        fx.Archived(300, a_job(State.ARCHIVED), "ann", "why"),
        Note(NoteKind.ARCHIVE, 300, "ann", "why"),
    ),
    (fx.Restored(300, a_job(State.DEAD), "ann", "why"), Note(NoteKind.RESTORE, 300, "ann", "why")),
]
NEITHER: list[fx.JobEffect] = [
    fx.Enqueued(300, a_job(State.PENDING)),
    fx.Claimed(300, "acme", "j1", 8, "w2", 400),
    fx.Extended(300, "acme", "j1", 400),
    fx.Unblocked(300, "acme", "j1"),
    fx.Freed(300, "acme", "j1", "a"),
    fx.Purged(300, "acme", "j1", "mail", State.DEAD, None),
]


@pytest.mark.parametrize(("effect", "ending", "failure"), ENDINGS)
def test_the_end_of_an_attempt_says_how_it_went(
    effect: fx.JobEffect, ending: str, failure: Failure | None
) -> None:
    attempt = attempt_of(a_job(State.IN_FLIGHT), effect)
    assert attempt == AttemptRecord(2, 7, "w1", 100, 300, ending, failure)
    assert attempt.duration_seconds == 0.0002


@pytest.mark.parametrize("state", [None, *(one for one in State if one is not State.IN_FLIGHT)])
def test_what_nobody_ran_had_no_attempt(state: State | None) -> None:
    old = None if state is None else a_job(state)
    assert [attempt_of(old, effect) for effect, _ending, _failure in ENDINGS] == [None] * 6


def test_a_completed_job_tells_of_the_attempt_that_completed_it() -> None:
    done = a_job(State.COMPLETED)
    assert completing_attempt(done) == AttemptRecord(2, 7, "w1", 100, 300, "completed")
    assert completing_attempt(a_job(State.CANCELLED)) is None
    assert attempt_of(a_job(State.IN_FLIGHT), fx.Completed(300, "acme", "j1")) is None


def test_a_clock_that_was_set_back_makes_no_attempt_shorter_than_nothing() -> None:
    assert AttemptRecord(1, 1, "w", 200, 100, "completed").duration_seconds == 0.0


@pytest.mark.parametrize(("effect", "note"), DEEDS)
def test_what_a_person_did_is_a_note(effect: fx.JobEffect, note: Note) -> None:
    assert note_of(effect) == note


@pytest.mark.parametrize("effect", NEITHER)
def test_what_the_engine_does_by_itself_is_no_note_and_ends_no_attempt(
    effect: fx.JobEffect,
) -> None:
    assert note_of(effect) is None
    assert attempt_of(a_job(State.IN_FLIGHT), effect) is None


def test_a_cancellation_that_nobody_asked_for_is_no_note() -> None:
    assert note_of(fx.Cancelled(300, "acme", "j1", "dependency_cancelled")) is None
    for effect, _ending, _failure in ENDINGS:
        assert note_of(effect) is None
