"""Where finished work and history are kept: what every engine asks of it.

The past is told of everything that happened, in order, and is asked much later. It never decides:
what it keeps follows from what it was told.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from holdfast.engines.dump.format import DumpRecord
from holdfast.model.access import Caller
from holdfast.model.audit import AuditRecord
from holdfast.model.effects import Audited, JobEffect
from holdfast.model.history import AttemptRecord, Note
from holdfast.model.job import Job, State
from holdfast.model.search import FailureGroup, Filter, Place


class AppliedEffect(msgspec.Struct, frozen=True, gc=False):
    """An effect, its sequence number, and its job before and after it; None where there is none."""

    seq: int
    effect: JobEffect | Audited
    old: Job | None
    job: Job | None


StateCounts = Mapping[tuple[str, str, State], int]
"""How many jobs there are of each tenant and queue in each state."""


class HistoryStore(Protocol):
    """Keeps finished jobs, attempts, notes and the audit.

    Completed and cancelled jobs go when ``forget`` says so, with their history; dead and archived
    ones stay until they are replayed or purged. What is out of the caller's reach is not there.
    """

    def record(self, applied: AppliedEffect) -> None:
        """Take note of what happened; it is durable, and it is kept soon."""

    async def flush(self) -> None:
        """Return when everything told so far can be found."""

    @property
    def behind(self) -> bool:
        """Whether it has too much to keep already to be told more than must be."""

    async def room(self) -> None:
        """Return when it is not ``behind``."""

    def pinned(self) -> AbstractContextManager[None]:
        """Keep what is in memory there, even if it is found here too, for as long as this lasts."""

    def get(self, tenant: str, job_id: str) -> Job | None:
        """Return the finished job. Quick enough for the event loop."""

    async def find(
        self, wanted: Filter, caller: Caller, after: Place | None, limit: int, *, newest: bool
    ) -> list[Job]:
        """Return the first finished jobs after this place, by ``place_of``, or the last before."""

    async def groups(self, wanted: Filter, caller: Caller) -> list[FailureGroup]:
        """Return the dead letters in groups, most first; ``held_behind`` is not for it to say."""

    async def history(self, job: Job) -> tuple[list[AttemptRecord], list[Note]]:
        """Return the attempts and notes of a job, oldest first."""

    async def audit(self, after: int, limit: int) -> Sequence[AuditRecord]:
        """Return the audit records after this number."""

    async def count(self, caller: Caller) -> StateCounts:
        """Count the finished jobs that are kept here, one by one, within the caller's reach."""

    def dump(self) -> AsyncIterator[Sequence[DumpRecord]]:
        """Return everything that is kept here, as of this call: jobs, history and the audit."""

    async def forget(self, before_us: int) -> StateCounts:
        """Drop completed and cancelled jobs that finished before this; return how many."""

    async def close(self) -> None:
        """Keep everything that was told and let go."""
