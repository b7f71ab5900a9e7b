"""Compaction: fold sealed segments into a new snapshot, then delete what it covers.

The folding is done by another process (``compactor``), which only ever writes a temporary file.
The owner checks that file, puts it in place and deletes. Two snapshots are kept, and every
segment since the older one: a damaged snapshot costs time, not work.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import msgspec

from holdfast.engines.journal.state.state import JournalState
from holdfast.engines.journal.wal.disk import (
    LOG,
    SNAPSHOTS,
    Disk,
    file_size,
    read_all,
    write_all,
)
from holdfast.engines.journal.wal.log_reader import kept_names, segment_numbers, used_bytes
from holdfast.engines.journal.wal.recovery import FrameApplier, starting_point
from holdfast.engines.journal.wal.segments import KEPT_SUFFIX, UNFINISHED_SUFFIX, segment_name
from holdfast.engines.structured_log import StructuredLog
from holdfast.model.job import MAX_TIME_US

from .snapshot import (
    SnapshotHead,
    is_whole,
    put_in_place,
    read_head,
    snapshot_names,
    write_unfinished,
)

log = StructuredLog("holdfast.journal")

KEPT_SNAPSHOTS = 2


class CompactionRequest(msgspec.Struct, frozen=True):
    """What the compacting process is asked to do."""

    root: str
    snapshots: str
    last_segment: int
    salt: int


class CompactionResult(msgspec.Struct, frozen=True):
    """What the compacting process wrote."""

    unfinished: str
    size: int
    last_seq: int


def compact(disk: Disk, request: CompactionRequest) -> CompactionResult:
    """Write the snapshot up to the end of ``last_segment`` under a temporary name.

    History must have everything up to there, and the store of events all events: the snapshot
    leaves out finished jobs, except dead ones that hold up others of their key, and events.
    """
    start = starting_point(disk, JournalState(history_seq=MAX_TIME_US))
    state, reader = start.state, start.reader
    reader.read(start.first_segment, FrameApplier(state), last=request.last_segment)
    head = head_of(state, reader.prev_crc, request.last_segment + 1, request.salt)
    unfinished, size = write_unfinished(disk, head, chain(state.jobs(), state.holds()))
    return CompactionResult(unfinished, size, state.seq)


def head_of(state: JournalState, last_crc: int, first_segment: int, salt: int) -> SnapshotHead:
    """Return the head of a snapshot of this state."""
    return SnapshotHead(
        last_seq=state.seq,
        last_at_us=state.last_at_us,
        last_crc=last_crc,
        first_segment=first_segment,
        salt=salt,
        cold=True,
        last_token=state.last_token,
        policies=state.policies,
        gates=state.limits.states,
        flags=state.flags,
        schedules=state.schedules,
        audit_head=state.audit_head,
        last_created_us=state.last_created_us,
        outages=state.outages.all(),
        operations=list(state.operations),
        group_lives=state.group_lives,
        subscriptions=state.subscriptions,
        fanout_version=state.fanout_version,
        last_event_seq=state.last_event_seq,
        projections=state.projections,
        unordered=sorted(state.unordered),
        records=list(state.records.values()),
    )


def adopt(
    disk: Disk,
    compacted: CompactionResult,
    keep_log_bytes: int,
    *,
    keep_snapshots: int = KEPT_SNAPSHOTS,
) -> None:
    """Put a compacted snapshot in place and delete everything that it replaces.

    Needless segments stay for inspection, under another name, up to ``keep_log_bytes`` of them.
    """
    name = put_in_place(disk, compacted.unfinished)
    log.emit("journal.snapshot_written", file=name, bytes=compacted.size)
    # Only whole snapshots count: a damaged one must not displace a whole one.
    names = snapshot_names(disk)
    kept = [old for old in names if old == name or is_whole(disk, old)][:keep_snapshots]
    for old in names:
        if old not in kept:
            disk.remove(old)
    disk.sync_directory(SNAPSHOTS)
    if len(kept) == keep_snapshots:
        needed_from = read_head(disk, kept[-1]).first_segment
        _delete_segments(disk, lambda number: number < needed_from, keep_log_bytes)


def _delete_segments(disk: Disk, needless: Callable[[int], bool], keep_log_bytes: int) -> None:
    """Delete needless segments; keep the newest, and those kept before, as far as there is room."""
    for number in segment_numbers(disk):
        if needless(number) and keep_log_bytes:
            _keep_segment(disk, segment_name(number))
        elif needless(number):
            disk.remove(segment_name(number))
    left_bytes = keep_log_bytes
    for name in reversed(kept_names(disk)):
        left_bytes -= file_size(disk, name)
        if left_bytes < 0:
            disk.remove(name)
    disk.sync_directory(LOG)


def _keep_segment(disk: Disk, name: str) -> None:
    """Give a needless segment another name, without the space that it does not use."""
    data = read_all(disk, name)
    unfinished = name + KEPT_SUFFIX + UNFINISHED_SUFFIX
    fd = disk.create(unfinished)
    try:
        write_all(disk, fd, data[: used_bytes(data)], 0)
        disk.sync(fd)
    finally:
        disk.close(fd)
    disk.rename(unfinished, name + KEPT_SUFFIX)
    disk.remove(name)
