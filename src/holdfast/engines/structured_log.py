"""Structured log events with the names and fields of ``holdfast.model.log_events``.

Records go through the standard library's ``logging``, so the application decides where they go:
the message is one line of text, the fields are attributes of the record.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping

from holdfast.model.errors import HoldfastError
from holdfast.model.job import Job
from holdfast.model.log_events import EVENTS, JOB_FIELDS
from holdfast.model.visible_text import visible, visible_lines

Field = str | int | float | bool | None

LEVELS: Mapping[str, int] = logging.getLevelNamesMapping()
_LEVEL_OF = {name: LEVELS[event.level.upper()] for name, event in EVENTS.items()}
_MOST_FRAMES = 30
_MOST_CAUSES = 4
_LONGEST_TEXT = 500


class LogMessage:
    """The message of a record: an event and its fields, as text for people."""

    __slots__ = ("event", "fields")

    def __init__(self, event: str, fields: Mapping[str, Field]) -> None:
        self.event = event
        self.fields = fields

    def __str__(self) -> str:
        last = {"error", "trace"}
        words = [f"{name}={value}" for name, value in self.fields.items() if name not in last]
        if "error" in self.fields:
            words.append(str(self.fields["error"]))
        line = visible(" ".join([self.event, *words]))
        if "trace" in self.fields:
            line += f"\n{visible_lines(str(self.fields['trace']))}"
        return line


class StructuredLog:
    """Logs events under the name of one logger."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def enabled_for(self, event: str) -> bool:
        """Whether this event is logged at all: check before a loop over many jobs."""
        return self._logger.isEnabledFor(_LEVEL_OF[event])

    def emit(
        self,
        event: str,
        *,
        about: Job | None = None,
        error: BaseException | None = None,
        foreign: BaseException | None = None,
        **fields: Field,
    ) -> None:
        """Log this event, ``about`` a claimed job; a field that is None is left out.

        An unexpected ``error`` is logged with its origin. Of a ``foreign`` one, raised by code of
        the application, only the type is logged: its text may contain a payload.
        """
        level = _LEVEL_OF[event]
        if not self._logger.isEnabledFor(level):
            return
        all_fields = fields if about is None else job_fields(about) | fields
        logged = {name: value for name, value in all_fields.items() if value is not None}
        if foreign is not None:
            logged["error"] = error_text(foreign)
        elif error is not None:
            logged["error"] = _with_type(error)
        raised = foreign or error
        if raised is not None and not isinstance(raised, HoldfastError):
            logged["trace"] = error_origin(raised)
        self._logger.log(level, LogMessage(event, logged), extra=logged, stacklevel=2)


def quieten(name: str) -> None:
    """Keep the warnings of this logger off standard error while no log is configured."""
    logging.getLogger(name).addHandler(logging.NullHandler())


def job_fields(job: Job) -> dict[str, Field]:
    """Return ``JOB_FIELDS`` of this job; without a worker if none has it."""
    values = (job.id, job.task, job.queue, job.attempt, job.tenant, job.worker or None)
    return dict(zip(JOB_FIELDS, values, strict=True))


def error_text(error: BaseException) -> str:
    """Return what an error says of itself if it is ours or the system's, otherwise its type."""
    if isinstance(error, HoldfastError) or (isinstance(error, OSError) and error.errno is not None):
        return str(error)
    return type(error).__name__


def _with_type(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, HoldfastError):
        return text
    return f"{type(error).__name__}: {text[:_LONGEST_TEXT]}"


def error_origin(error: BaseException) -> str:
    """Return where an exception and its causes came from: types, files, lines, functions."""
    lines: list[str] = []
    causes = 0
    current: BaseException | None = error
    while current is not None and causes < _MOST_CAUSES:
        lines.append(f"{'because of ' if causes else ''}{type(current).__name__}, raised in:")
        frames = traceback.extract_tb(current.__traceback__)[-_MOST_FRAMES:]
        lines += [f"  {frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        hidden = current.__suppress_context__
        current = current.__cause__ or (None if hidden else current.__context__)
        causes += 1
    return "\n".join(lines)
