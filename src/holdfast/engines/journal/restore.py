"""Restores a dump into an empty directory: a snapshot of unfinished work, and the history."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from secrets import token_bytes
from typing import NamedTuple

from holdfast.engines.dump.format import (
    DumpedAudit,
    DumpedFlag,
    DumpedGroup,
    DumpedJob,
    DumpedOperation,
    DumpedOutage,
    DumpedPolicy,
    DumpedSchedule,
    DumpHead,
    DumpRecord,
)
from holdfast.model.audit import AuditHead, head_of
from holdfast.model.effects import ScheduleState
from holdfast.model.errors import CorruptDump, InvalidInput
from holdfast.model.group_life import GroupLife
from holdfast.model.job import Job, State
from holdfast.model.operation import Operation
from holdfast.model.outage import Outage
from holdfast.model.policy import QueuePolicy

from .history.store import SqliteHistory
from .snapshots.snapshot import SnapshotHead, put_in_place, write_unfinished
from .wal.disk import LOG, SNAPSHOTS, Disk


class RestoreSummary(NamedTuple):
    """How many jobs there are now, and how many of them are unfinished."""

    jobs: int
    unfinished: int


class _SnapshotRecords:
    """The part of a dump that goes into the snapshot."""

    def __init__(self) -> None:
        self.head: DumpHead | None = None
        self.jobs: list[Job] = []
        self.count = 0
        self.policies: dict[str, QueuePolicy] = {}
        self.flags: dict[str, bool] = {}
        self.schedules: dict[str, ScheduleState] = {}
        self.outages: list[Outage] = []
        self.operations: list[Operation] = []
        self.group_lives: dict[str, GroupLife] = {}
        self.audit_head = AuditHead()

    def collect(self, batches: Iterable[Sequence[DumpRecord]]) -> Iterator[Sequence[DumpRecord]]:
        """Yield these batches, and keep what the snapshot needs."""
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
        elif isinstance(record, DumpedOutage):
            self.outages.append(record.outage)
        elif isinstance(record, DumpedOperation):
            self.operations.append(record.operation)
        elif isinstance(record, DumpedGroup):
            self.group_lives[record.id] = record.life
        elif isinstance(record, DumpedAudit):
            self.audit_head = head_of(record.record)


def restore(
    disk: Disk,
    batches: Iterable[Sequence[DumpRecord]],
    random_bytes: Callable[[int], bytes] = token_bytes,
) -> RestoreSummary:
    """Restore a dump into an empty directory.

    If interrupted, it leaves a directory that does not open: remove it and start again.
    """
    source = iter(batches)
    first = next(source, ())  # an incomplete dump is refused before anything is created
    disk.lock()
    try:
        if disk.names(LOG) or disk.names(SNAPSHOTS) or disk.database().exists():
            raise InvalidInput("directory", f"{disk.root} is not empty")
        snapshot = _SnapshotRecords()
        history = SqliteHistory.open(disk.database())
        try:
            last_seq = history.load(
                snapshot.collect(chain([first], source)), lambda: _head(snapshot).last_seq
            )
        finally:
            history.close()
        head = SnapshotHead(
            last_seq=last_seq,
            last_at_us=_head(snapshot).at_us,
            last_crc=0,
            first_segment=1,
            salt=int.from_bytes(random_bytes(4), "little"),
            cold=True,
            last_token=_head(snapshot).last_token,
            policies=snapshot.policies,
            flags=snapshot.flags,
            schedules=snapshot.schedules,
            audit_head=snapshot.audit_head,
            outages=snapshot.outages,
            operations=snapshot.operations,
            group_lives=snapshot.group_lives,
        )
        put_in_place(disk, write_unfinished(disk, head, snapshot.jobs)[0])
        return RestoreSummary(snapshot.count, sum(not job.state.finished for job in snapshot.jobs))
    finally:
        disk.unlock()


def _head(snapshot: _SnapshotRecords) -> DumpHead:
    if snapshot.head is None:
        raise CorruptDump("the dump", "it has no head")
    return snapshot.head
