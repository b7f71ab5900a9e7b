"""Writes log records to standard error, as text or JSON.

``holdfast.model.log_events`` lists the events, and how floods are summed up. Anything in a record
that looks like a secret is hidden here once more.
"""

from __future__ import annotations

import logging
import reprlib
import sys
from collections.abc import Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, TextIO

import msgspec

from holdfast.engines.clock import monotonic
from holdfast.engines.structured_log import (
    LEVELS,
    LogMessage,
    StructuredLog,
    error_origin,
    error_text,
)
from holdfast.model.job import MICROSECONDS
from holdfast.model.log_events import EVENTS, SUM_AFTER, SUM_SECONDS
from holdfast.model.redaction import HIDDEN, names_a_secret, without_secrets
from holdfast.model.visible_text import visible, visible_lines
from holdfast.settings.parsers import LogFormat, LogLevel

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor, WrappedLogger

log = StructuredLog("holdfast.log")

MAX_RECORD_CHARACTERS = 64 * 1024
"""The most text of one record; what is beyond is cut before anything else looks at it."""
_MAX_KINDS = 1_000
_MAX_DEPTH = 6
_MAX_MEMBERS = 1_000
"""The most members of a list or a mapping that are logged."""
_CUT = "… (cut)"
_INTERNAL = ("holdfast", "asyncio")
"""Loggers whose exceptions may come from a task: logged without their text."""
_TASKS = "holdfast.task"
_DRIVER = "psycopg"


class LogOptions(msgspec.Struct, frozen=True):
    """How a process logs; its child processes do the same."""

    level: LogLevel = "info"
    format: LogFormat = "auto"


class SuppressedCount(msgspec.Struct, frozen=True):
    """How many records of one kind were left out."""

    of: str
    count: int
    seconds: float
    queue: str | None = None
    error_reason: str | None = None
    job: str | None = None


class _Window:
    __slots__ = ("began", "last_job", "left_out", "written")

    def __init__(self, began: float) -> None:
        self.began = began
        self.written = 0
        self.left_out = 0
        self.last_job: str | None = None


class FloodControl:
    """Decides which records of a flood to leave out, and counts them."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._windows: dict[tuple[str, str | None, str | None], _Window] = {}
        self._next_due = 0.0

    def leaves_out(self, event: str, fields: Mapping[str, object]) -> bool:
        """Whether to leave out this record. Call ``due`` first: its window may have ended."""
        kind = event, _text(fields.get("queue")), _text(fields.get("error_reason"))
        window = self._windows.get(kind)
        if window is None:
            if len(self._windows) >= _MAX_KINDS:
                kind = event, None, None
            window = self._windows.setdefault(kind, _Window(self._clock()))
        if window.written < SUM_AFTER:
            window.written += 1
            return False
        window.left_out += 1
        window.last_job = _text(fields.get("job"))
        return True

    def due(self, *, everything: bool = False) -> list[SuppressedCount]:
        """Return the sums of windows that have ended, and reset these."""
        now = self._clock()
        if now < self._next_due and not everything:
            return []
        self._next_due = now + SUM_SECONDS / 10
        ended = [
            (kind, window)
            for kind, window in self._windows.items()
            if everything or now - window.began >= SUM_SECONDS
        ]
        for kind, _window in ended:
            del self._windows[kind]
        return [
            SuppressedCount(
                of, window.left_out, round(now - window.began, 1), queue, reason, window.last_job
            )
            for (of, queue, reason), window in ended
            if window.left_out
        ]


class RateLimitedHandler(logging.StreamHandler[TextIO]):
    """Writes records as text or JSON; of a flood only a few and a sum."""

    def __init__(self, log_format: LogFormat, stream: TextIO | None = None) -> None:
        super().__init__(sys.stderr if stream is None else stream)
        self._sums = FloodControl()
        self._as_json = log_format == "json" or (log_format == "auto" and not self.stream.isatty())

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, unless it is part of a flood."""
        if record.name.partition(".")[0] == _DRIVER:
            # Its free text would be the name of an event.
            log.emit("postgres.driver", text=record.getMessage().partition("\n")[0])
            return
        self.sum_up()
        if not self._leaves_out(record.msg):
            super().emit(record)

    def _leaves_out(self, message: object) -> bool:
        if not isinstance(message, LogMessage) or not EVENTS[message.event].summed:
            return False
        return self._sums.leaves_out(message.event, message.fields)

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        if self.formatter is None:
            # Lazily: most child processes never log.
            self.setFormatter(_formatter(as_json=self._as_json, colors=self.stream.isatty()))
        return super().format(record)

    def sum_up(self, *, everything: bool = False) -> None:
        """Log what was left out, if its window has ended."""
        for one in self._sums.due(everything=everything):
            log.emit(
                "log.summed",
                of=one.of,
                count=one.count,
                seconds=one.seconds,
                queue=one.queue,
                error_reason=one.error_reason,
                job=one.job,
            )

    def close(self) -> None:
        """Log what was left out so far, and close."""
        if self in logging.getLogger().handlers:
            self.sum_up(everything=True)
        super().close()


class SuppressedSummaryLoop:
    """A loop that logs what was left out when a flood is over."""

    async def step(self, now_us: int) -> int:
        """Log what was left out, if anything."""
        sum_up()
        return now_us + int(SUM_SECONDS * MICROSECONDS)


