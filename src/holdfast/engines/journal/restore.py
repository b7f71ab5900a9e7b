"""Restores a dump into an empty directory: a snapshot of unfinished work, and the history."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from secrets import token_bytes
from typing import NamedTuple

from holdfast.engines.dump.format import (
    DumpedAudit,
    DumpedEvent,
    DumpedFlag,
    DumpedGroup,
    DumpedJob,
    DumpedOperation,
    DumpedOutage,
    DumpedPolicy,
    DumpedProjection,
    DumpedRecord,
    DumpedSchedule,
    DumpedSubscription,
    DumpHead,
    DumpRecord,
)
from holdfast.model.audit import AuditHead, head_of
from holdfast.model.effects import ScheduleState
from holdfast.model.errors import CorruptDump, InvalidInput
from holdfast.model.event import Event
from holdfast.model.group_life import GroupLife
from holdfast.model.job import Job, State
from holdfast.model.operation import Operation
from holdfast.model.outage import Outage
from holdfast.model.policy import QueuePolicy
from holdfast.model.projection import ProjectionState
from holdfast.model.record import Record
from holdfast.model.subscription import Subscription

from .events.store import EventWriter, SqliteEvents
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
        self.subscriptions: dict[str, Subscription] = {}
        self.projections: dict[str, ProjectionState] = {}
        self.records: list[Record] = []
        self.fanout_version = 0
        self.last_event_seq = 0

    def collect(self, batches: Iterable[Sequence[DumpRecord]]) -> Iterator[Sequence[DumpRecord]]:
        """Yield these batches, and keep what the snapshot needs."""
        for batch in batches:
            for record in batch:
                self._take(record)
            yield batch

    def _take_job(self, job: Job) -> None:
        self.count += 1
        if not job.state.finished or (job.state is State.DEAD and job.ties.key is not None):
            self.jobs.append(job)  # a dead one holds up others of its key

    def _take_event(self, event: Event) -> None:
        if event.position <= self.last_event_seq:
            raise CorruptDump("the dump", f"event {event.id} is out of order")
        self.last_event_seq = event.position
        self.fanout_version = max(self.fanout_version, event.fanout_version)

    def _take(self, record: DumpRecord) -> None:
        if isinstance(record, DumpedJob):
            self._take_job(record.job)
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
        else:
            self._take_projected(record)

    def _take_projected(self, record: DumpRecord) -> None:
        """Take a record that is about events."""
        if isinstance(record, DumpedEvent):
            self._take_event(record.event)
        elif isinstance(record, DumpedProjection):
            self.projections[record.state.name] = record.state
        elif isinstance(record, DumpedRecord):
            self.records.append(record.record)
        elif isinstance(record, DumpedSubscription):
            self.subscriptions[record.subscription.name] = record.subscription
            self.fanout_version = max(self.fanout_version, record.subscription.since_version)


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
        databases = disk.database(), disk.events()
        if disk.names(LOG) or disk.names(SNAPSHOTS) or any(one.exists() for one in databases):
            raise InvalidInput("directory", f"{disk.root} is not empty")
        snapshot = _SnapshotRecords()
        last_seq = _fill_databases(disk, snapshot, chain([first], source))
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
            subscriptions=snapshot.subscriptions,
            fanout_version=snapshot.fanout_version,
            last_event_seq=snapshot.last_event_seq,
            projections=snapshot.projections,
            records=snapshot.records,
        )
        put_in_place(disk, write_unfinished(disk, head, snapshot.jobs)[0])
        return RestoreSummary(snapshot.count, sum(not job.state.finished for job in snapshot.jobs))
    finally:
        disk.unlock()


def _fill_databases(
    disk: Disk, snapshot: _SnapshotRecords, batches: Iterable[Sequence[DumpRecord]]
) -> int:
    """Store the finished jobs and the events; return the seq from which the log continues."""
    events = SqliteEvents.open(disk.events())
    history = SqliteHistory.open(disk.database())
    try:
        with ExitStack() as stack:
            writer: EventWriter | None = None

            def without_events() -> Iterator[Sequence[DumpRecord]]:
                nonlocal writer
                for batch in snapshot.collect(batches):
                    found = [one.event for one in batch if isinstance(one, DumpedEvent)]
                    if found:
                        writer = writer or stack.enter_context(events.writing())
                        writer.insert(found)
                    yield batch

            last_seq = history.load(
                without_events(), lambda: max(_head(snapshot).last_seq, snapshot.last_event_seq)
            )
            if writer is not None:
                writer.checkpoint = last_seq
        return last_seq
    finally:
        history.close()
        events.close()


def _head(snapshot: _SnapshotRecords) -> DumpHead:
    if snapshot.head is None:
        raise CorruptDump("the dump", "it has no head")
    return snapshot.head
