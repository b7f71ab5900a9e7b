"""What a kind of log line is: see ``log_events`` for all of them."""

from __future__ import annotations

from typing import Literal

import msgspec

Level = Literal["debug", "info", "warning", "error"]

SUM_AFTER = 10
SUM_SECONDS = 10.0


class LogEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of line: when it is written, what is in it, and what to do about it."""

    name: str
    level: Level
    fields: tuple[str, ...] = ()
    meaning: str
    action: str
    summed: bool = False
    """Whether many of them at once are summed up."""
