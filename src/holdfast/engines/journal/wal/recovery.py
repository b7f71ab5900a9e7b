"""Recovery: load the newest whole snapshot, then apply every frame after it."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator

import msgspec

from holdfast.engines.journal.snapshots.snapshot import (
    SnapshotHead,
    discard_unfinished,
    is_current,
    read_head,
    read_snapshot,
    snapshot_names,
)
from holdfast.engines.journal.state.state import JournalState, share_names
from holdfast.engines.structured_log import StructuredLog
from holdfast.model.effects import Effect, Enqueued
from holdfast.model.errors import CorruptLog, HoldfastError, InvariantViolation
from holdfast.model.job import Job

from . import frames
from .disk import LOG, SNAPSHOTS, Disk, write_all
from .frames import Frame, FrameKind
from .log_reader import LogEnd, LogReader, segment_numbers
from .schema import SCHEMA, RecordReader
from .segments import UNFINISHED_SUFFIX, segment_name

log = StructuredLog("holdfast.journal")


class RecoveredState(msgspec.Struct):
    """What recovery found."""

    state: JournalState
    end: LogEnd
    snapshot: SnapshotHead | None
    damaged_snapshots: list[CorruptLog]
    migrated: bool
    """Whether something of an older schema was read."""


def recover(disk: Disk, state: JournalState | None = None) -> RecoveredState:
    """Read the directory into an empty state; change nothing.

    Raise ``CorruptLog`` or ``UnknownFormat``.
    """
    with _no_garbage_collection():
        start = starting_point(disk, JournalState() if state is None else state)
        applier = FrameApplier(start.state)
        end = start.reader.read(start.first_segment, applier)
        if start.state.seq != start.reader.last_seq:
            raise InvariantViolation(
                f"folded up to {start.state.seq}, read up to {start.reader.last_seq}"
            )
    migrated = applier.migrated
    if start.snapshot is not None and not is_current(disk, start.snapshot):
        migrated = True
    return RecoveredState(start.state, end, start.snapshot, start.damaged, migrated)


class RecoveryStart(msgspec.Struct):
    """The newest whole snapshot, loaded, and the log from there on."""

    state: JournalState
    reader: LogReader
    first_segment: int
    snapshot: SnapshotHead | None
    damaged: list[CorruptLog]


def starting_point(disk: Disk, empty: JournalState) -> RecoveryStart:
    """Find where to read from: a damaged snapshot only costs time if the log reaches back."""
    state, snapshot, damaged = newest_snapshot(disk, empty)
    if snapshot is not None:
        reader = LogReader(disk, prev_crc=snapshot.last_crc, last_seq=snapshot.last_seq)
        return RecoveryStart(state, reader, snapshot.first_segment, snapshot, damaged)
    numbers = segment_numbers(disk)
    if damaged and (not numbers or numbers[0] != 1):
        raise damaged[0]
    if numbers and numbers[0] != 1:
        raise CorruptLog(
            segment_name(numbers[0]), 0, 0, "the segments and snapshots before it are gone"
        )
    return RecoveryStart(state, LogReader(disk), 1, None, damaged)


def newest_head(disk: Disk) -> SnapshotHead | None:
    """Return the head of the newest snapshot whose head can be read."""
    for name in snapshot_names(disk):
        with contextlib.suppress(CorruptLog):
            return read_head(disk, name)
    return None


def covered_seq(head: SnapshotHead | None) -> int:
    """Return up to where a snapshot leaves finished jobs to history; 0 if it does not."""
    return head.last_seq if head is not None and head.cold else 0


def make_durable(disk: Disk, found: RecoveredState) -> None:
    """Sync what recovery read: after a kill it may be only in the page cache."""
    first = 1 if found.snapshot is None else found.snapshot.first_segment
    for number in segment_numbers(disk):
        if number >= first:
            fd = disk.open(segment_name(number))
            try:
                disk.sync(fd)
            finally:
                disk.close(fd)
    disk.sync_directory(LOG)
    disk.sync_directory(SNAPSHOTS)


class FrameApplier:
    """Folds frames into a state; an impossible record is ``CorruptLog``."""

    def __init__(self, state: JournalState) -> None:
        self.migrated = False
        """Whether a frame of an older schema was folded."""
        self._state = state
        self._readers: dict[str, RecordReader] = {}

    def __call__(self, frame: Frame, name: str, offset: int) -> None:
        """Fold one frame of records."""
        seq = frame.first_seq
        self.migrated |= frame.schema != SCHEMA
        try:
            for effect in effects_of(frame, name, self._readers):
                if type(effect) is Enqueued:
                    share_names(effect.job)
                self._state.fold(effect, seq)
                seq += 1
        except (CorruptLog, MemoryError):
            raise
        except (HoldfastError, LookupError, ValueError, TypeError) as error:
            problem = f"the records contradict what came before ({error})"
            raise CorruptLog(name, offset, seq, problem) from error


def effects_of(frame: Frame, name: str, readers: dict[str, RecordReader]) -> list[Effect]:
    """Return the effects in a frame of records, migrated to the current schema."""
    reader = readers.get(name)
    if reader is None:
        reader = readers[name] = RecordReader(name)
    try:
        effects = reader.effects(frame.payload, frame.schema)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        problem = f"the records cannot be read ({error})"
        raise CorruptLog(name, frame.start, frame.first_seq, problem) from None
    if len(effects) != frame.count:
        problem = f"{len(effects)} records where {frame.count} were promised"
        raise CorruptLog(name, frame.start, frame.first_seq, problem)
    return effects


def repair(disk: Disk, end: LogEnd) -> Callable[[], None] | None:
    """Return what must be written before the log can continue after a crash, if anything.

    The last segment is rewritten with an end, from what was read off the device, so that nothing
    depends on pages that a failed sync may have left in the cache. The next segment must exist
    first.
    """
    if end.unsealed is None:
        return None
    name = segment_name(end.next_number - 1)
    whole = end.unsealed

    def write() -> None:
        if end.torn_offset is not None:
            _write_file(disk, f"{name}.torn-{end.torn_offset}", end.torn)
            log.emit(
                "journal.torn_tail_cut", file=name, offset=end.torn_offset, bytes=len(end.torn)
            )
        _write_file(disk, name + UNFINISHED_SUFFIX, whole + seal_of(end)[0])
        disk.rename(name + UNFINISHED_SUFFIX, name)
        disk.sync_directory(LOG)

    return write


def seal_of(end: LogEnd) -> tuple[bytes, int]:
    """Return the seal that an unsealed segment gets, and its CRC."""
    return frames.encode(
        FrameKind.SEAL,
        SCHEMA,
        b"",
        first_seq=end.last_seq + 1,
        prev_crc=end.prev_crc,
        salt=end.salt,
    )


def tidy(disk: Disk, end: LogEnd) -> None:
    """Remove what an interrupted owner left: temporary files, and segments past the end."""
    discard_unfinished(disk)
    for name in disk.names(LOG):
        if name.endswith(UNFINISHED_SUFFIX):
            disk.remove(name)
    for number in segment_numbers(disk):
        # The next one stays until it is replaced: a sealed segment without a next is damage.
        if number > end.next_number:
            disk.remove(segment_name(number))
    disk.sync_directory(LOG)


def _write_file(disk: Disk, name: str, data: bytes) -> None:
    fd = disk.create(name)
    try:
        write_all(disk, fd, data, 0)
        disk.sync(fd)
    finally:
        disk.close(fd)


def newest_snapshot(
    disk: Disk, empty: JournalState
) -> tuple[JournalState, SnapshotHead | None, list[CorruptLog]]:
    """Load the newest snapshot that is whole; return the state, its head, and the damaged ones."""
    damaged: list[CorruptLog] = []
    for name in snapshot_names(disk):
        state = empty.empty_copy()

        def load(jobs: Iterator[Job], head: SnapshotHead, into: JournalState = state) -> None:
            into.last_token = head.last_token
            into.last_created_us = head.last_created_us
            into.group_lives.update(head.group_lives)
            into.unordered.update(head.unordered)
            into.outages.load(head.outages)
            into.subscriptions.update(head.subscriptions)
            into.projections.update(head.projections)
            into.records.update({(one.kind, one.name): one for one in head.records})
            into.fanout_version = head.fanout_version
            into.last_event_seq = head.last_event_seq
            into.load_settings(
                head.policies,
                head.gates,
                head.flags,
                head.schedules,
                head.audit_head,
                head.operations,
            )
            into.load(jobs, head.last_seq, head.last_at_us, in_history=head.cold)

        try:
            return state, read_snapshot(disk, name, load), damaged
        except CorruptLog as error:
            log.emit("journal.snapshot_damaged", error=error)
            damaged.append(error)
    return empty.empty_copy(), None, damaged


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Millions of new objects and no garbage: a collection would only cost time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