_options: LogOptions | None = None


def configure_logging(options: LogOptions) -> None:
    """Send the log records of this process to standard error only."""
    global _options  # noqa: PLW0603 - a process has one log
    root = logging.getLogger()
    root.handlers[:] = [RateLimitedHandler(options.format)]
    root.setLevel(logging.WARNING)
    _options = options
    set_log_level(options.level)


def set_log_level(level: LogLevel) -> None:
    """Set the level, here and for new child processes."""
    global _options  # noqa: PLW0603
    if _options is not None:
        _options = LogOptions(level, _options.format)
    logging.getLogger("holdfast").setLevel(LEVELS[level.upper()])


def log_options() -> LogOptions | None:
    """Return how this process logs; None if the application configures it."""
    return _options


def sum_up(*, everything: bool = False) -> None:
    """Log what was left out of this process's log."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, RateLimitedHandler):
            handler.sum_up(everything=everything)


# --- records to lines ------------------------------------------------------------------------


def _formatter(*, as_json: bool, colors: bool) -> logging.Formatter:
    import structlog  # noqa: PLC0415 - lazy

    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _named,
        structlog.processors.format_exc_info,
        _redacted,
    ]
    renderer: Processor = (
        structlog.processors.JSONRenderer()  # in ASCII, with escapes
        if as_json
        else structlog.dev.ConsoleRenderer(colors=colors)
    )
    shape = _for_json if as_json else _for_people
    remove = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[shape, remove, renderer],
    )


def _named(_logger: WrappedLogger, _method: str, fields: EventDict) -> EventDict:
    """Set the event name of Holdfast's records, and log exceptions without their text."""
    record: logging.LogRecord = fields["_record"]
    if isinstance(record.msg, LogMessage):
        fields["event"] = record.msg.event
    ours = record.name.partition(".")[0] in _INTERNAL and record.name != _TASKS
    if ours and not isinstance(record.msg, LogMessage):
        fields["event"] = str(fields["event"]).partition("\n")[0]
        error = record.exc_info[1] if record.exc_info else None
        fields.pop("exc_info", None)
        if error is not None:
            fields["error"], fields["trace"] = error_text(error), error_origin(error)
    return fields


def _redacted(_logger: WrappedLogger, _method: str, fields: EventDict) -> EventDict:
    """Hide what looks like a secret, and cut what is too long."""
    room = _Room()
    kept: EventDict = {name: value for name, value in fields.items() if name.startswith("_")}
    for name, value in fields.items():
        if name not in kept:
            kept[room.cut(name)] = _hidden(name, value, 0, room)
    return kept


class _Room:
    """How much more text a record takes."""

    def __init__(self) -> None:
        self._left = MAX_RECORD_CHARACTERS

    def cut(self, text: str) -> str:
        """Return as much of the text as there is room for."""
        found = text if len(text) <= self._left else text[: self._left] + _CUT
        self._left = max(0, self._left - len(text))
        return found


def _hidden(name: str, value: object, depth: int, room: _Room) -> object:
    if names_a_secret(name[:_MAX_MEMBERS]):
        return HIDDEN
    if isinstance(value, str):
        return without_secrets(room.cut(value))
    if depth < _MAX_DEPTH and isinstance(value, Mapping):
        return {
            room.cut(str(key)): _hidden(str(key), inner, depth + 1, room)
            for key, inner in islice(value.items(), _MAX_MEMBERS)
        }
    if depth < _MAX_DEPTH and isinstance(value, list | tuple):
        return [_hidden("", inner, depth + 1, room) for inner in value[:_MAX_MEMBERS]]
    if isinstance(value, bool | float | None):
        return value
    return value if _is_short(value) else without_secrets(room.cut(_repr(value)))


def _is_short(value: object) -> bool:
    return isinstance(value, int) and abs(value) < 1 << 64


def _repr(value: object) -> str:
    """Return Python code for a value, of which a part is left out if it is deep or long."""
    short = reprlib.Repr()
    short.maxlevel, short.maxother, short.maxstring, short.maxlong = 3, 10_000, 1_000, 100
    try:
        return short.repr(value)
    except Exception as error:  # noqa: BLE001 - of the application's own object
        return f"<{type(value).__name__}: {type(error).__name__} in repr>"


def _for_json(_logger: WrappedLogger, _method: str, fields: EventDict) -> EventDict:
    record: logging.LogRecord = fields["_record"]
    fields.setdefault("pid", record.process)  # unless the record names another process
    return fields


def _for_people(_logger: WrappedLogger, _method: str, fields: EventDict) -> EventDict:
    """Print a trace below its line; nothing in a record can control the terminal."""
    if "trace" in fields:
        fields["exception"] = fields.pop("trace")
    return {
        visible(name): _shown(value, lines=name in _SEVERAL_LINES)
        if not name.startswith("_")
        else value
        for name, value in fields.items()
    }


_SEVERAL_LINES = ("exception", "stack")


def _shown(value: object, *, lines: bool = False) -> object:
    if isinstance(value, str):
        return visible_lines(value) if lines else visible(value)
    if isinstance(value, int | float | None):
        return value
    return visible(str(value))


def _text(value: object) -> str | None:
    return None if value is None else str(value)
