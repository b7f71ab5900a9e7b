"""The history of a job: its attempts, and the actions and notes of people."""

from __future__ import annotations

import enum

import msgspec

from . import effects as fx
from .failure import Failure
from .job import Job, State, Whole


class AttemptRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One attempt that is over. ``ending`` is how: completed, retry, dead, lost, …"""

    number: Whole
    token: Whole
    worker: str
    started_at_us: Whole
    ended_at_us: Whole
    ending: str
    failure: Failure | None = None

    @property
    def duration_seconds(self) -> float:
        """How long it took."""
        return max(0, self.ended_at_us - self.started_at_us) / 1e6


class NoteKind(enum.StrEnum):
    """What a person did."""

    NOTE = "note"
    EDIT = "edit"
    REPLAY = "replay"
    ARCHIVE = "archive"
    RESTORE = "restore"
    CANCEL = "cancel"
    CONFIRM = "confirm"


class Note(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An action or a note of a person: who, when and why."""

    kind: NoteKind
    at_us: Whole
    by: str
    text: str
    before: bytes | None = None
    """For an edit: the payload as it was."""


class History(msgspec.Struct, frozen=True, array_like=True):
    """A job and its history, oldest first."""

    job: Job
    attempts: list[AttemptRecord]
    notes: list[Note]


_ENDINGS: dict[type[fx.JobEffect], str] = {
    fx.Cancelled: "cancelled",
    fx.Retried: "retry",
    fx.Released: "release",
    fx.Snoozed: "snooze",
    fx.Lost: "lost",
    fx.Died: "dead",
}


RETRIED = frozenset({_ENDINGS[fx.Retried], _ENDINGS[fx.Lost]})
"""The endings of attempts that failed or were lost, and whose job is tried again."""


def completing_attempt(job: Job) -> AttemptRecord | None:
    """Return the attempt that completed a job, from the job itself."""
    if job.state is not State.COMPLETED:
        return None
    return AttemptRecord(
        job.attempt, job.token, job.worker, job.claimed_at_us, job.finished_at_us, "completed"
    )


def attempt_of(old: Job | None, effect: fx.JobEffect) -> AttemptRecord | None:
    """Return the attempt that this effect ended, if it ended one other than by completing."""
    ending = _ENDINGS.get(type(effect))
    if ending is None or old is None or old.state is not State.IN_FLIGHT:
        return None
    failure = getattr(effect, "failure", None)
    return AttemptRecord(
        old.attempt, old.token, old.worker, old.claimed_at_us, effect.at_us, ending, failure
    )


def note_of(effect: fx.JobEffect) -> Note | None:
    """Return the note for an effect that a person caused, or None."""
    if isinstance(effect, fx.Noted):
        return Note(NoteKind.NOTE, effect.at_us, effect.by, effect.text)
    if isinstance(effect, fx.Edited):
        return Note(NoteKind.EDIT, effect.at_us, effect.by, effect.why, effect.before)
    if isinstance(effect, fx.Cancelled):
        if not effect.by:
            return None
        return Note(NoteKind.CANCEL, effect.at_us, effect.by, effect.reason)
    kind = _NOTE_KINDS.get(type(effect))
    if kind is None:
        return None
    by, why = getattr(effect, "by", ""), getattr(effect, "why", "")
    return Note(kind, effect.at_us, by, why)


_NOTE_KINDS: dict[type[fx.JobEffect], NoteKind] = {
    fx.Replayed: NoteKind.REPLAY,
    fx.Archived: NoteKind.ARCHIVE,
    fx.Restored: NoteKind.RESTORE,
    fx.StopRequested: NoteKind.CANCEL,
    fx.Confirmed: NoteKind.CONFIRM,
}
