"""A journal that nobody owns at the moment, read without owning it: nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from holdfast.engines.contract import Counts
from holdfast.model.access import SYSTEM
from holdfast.model.job import Job

from .history.store import SqliteHistory
from .state.queries import JournalState
from .wal.disk import Disk
from .wal.recovery import covered_seq, recover


class ReadonlyJournal:
    """What is in memory when the journal is opened, and the past, if there is one."""

    def __init__(self, state: JournalState, cold: SqliteHistory | None) -> None:
        self.state = state
        self.cold = cold

    def counts(self) -> Mapping[str, Counts]:
        """Return the counts of each queue."""
        return self.state.counts(SYSTEM)

    def get(self, tenant: str, job_id: str) -> Job | None:
        """Return the job, wherever it is kept."""
        job = self.state.get(tenant, job_id)
        return job if job is not None or self.cold is None else self.cold.get(tenant, job_id)

    def jobs(self) -> list[Job]:
        """Return every job, finished ones too."""
        jobs = {} if self.cold is None else {(j.tenant, j.id): j for j in self.cold.jobs()}
        jobs |= {(job.tenant, job.id): job for job in self.state.jobs()}
        return list(jobs.values())


@contextmanager
def look(disk: Disk) -> Iterator[ReadonlyJournal]:
    """Read the directory; raise as opening it does."""
    database = disk.database()
    cold = SqliteHistory.open(database) if database.exists() else None
    try:
        state = recover(disk, JournalState(cold_seq=0 if cold is None else cold.checkpoint)).state
        if cold is not None:
            state.credit(cold.tallies())
        yield ReadonlyJournal(state, cold)
    finally:
        if cold is not None:
            cold.close()


def check_covered(disk: Disk) -> None:
    """Raise ``HistoryMissing`` if the past does not go as far as the snapshots rely on it."""
    expected_seq = covered_seq(disk)
    if expected_seq:
        SqliteHistory.open(disk.database(), expected_seq=expected_seq).close()
