"""What a batch of things that happened changes in the cold store: rows that come and go.

Nothing here touches a database, so that the rules can be read, and tested, by themselves.
"""

from __future__ import annotations

from holdfast.engines.embedded.history import AppliedEffect
from holdfast.model import effects as fx
from holdfast.model.history import Note, attempt_of, note_of
from holdfast.model.job import Job

from .rows import (
    DEAD,
    DONE,
    BodyRow,
    JobBodyRow,
    Name,
    body_of,
)

KEPT = frozenset(
    {
        fx.Completed,
        fx.Cancelled,
        fx.Retried,
        fx.Released,
        fx.Snoozed,
        fx.Lost,
        fx.Died,
        fx.Replayed,
        fx.Archived,
        fx.Restored,
        fx.Edited,
        fx.Confirmed,
        fx.StopRequested,
        fx.Noted,
        fx.Purged,
        fx.Audited,
    }
)
"""The effects that leave something here; the others need not be told."""


class RowChanges:
    """The changes of a batch, to be written in this order: what goes, then what comes."""

    def __init__(self) -> None:
        self.purged: dict[Name, int | None] = {}
        """Jobs to be rid of, and when they were made, if that is known."""
        self.remarks: list[tuple[int, Name, Note]] = []
        """Notes on jobs that only the store knows."""
        self.done: list[tuple[int, Job]] = []
        self.dying: dict[Name, tuple[int, Job]] = {}
        """Jobs that are among the dead afterwards: each with the effect that made it so."""
        self.leaving: set[Name] = set()
        """Jobs that may have been among the dead before."""
        self.attempts: list[JobBodyRow] = []
        self.notes: list[JobBodyRow] = []
        self.audit: list[BodyRow] = []

    @property
    def empty(self) -> bool:
        """Whether nothing changes."""
        return self.settled and not (self.purged or self.remarks or self.audit)

    @property
    def settled(self) -> bool:
        """Whether what is looked up in the store now is as it was when these happened."""
        return not (self.done or self.leaving or self.attempts or self.notes)

    def take(self, applied: AppliedEffect) -> bool:
        """Take one in; False if those before it must be written first."""
        seq, effect, old, job = applied.seq, applied.effect, applied.old, applied.job
        if isinstance(effect, fx.Audited):
            self.audit.append((effect.record.number, *body_of(effect.record)))
            return True
        known = job or old
        if isinstance(effect, fx.Purged) or known is None:
            return self.settled and self._ask(seq, effect, old)
        self._keep_history(seq, effect, old, known)
        if job is not None:
            self._move(seq, effect, job)
        return True

    def _move(self, seq: int, effect: fx.JobEffect, job: Job) -> None:
        name = job.tenant, job.id
        if isinstance(effect, fx.Replayed):
            self.dying.pop(name, None)
            self.leaving.add(name)
        elif isinstance(effect, fx.Noted):
            return
        elif job.state in DONE:
            self.done.append((seq, job))
        elif job.state in DEAD:
            self.dying[name] = seq, job
            self.leaving.add(name)

    def _ask(self, seq: int, effect: fx.JobEffect, old: Job | None) -> bool:
        """Take in what needs a look into the store before it can be written."""
        name = fx.job_key(effect)
        if isinstance(effect, fx.Purged):
            self.purged[name] = None if old is None else old.created_at_us
        elif (note := note_of(effect)) is not None:
            self.remarks.append((seq, name, note))
        return True

    def _keep_history(self, seq: int, effect: fx.JobEffect, old: Job | None, job: Job) -> None:
        made_us = job.created_at_us
        attempt = attempt_of(old, effect)
        if attempt is not None:
            self.attempts.append((seq, job.tenant, job.id, made_us, *body_of(attempt)))
        note = note_of(effect)
        if note is not None:
            self.notes.append((seq, job.tenant, job.id, made_us, *body_of(note)))
