"""Opening a directory: what is in it, in memory and in the past, and files that can go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from holdfast.engines.embedded.history import AppliedEffect
from holdfast.engines.structured_log import StructuredLog
from holdfast.model.effects import Enqueued
from holdfast.model.errors import CorruptHistory, HistoryMissing, HoldfastError

from .history import set_aside
from .history.store import SqliteHistory
from .options import DamagedHistory, JournalOptions
from .state.queries import JournalState
from .wal.disk import Disk
from .wal.group_commit import SyncMode
from .wal.recovery import RecoveredState, covered_seq, make_durable, recover, repair, seal_of, tidy
from .wal.segments import SegmentWriter

log = StructuredLog("holdfast.journal")


class OpenedFiles(NamedTuple):
    """What opening a directory found, read and made ready."""

    found: RecoveredState
    cold: SqliteHistory
    told: list[AppliedEffect]
    """What happened that the past has not been told."""
    writer: SegmentWriter


def open_files(
    disk: Disk, options: JournalOptions, random_bytes: Callable[[int], bytes]
) -> OpenedFiles:
    """Read a locked directory and make its files ready to go on."""
    told: list[AppliedEffect] = []
    found, cold = _read(disk, options, told)
    try:
        return OpenedFiles(found, cold, told, _begin_log(disk, found, options, random_bytes))
    except BaseException:
        cold.close()
        raise


def _read(
    disk: Disk, options: JournalOptions, told: list[AppliedEffect]
) -> tuple[RecoveredState, SqliteHistory]:
    """Read the directory, and note what happened that the past has not been told."""
    expected_seq = covered_seq(disk)
    if not expected_seq and not disk.database().exists():
        # Nothing is made before the log is known to be whole.
        found = recover(disk, JournalState(told.append))
        cold = SqliteHistory.open(disk.database())
    else:
        cold = _open_cold(disk, options, expected_seq)
        try:
            found = recover(disk, JournalState(told.append, cold.checkpoint))
        except BaseException:
            cold.close()
            raise
    if cold.checkpoint > found.end.last_seq:
        problem = f"it goes up to seq {cold.checkpoint}, the log only to {found.end.last_seq}"
        cold.close()
        beyond = CorruptHistory(cold.file, "checkpoint", "1", problem)
        if options.history is not DamagedHistory.ANEW:
            raise beyond
        told.clear()
        cold = _begin_cold(disk, expected_seq, beyond)
        found = recover(disk, JournalState(told.append, cold.checkpoint))
    try:
        _keep_finished(cold, found, told)
    except BaseException:
        cold.close()
        raise
    return found, cold


def _open_cold(disk: Disk, options: JournalOptions, expected_seq: int) -> SqliteHistory:
    try:
        return SqliteHistory.open(disk.database(), expected_seq=expected_seq)
    except (CorruptHistory, HistoryMissing) as error:
        if options.history is not DamagedHistory.ANEW:
            raise
        return _begin_cold(disk, expected_seq, error)


def _begin_cold(disk: Disk, begin_at: int, why: HoldfastError) -> SqliteHistory:
    aside = set_aside(disk) if disk.database().exists() else "nothing"
    log.emit("history.begun_anew", set_aside=aside, last_seq=begin_at, error=why)
    return SqliteHistory.open(disk.database(), begin_at=begin_at)


def _keep_finished(cold: SqliteHistory, found: RecoveredState, told: list[AppliedEffect]) -> None:
    """Keep finished jobs that a snapshot from before there was a past has in it, all at once."""
    if found.snapshot is not None and not found.snapshot.cold:
        from_snapshot = [one for one in told if isinstance(one.effect, Enqueued)]
        if from_snapshot:
            cold.feed(from_snapshot, found.snapshot.last_seq)
            told[:] = [one for one in told if not isinstance(one.effect, Enqueued)]


def _begin_log(
    disk: Disk,
    found: RecoveredState,
    options: JournalOptions,
    random_bytes: Callable[[int], bytes],
) -> SegmentWriter:
    """Make the files ready to go on: the next segment first, then the end of the last one."""
    end = found.end
    make_durable(disk, found)
    tidy(disk, end)
    mend = repair(disk, end)
    writer = SegmentWriter(
        disk,
        first_number=end.next_number,
        prev_crc=end.prev_crc if mend is None else seal_of(end)[1],
        last_seq=end.last_seq,
        segment_bytes=options.segment_bytes,
        random_bytes=random_bytes,
        relaxed=options.sync is not SyncMode.ALWAYS,
    )
    if mend is not None:
        mend()
    return writer
