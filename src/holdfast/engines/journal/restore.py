"""A dump made into a directory: a snapshot of the unfinished work, and the past beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from secrets import token_bytes
from typing import NamedTuple

from holdfast.engines.dump.format import (
    DumpedAudit,
    DumpedFlag,
    DumpedJob,
    DumpedPolicy,
    DumpedSchedule,
    DumpHead,
    DumpRecord,
)
from holdfast.model.audit import AuditHead, head_of
from holdfast.model.effects import ScheduleState
from holdfast.model.errors import CorruptDump, InvalidInput
from holdfast.model.job import Job, State
from holdfast.model.policy import QueuePolicy

from .history.store import SqliteHistory
from .snapshots.snapshot import SnapshotHead, put_in_place, write_unfinished
from .wal.disk import LOG, SNAPSHOTS, Disk


class RestoreSummary(NamedTuple):
    """How many jobs there are now, and how many of them are unfinished."""

    jobs: int
    unfinished: int


class _SnapshotRecords:
    """What of a dump belongs into a snapshot."""

    def __init__(self) -> None:
        self.head: DumpHead | None = None
        self.jobs: list[Job] = []
        self.count = 0
        self.policies: dict[str, QueuePolicy] = {}
        self.flags: dict[str, bool] = {}
        self.schedules: dict[str, ScheduleState] = {}
        self.audit_head = AuditHead()

    def passing(self, batches: Iterable[Sequence[DumpRecord]]) -> Iterator[Sequence[DumpRecord]]:
        """Take note of what goes by."""
        for batch in batches:
            for record in batch:
                self._take(record)
            yield batch

    def _take(self, record: DumpRecord) -> None:
        if isinstance(record, DumpedJob):
            job = record.job
            self.count += 1
            if not job.state.finished or (job.state is State.DEAD and job.ties.key is not None):
                self.jobs.append(job)  # a dead one holds up others of its key
        elif isinstance(record, DumpHead):
            self.head = record
        elif isinstance(record, DumpedPolicy):
            self.policies[record.queue] = record.policy
        elif isinstance(record, DumpedFlag):
            self.flags[record.name] = record.on
        elif isinstance(record, DumpedSchedule):
            self.schedules[record.name] = record.schedule
        elif isinstance(record, DumpedAudit):
            self.audit_head = head_of(record.record)


def restore(
    disk: Disk,
    batches: Iterable[Sequence[DumpRecord]],
    random_bytes: Callable[[int], bytes] = token_bytes,
) -> RestoreSummary:
    """Make an empty directory hold what a dump has.

    Interrupted, it leaves a directory that does not open: remove it and begin again.
    """
    source = iter(batches)
    first = next(source, ())  # a dump that is not whole is refused before anything is made
    disk.lock()
    try:
        if disk.names(LOG) or disk.names(SNAPSHOTS) or disk.database().exists():
            raise InvalidInput("directory", f"{disk.root} is not empty")
        hot = _SnapshotRecords()
        cold = SqliteHistory.open(disk.database())
        try:
            last_seq = cold.load(hot.passing(chain([first], source)), lambda: _head(hot).last_seq)
        finally:
            cold.close()
        head = SnapshotHead(
            last_seq=last_seq,
            last_at_us=_head(hot).at_us,
            last_crc=0,
            first_segment=1,
            salt=int.from_bytes(random_bytes(4), "little"),
            cold=True,
            last_token=_head(hot).last_token,
            policies=hot.policies,
            flags=hot.flags,
            schedules=hot.schedules,
            audit_head=hot.audit_head,
        )
        put_in_place(disk, write_unfinished(disk, head, hot.jobs)[0])
        return RestoreSummary(hot.count, sum(not job.state.finished for job in hot.jobs))
    finally:
        disk.unlock()


def _head(hot: _SnapshotRecords) -> DumpHead:
    if hot.head is None:
        raise CorruptDump("the dump", "it has no head")
    return hot.head
