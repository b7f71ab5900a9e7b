"""Opens a directory: recovers the state and the history, and prepares the files for writing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from holdfast.engines.embedded.history import AppliedEffect
from holdfast.engines.structured_log import StructuredLog
from holdfast.model.effects import Enqueued
from holdfast.model.errors import CorruptHistory, HistoryMissing, HoldfastError
from holdfast.model.event import Event

from .events.store import SqliteEvents
from .history.store import SqliteHistory
from .options import DamagedHistory, JournalOptions
from .state.state import JournalState
from .wal.disk import Disk
from .wal.group_commit import SyncMode
from .wal.recovery import (
    RecoveredState,
    covered_seq,
    make_durable,
    newest_head,
    recover,
    repair,
    seal_of,
    tidy,
)
from .wal.segments import SegmentWriter

log = StructuredLog("holdfast.journal")


class OpenedFiles(NamedTuple):
    """What opening a directory recovered and prepared."""

    found: RecoveredState
    history: SqliteHistory
    unrecorded: list[AppliedEffect]
    """What the log has and history lacks."""
    events: SqliteEvents
    unstored: list[Event]
    """The events that the log has and the store of events lacks."""
    writer: SegmentWriter


def open_files(
    disk: Disk, options: JournalOptions, random_bytes: Callable[[int], bytes]
) -> OpenedFiles:
    """Recover a locked directory and prepare its files for writing."""
    unrecorded: list[AppliedEffect] = []
    unstored: list[Event] = []
    head = newest_head(disk)
    # First, and whatever is done about the history: events are never begun anew.
    events = SqliteEvents.open(disk.events(), expected_seq=head.last_event_seq if head else 0)
    history: SqliteHistory | None = None
    try:
        found, history = _read(disk, options, covered_seq(head), unrecorded, events, unstored)
        events.check_reach(found.end.last_seq)
        return OpenedFiles(
            found,
            history,
            unrecorded,
            events,
            unstored,
            _begin_log(disk, found, options, random_bytes),
        )
    except BaseException:
        events.close()
        if history is not None:
            history.close()
        raise


def _read(
    disk: Disk,
    options: JournalOptions,
    expected_seq: int,
    unrecorded: list[AppliedEffect],
    events: SqliteEvents,
    unstored: list[Event],
) -> tuple[RecoveredState, SqliteHistory]:
    """Recover the directory; collect what the log has, and history and events lack."""
    state = partial(
        JournalState,
        unrecorded.append,
        record_event=unstored.append,
        events_seq=events.checkpoint,
        keep_payload=options.keep_payload,
    )
    if not expected_seq and not disk.database().exists():
        # Create nothing before the log is known to be whole.
        found = recover(disk, state(0))
        history = SqliteHistory.open(disk.database())
    else:
        history = _open_history(disk, options, expected_seq)
        try:
            found = recover(disk, state(history.checkpoint))
        except BaseException:
            history.close()
            raise
    if history.checkpoint > found.end.last_seq:
        problem = f"it goes up to seq {history.checkpoint}, the log only to {found.end.last_seq}"
        history.close()
        beyond = CorruptHistory(history.file, "checkpoint", "1", problem)
        if options.history is not DamagedHistory.ANEW:
            raise beyond
        unrecorded.clear()
        unstored.clear()
        history = _begin_history(disk, expected_seq, beyond)
        found = recover(disk, state(history.checkpoint))
    try:
        _record_finished(history, found, unrecorded)
    except BaseException:
        history.close()
        raise
    return found, history


def _open_history(disk: Disk, options: JournalOptions, expected_seq: int) -> SqliteHistory:
    try:
        return SqliteHistory.open(disk.database(), expected_seq=expected_seq)
    except (CorruptHistory, HistoryMissing) as error:
        if options.history is not DamagedHistory.ANEW:
            raise
        return _begin_history(disk, expected_seq, error)


def _begin_history(disk: Disk, begin_at: int, why: HoldfastError) -> SqliteHistory:
    aside = disk.database().set_aside() if disk.database().exists() else "nothing"
    log.emit("history.begun_anew", set_aside=aside, last_seq=begin_at, error=why)
    return SqliteHistory.open(disk.database(), begin_at=begin_at)


def _record_finished(
    history: SqliteHistory, found: RecoveredState, unrecorded: list[AppliedEffect]
) -> None:
    """Move the finished jobs of an old snapshot, which had them in it, to history at once."""
    if found.snapshot is not None and not found.snapshot.cold:
        from_snapshot = [one for one in unrecorded if isinstance(one.effect, Enqueued)]
        if from_snapshot:
            history.feed(from_snapshot, found.snapshot.last_seq)
            unrecorded[:] = [one for one in unrecorded if not isinstance(one.effect, Enqueued)]


def _begin_log(
    disk: Disk,
    found: RecoveredState,
    options: JournalOptions,
    random_bytes: Callable[[int], bytes],
) -> SegmentWriter:
    """Prepare the log for writing: the next segment first, then the end of the last one."""
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
