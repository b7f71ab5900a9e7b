"""The contract of a history: where finished jobs, attempts, notes and the audit are kept.

It records every applied effect, in order, and is read much later. It never decides: its content
follows from the effects.
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
from holdfast.model.search import FailureGroup, Filter, Order, Place


class AppliedEffect(msgspec.Struct, frozen=True, gc=False):
    """An effect, its sequence number, and its job before and after it, if any."""

    seq: int
    effect: JobEffect | Audited
    old: Job | None
    job: Job | None


StateCounts = Mapping[tuple[str, str, State], int]
"""How many jobs there are of each tenant and queue in each state."""


class HistoryStore(Protocol):
    """Keeps finished jobs, attempts, notes and the audit.

    ``forget`` drops completed and cancelled jobs with their history; dead and archived ones stay
    until they are replayed or purged. Queries treat what is out of the caller's reach as missing.
    """

    def record(self, applied: AppliedEffect) -> None:
        """Take an effect, to be stored soon."""

    async def flush(self) -> None:
        """Return when everything recorded so far can be found."""

    @property
    def behind(self) -> bool:
        """Whether so much is not stored yet that no new work should start."""

    async def room(self) -> None:
        """Return when it is not ``behind``."""

    def pinned(self) -> AbstractContextManager[None]:
        """Within this context, keep jobs in memory even if they are stored here too."""

    def get(self, tenant: str, job_id: str) -> Job | None:
        """Return the finished job. Fast enough for the event loop."""

    async def find(
        self, wanted: Filter, caller: Caller, after: Place | None, limit: int, order: Order
    ) -> list[Job]:
        """Return the first finished jobs after this place, in this order."""

    async def count_matching(self, wanted: Filter, caller: Caller, most: int) -> int:
        """Count the finished jobs that match, up to this many."""

    async def groups(self, wanted: Filter, caller: Caller, now_us: int) -> list[FailureGroup]:
        """Return the dead letters in groups at this time, largest first.

        What is held behind them and what people did with them is left out.
        """

    async def history(self, job: Job) -> tuple[list[AttemptRecord], list[Note]]:
        """Return the attempts and notes of a job, oldest first."""

    async def audit(self, after: int, limit: int) -> Sequence[AuditRecord]:
        """Return the audit records after this number."""

    async def count(self, caller: Caller) -> StateCounts:
        """Count the finished jobs within the caller's reach."""

    def dump(self) -> AsyncIterator[Sequence[DumpRecord]]:
        """Return everything that is stored, as of this call: jobs, history and the audit."""

    async def forget(self, before_us: int) -> StateCounts:
        """Drop completed and cancelled jobs that finished before this; return how many."""

    async def close(self) -> None:
        """Store everything recorded and release the store."""
