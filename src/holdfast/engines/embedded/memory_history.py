"""History in memory: lists and dicts, in which every query looks at everything."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import (
    AsyncIterator,
    Sequence,
)
from typing import TypeVar

from holdfast.engines.dump.format import (
    DumpedAttempt,
    DumpedAudit,
    DumpedNote,
    DumpRecord,
)
from holdfast.engines.embedded.history import AppliedEffect, StateCounts
from holdfast.model.access import Caller
from holdfast.model.audit import AuditRecord
from holdfast.model.effects import (
    Audited,
    Purged,
    job_key,
)
from holdfast.model.failure_groups import group_letters
from holdfast.model.history import AttemptRecord, Note, attempt_of, completing_attempt, note_of
from holdfast.model.job import Job, State
from holdfast.model.search import FailureGroup, Filter, Place

T = TypeVar("T")


class MemoryHistory:
    """The history of every job, in lists. The jobs themselves are all in the state."""

    def __init__(self) -> None:
        self.jobs: dict[tuple[str, str], Job] = {}
        self._attempts: defaultdict[tuple[str, str], list[AttemptRecord]] = defaultdict(list)
        self._notes: defaultdict[tuple[str, str], list[Note]] = defaultdict(list)
        self._audit: list[AuditRecord] = []

    def record(self, applied: AppliedEffect) -> None:
        """See ``HistoryStore.tell``."""
        effect = applied.effect
        if isinstance(effect, Audited):
            self._audit.append(effect.record)
            return
        name = job_key(effect)
        if isinstance(effect, Purged):
            self.drop(name)
            return
        attempt = attempt_of(applied.old, effect)
        if attempt is not None:
            self._attempts[name].append(attempt)
        note = note_of(effect)
        if note is not None:
            self._notes[name].append(note)

    def drop(self, name: tuple[str, str]) -> None:
        """Forget what happened to a job."""
        self._attempts.pop(name, None)
        self._notes.pop(name, None)

    async def flush(self) -> None:
        """Have everything at once."""

    @property
    def behind(self) -> bool:
        """Have room."""
        return False

    async def room(self) -> None:
        """Have room."""

    def pinned(self) -> contextlib.AbstractContextManager[None]:
        """Leave everything where it is."""
        return contextlib.nullcontext()

    def get(self, tenant: str, job_id: str) -> None:
        """Have no job that the state has not."""

    async def find(
        self, wanted: Filter, caller: Caller, after: Place | None, limit: int, *, newest: bool
    ) -> list[Job]:
        """Have no job that the state has not."""
        del wanted, caller, after, limit, newest
        return []

    async def groups(self, wanted: Filter, caller: Caller) -> list[FailureGroup]:
        """See ``HistoryStore.groups``."""
        return group_letters(
            job
            for job in self.jobs.values()
            if job.state is State.DEAD
            and wanted.matches(job)
            and caller.reaches(job.tenant, job.scope)
        )

    async def history(self, job: Job) -> tuple[list[AttemptRecord], list[Note]]:
        """See ``HistoryStore.history``."""
        name = job.tenant, job.id
        attempts = list(self._attempts.get(name, ()))
        last = completing_attempt(job)
        if last is not None:
            attempts.append(last)
        return attempts, list(self._notes.get(name, ()))

    async def audit(self, after: int, limit: int) -> Sequence[AuditRecord]:
        """See ``HistoryStore.audit``."""
        return self._audit[after : after + limit]

    async def count(self, caller: Caller) -> StateCounts:
        """Have no job that the state has not."""
        del caller
        return {}

    def dump(self) -> AsyncIterator[Sequence[DumpRecord]]:
        """See ``HistoryStore.dump``."""
        records: list[DumpRecord] = []
        for (tenant, job_id), attempts in self._attempts.items():
            made_us = self.jobs[tenant, job_id].created_at_us
            records += [DumpedAttempt(tenant, job_id, made_us, one) for one in attempts]
        for (tenant, job_id), notes in self._notes.items():
            made_us = self.jobs[tenant, job_id].created_at_us
            records += [DumpedNote(tenant, job_id, made_us, one) for one in notes]
        records += [DumpedAudit(record) for record in self._audit]
        return _once(records)

    def load(self, record: DumpedAttempt | DumpedNote | DumpedAudit) -> None:
        """Take in a record of a dump."""
        if isinstance(record, DumpedAudit):
            self._audit.append(record.record)
        elif isinstance(record, DumpedNote):
            self._notes[record.tenant, record.id].append(record.note)
        else:
            self._attempts[record.tenant, record.id].append(record.attempt)

    async def forget(self, before_us: int) -> StateCounts:
        """Leave it to the state."""
        del before_us
        return {}

    async def close(self) -> None:
        """Have nothing to let go of."""


async def _once(records: Sequence[DumpRecord]) -> AsyncIterator[Sequence[DumpRecord]]:
    yield records
