"""History in memory: lists and dicts; every query scans everything."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from itertools import islice

from holdfast.engines.dump.format import DumpedAttempt, DumpedAudit, DumpedNote, DumpRecord
from holdfast.model.access import Caller
from holdfast.model.audit import AuditRecord
from holdfast.model.effects import Audited, Purged, job_key
from holdfast.model.failure_groups import group_dead_jobs
from holdfast.model.history import AttemptRecord, Note, attempt_of, completing_attempt, note_of
from holdfast.model.job import Job, State
from holdfast.model.search import FailureGroup, Filter, Order, Place

from .history import AppliedEffect, StateCounts


class MemoryHistory:
    """The history of every job, in lists. The jobs themselves are all in the state."""

    def __init__(self) -> None:
        self.jobs: dict[tuple[str, str], Job] = {}
        self._attempts: defaultdict[tuple[str, str], list[AttemptRecord]] = defaultdict(list)
        self._notes: defaultdict[tuple[str, str], list[Note]] = defaultdict(list)
        self._audit: list[AuditRecord] = []

    def record(self, applied: AppliedEffect) -> None:
        """See ``HistoryStore.record``."""
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
        """Drop the history of a job."""
        self._attempts.pop(name, None)
        self._notes.pop(name, None)

    async def flush(self) -> None:
        """Do nothing: everything is found at once."""

    @property
    def behind(self) -> bool:
        """Never."""
        return False

    async def room(self) -> None:
        """Do nothing: there is always room."""

    def pinned(self) -> contextlib.AbstractContextManager[None]:
        """Do nothing: nothing is moved."""
        return contextlib.nullcontext()

    def get(self, tenant: str, job_id: str) -> None:
        """Return None: all jobs are in the state."""

    async def find(
        self, wanted: Filter, caller: Caller, after: Place | None, limit: int, order: Order
    ) -> list[Job]:
        """Return nothing: all jobs are in the state."""
        del wanted, caller, after, limit, order
        return []

    async def count_matching(self, wanted: Filter, caller: Caller, most: int) -> int:
        """See ``HistoryStore.count_matching``."""
        matching = (
            job
            for job in self.jobs.values()
            if job.state.finished
            and wanted.matches(job)
            and caller.can_access(job.tenant, job.scope)
        )
        return sum(1 for _job in islice(matching, most))

    async def groups(self, wanted: Filter, caller: Caller, now_us: int) -> list[FailureGroup]:
        """See ``HistoryStore.groups``."""
        dead = (
            job
            for job in self.jobs.values()
            if job.state is State.DEAD
            and wanted.matches(job)
            and caller.can_access(job.tenant, job.scope)
        )
        return group_dead_jobs(dead, now_us)

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
        """Return nothing: all jobs are in the state."""
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
        """Load a record of a dump."""
        if isinstance(record, DumpedAudit):
            self._audit.append(record.record)
        elif isinstance(record, DumpedNote):
            self._notes[record.tenant, record.id].append(record.note)
        else:
            self._attempts[record.tenant, record.id].append(record.attempt)

    async def forget(self, before_us: int) -> StateCounts:
        """Return nothing: the state forgets jobs itself."""
        del before_us
        return {}

    async def close(self) -> None:
        """Do nothing."""


async def _once(records: Sequence[DumpRecord]) -> AsyncIterator[Sequence[DumpRecord]]:
    yield records
