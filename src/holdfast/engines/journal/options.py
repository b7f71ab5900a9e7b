"""The settings of a journal."""

from __future__ import annotations

import enum

from msgspec.structs import force_setattr

from holdfast.engines.contract import EngineOptions
from holdfast.model.errors import InvalidInput
from holdfast.model.job import check_seconds, check_size

from .events.feed import MAX_UNFED_BYTES
from .wal.group_commit import SyncMode
from .wal.segments import DEFAULT_SEGMENT_BYTES

MIN_SEGMENT_BYTES = 4 * 1024
DEFAULT_COMPACT_BYTES = 64 * 1024 * 1024


class DamagedHistory(enum.StrEnum):
    """What to do when the history file is damaged or missing."""

    REQUIRED = "required"
    """Refuse to start."""
    ANEW = "anew"
    """Set it aside and create a new one: unfinished work continues, the rest is not visible."""


class JournalOptions(EngineOptions, frozen=True, kw_only=True):
    """Settings of the journal, on top of those that every engine has."""

    sync: SyncMode = SyncMode.ALWAYS
    sync_interval_seconds: float = 0.1
    """With ``sync=interval``: how much acknowledged work a power cut may take, in seconds."""
    segment_bytes: int = DEFAULT_SEGMENT_BYTES
    compact_bytes: int = DEFAULT_COMPACT_BYTES
    """Compact when this much is sealed, and at least as much as the last snapshot."""
    keep_log_bytes: int = 0
    """How much of the log to keep for inspection after snapshots have made it needless."""
    history: DamagedHistory = DamagedHistory.REQUIRED
    max_history_backlog: int = 100_000
    """How many completions may wait to be stored before claims wait; other ends of an attempt
    count five times, and every 2 KiB of a payload or a result counts as one more."""
    max_events_backlog_bytes: int = MAX_UNFED_BYTES
    """How many bytes of events may wait to be stored before appends wait."""
    inline: bool = False
    """Do everything on the event loop, sequentially: for deterministic tests."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.sync, SyncMode):
            # Text from a settings file; an unknown value must not mean "do not sync".
            if self.sync not in list(SyncMode):
                raise InvalidInput("sync", f"{self.sync!r} is not one of {', '.join(SyncMode)}")
            force_setattr(self, "sync", SyncMode(self.sync))
        check_size("segment_bytes", self.segment_bytes, MIN_SEGMENT_BYTES)
        check_size("compact_bytes", self.compact_bytes, 1)
        check_size("keep_log_bytes", self.keep_log_bytes, 0)
        check_size("max_history_backlog", self.max_history_backlog, 1)
        check_size("max_events_backlog_bytes", self.max_events_backlog_bytes, 1)
        if not isinstance(self.history, DamagedHistory):
            if self.history not in list(DamagedHistory):
                raise InvalidInput(
                    "history", f"{self.history!r} is not one of {', '.join(DamagedHistory)}"
                )
            force_setattr(self, "history", DamagedHistory(self.history))
        check_seconds("sync_interval_seconds", self.sync_interval_seconds)
