"""Failures: each gets an error_reason and a class, by ordered, named rules."""

from __future__ import annotations

import enum
import errno
import json
import math
import traceback as tracebacks
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from .errors import InvalidInput, PayloadInvalid

REASON_LIMIT = 100
MESSAGE_LIMIT = 2_000
TRACEBACK_LIMIT = 16_000
NOTES_LIMIT = 4_000
"""How much of a traceback may be notes of the exception."""
LEAST_STATUS, MOST_STATUS = 100, 599


class FailureClass(enum.StrEnum):
    """Whether trying again can help."""

    TRANSIENT = "transient"
    """It can: it is retried."""
    DETERMINISTIC = "deterministic"
    """The same input would fail the same way: it is dead at once."""
    UNKNOWN = "unknown"
    """It is retried, and a person decides when the attempts are used up."""


_TRANSIENT, _DETERMINISTIC, _UNKNOWN = FailureClass

REASONS: Mapping[str, FailureClass] = {
    "rate_limited": _TRANSIENT,
    "upstream_5xx": _TRANSIENT,
    "timeout": _TRANSIENT,
    "connection": _TRANSIENT,
    "upstream_4xx": _DETERMINISTIC,
    "mapping_error": _DETERMINISTIC,
    "parse_error": _DETERMINISTIC,
    "payload_invalid": _DETERMINISTIC,
    "business_error": _DETERMINISTIC,
    "expired": _DETERMINISTIC,
    # A lost job may have killed its worker: a person decides whether it runs again.
    "worker_lost": _UNKNOWN,
    "stuck": _UNKNOWN,
    "cpu_limit": _UNKNOWN,
    "unexpected": _UNKNOWN,
}
"""The reasons that Holdfast itself gives, and the class of each."""


class Failure(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One failure as it is stored: bounded, and readable by a person."""

    error_reason: str
    failure_class: FailureClass
    message: str = ""
    traceback: str = ""
    retry_after_seconds: float | None = None
    status: int | None = None
    """The HTTP status, if the exception has one."""

    @classmethod
    def of(cls, error_reason: str, message: str) -> Failure:
        """Return the failure of a reason in ``REASONS``."""
        return cls(error_reason, REASONS[error_reason], message)


def bounded(failure: Failure) -> Failure:
    """Return the failure with its texts shortened and cleaned for storage."""
    return msgspec.structs.replace(
        failure,
        error_reason=_bounded(failure.error_reason, REASON_LIMIT),
        message=_bounded(failure.message, MESSAGE_LIMIT),
        traceback=_bounded(failure.traceback, TRACEBACK_LIMIT, keep_end=True),
    )


def check_failure(failure: Failure) -> None:
    """Raise ``InvalidInput`` unless the failure can be stored and read again."""
    if not isinstance(failure, Failure):
        raise InvalidInput("failure", f"a {type(failure).__name__} is not a Failure")
    texts = (
        ("error_reason", failure.error_reason, REASON_LIMIT),
        ("message", failure.message, MESSAGE_LIMIT),
        ("traceback", failure.traceback, TRACEBACK_LIMIT),
    )
    for field, text, limit in texts:
        if type(text) is not str or text != _bounded(text, limit):
            raise InvalidInput(field, f"not a plain text of at most {limit:,} characters")
    if type(failure.failure_class) is not FailureClass or not failure.error_reason:
        raise InvalidInput("failure", "it needs an error_reason and a FailureClass")
    wait_seconds = failure.retry_after_seconds
    if wait_seconds is not None and (
        type(wait_seconds) not in (int, float) or not 0 <= wait_seconds < math.inf
    ):
        raise InvalidInput("retry_after_seconds", f"{wait_seconds!r} is not a number of seconds")
    status = failure.status
    if status is not None and (
        type(status) is not int or not LEAST_STATUS <= status <= MOST_STATUS
    ):
        raise InvalidInput("status", f"{status!r} is not an HTTP status")


class Verdict(msgspec.Struct, frozen=True):
    """The result of a rule for an exception."""

    error_reason: str
    """Why it failed, in one word: dead letters are found and grouped by it."""
    failure_class: FailureClass
    """Whether trying again can help."""
    retry_after_seconds: float | None = None
    """How long to wait at least, if the other side said so."""


class Rule(msgspec.Struct, frozen=True):
    """One named rule of a ``Classifier``."""

    name: str
    """The rule's name."""
    judge: Callable[[BaseException, datetime], Verdict | None]
    """``judge(error, now)`` returns a verdict, or None to leave it to the next rule."""


class Classifier:
    """Decides what the exceptions of tasks mean, by ordered rules: the first verdict counts.

    ``rules`` are the application's own; the default ones come after them. They know exceptions
    that declare an ``error_reason``, HTTP statuses, time-outs, connections, and input that cannot
    be parsed or validated. Without a verdict the reason is ``unexpected``.
    """

    rules: tuple[Rule, ...]
    """All rules, in their order."""

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self.rules = (*rules, *DEFAULT_RULES)

    def classify(self, error: BaseException, now: datetime) -> Failure:
        """Return the failure to store for ``error``; ``now`` resolves Retry-After dates."""
        verdict = self.judge(error, now)[1]
        wait_seconds = verdict.retry_after_seconds
        if wait_seconds is not None and not 0 <= wait_seconds < math.inf:
            wait_seconds = None
        return Failure(
            _bounded(verdict.error_reason, REASON_LIMIT),
            verdict.failure_class,
            _bounded(f"{type(error).__name__}: {_text(error)}", MESSAGE_LIMIT),
            _traceback(error),
            wait_seconds,
            _error_status(error),
        )

    def judge(self, error: BaseException, now: datetime) -> tuple[str, Verdict]:
        """Return the name of the rule that decides on ``error`` at ``now``, and its verdict."""
        for rule in self.rules:
            try:
                verdict = rule.judge(error, now)
            except Exception:  # noqa: BLE001, S112 - an error's own properties may do anything
                continue
            if verdict is not None:
                return rule.name, verdict
        return "unexpected", _verdict("unexpected")


def by_type(
    name: str,
    types: type[BaseException] | tuple[type[BaseException], ...],
    error_reason: str,
    failure_class: FailureClass | None = None,
) -> Rule:
    """Return a rule that gives exceptions of these types this reason.

    A reason that is not in ``REASONS`` needs a class.
    """
    verdict = Verdict(error_reason, failure_class or REASONS[error_reason])
    return Rule(name, lambda error, _now: verdict if isinstance(error, types) else None)


def retry_after_seconds(value: str, now: datetime) -> float | None:
    """Return the seconds that a Retry-After header asks for; None if it is invalid."""
    value = value.strip()
    if value.isascii() and value.isdigit():
        return float(value[:12])
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - slow to import

    try:
        when = parsedate_to_datetime(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - now).total_seconds())


def _verdict(error_reason: str, retry_after: float | None = None) -> Verdict:
    return Verdict(error_reason, REASONS[error_reason], retry_after)


def _declared(error: BaseException, _now: datetime) -> Verdict | None:
    """Judge an exception that names its own ``error_reason`` (and, if new, ``failure_class``)."""
    reason = getattr(error, "error_reason", None)
    if not isinstance(reason, str) or not reason:
        return None
    stated = getattr(error, "failure_class", None)
    if isinstance(stated, str) and stated in list(FailureClass):
        return Verdict(reason, FailureClass(stated))
    return Verdict(reason, REASONS.get(reason, FailureClass.UNKNOWN))


def _http_status(error: BaseException, now: datetime) -> Verdict | None:
    status = _error_status(error)
    if status is None:
        return None
    if status == 408:
        return _verdict("timeout")
    header = _header(error, "retry-after")
    retry_after = None if header is None else retry_after_seconds(header, now)
    if status == 429:
        return _verdict("rate_limited", retry_after)
    if status >= 500:
        return _verdict("upstream_5xx", retry_after)
    return _verdict("upstream_4xx")


def _error_status(error: BaseException) -> int | None:
    """Return the HTTP status of an error, whatever rule decides on it; None without one."""
    try:
        status = _status_of(error)
    except Exception:  # noqa: BLE001 - an error's own properties may do anything
        return None
    return status if status is not None and 400 <= status <= MOST_STATUS else None


def _status_of(error: BaseException) -> int | None:
    for holder in (getattr(error, "response", None), error):
        for name in ("status_code", "status", "code"):
            value = getattr(holder, name, None)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
    return None


def _header(error: BaseException, name: str) -> str | None:
    for holder in (getattr(error, "response", None), error):
        headers = getattr(holder, "headers", None)
        get = getattr(headers, "get", None)
        if callable(get):
            value = get(name) or get(name.title())
            if isinstance(value, str):
                return value
    return None


# Clients whose errors are not OSErrors, by the base class that they document.
_CLIENT_ERRORS = {
    ("httpx", "TimeoutException"): "timeout",
    ("httpx", "TransportError"): "connection",
    ("httpx2", "TimeoutException"): "timeout",
    ("httpx2", "TransportError"): "connection",
    ("requests", "Timeout"): "timeout",
    ("requests", "ConnectionError"): "connection",
    ("aiohttp", "ServerTimeoutError"): "timeout",
    ("aiohttp", "ClientConnectionError"): "connection",
    ("redis", "TimeoutError"): "timeout",
    ("redis", "ConnectionError"): "connection",
    ("psycopg", "OperationalError"): "connection",
    ("pydantic_core", "ValidationError"): "payload_invalid",
}


def _known_client(error: BaseException, _now: datetime) -> Verdict | None:
    for cls in type(error).__mro__:
        reason = _CLIENT_ERRORS.get((cls.__module__.partition(".")[0], cls.__name__))
        if reason is not None:
            return _verdict(reason)
    return None


_UNREACHABLE = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN}


def _unreachable(error: BaseException, _now: datetime) -> Verdict | None:
    if isinstance(error, ConnectionError):
        return _verdict("connection")
    if not isinstance(error, OSError):
        return None
    # By name: importing socket and urllib for two classes would make the model do I/O.
    names = {cls.__name__ for cls in type(error).__mro__}
    if "gaierror" in names or error.errno in _UNREACHABLE:
        return _verdict("connection")
    if "URLError" in names:
        inner = getattr(error, "reason", None)
        return _verdict("timeout" if isinstance(inner, TimeoutError) else "connection")
    return None


DEFAULT_RULES: tuple[Rule, ...] = (
    Rule("declared", _declared),
    Rule("http_status", _http_status),
    by_type("timeout", TimeoutError, "timeout"),
    Rule("unreachable", _unreachable),
    by_type("parse", (json.JSONDecodeError, UnicodeDecodeError), "parse_error"),
    by_type("validation", (msgspec.ValidationError, PayloadInvalid), "payload_invalid"),
    by_type("decode", msgspec.DecodeError, "parse_error"),
    Rule("known_client", _known_client),
)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - a task's own __str__ may do anything
        return f"<its text could not be read: {type(broken).__name__}>"


def _traceback(error: BaseException) -> str:
    """Return where it was raised, and below that its notes (PEP 678), as Python prints them."""
    # Bounded by frames first: formatting a runaway recursion whole would cost megabytes.
    summary = tracebacks.extract_tb(error.__traceback__)
    lines = tracebacks.format_list(summary[-50:])
    return _bounded("".join(lines) + _notes(error), TRACEBACK_LIMIT, keep_end=True)


def _notes(error: BaseException) -> str:
    """Return the notes, each on lines of its own, shortened together."""
    try:
        notes = getattr(error, "__notes__", None)
    except Exception:  # noqa: BLE001 - a task's own property may do anything
        return ""
    if not isinstance(notes, list | tuple):
        return ""
    # Anything may be among them, but only text is one.
    text = "\n".join(str.__str__(note) for note in notes[:100] if isinstance(note, str))
    return _bounded(text, NOTES_LIMIT) + "\n" if text else ""


def _bounded(text: str, limit: int, *, keep_end: bool = False) -> str:
    # No NUL either: the log detects an unfinished write by its zero bytes.
    text = text.encode("utf-8", "backslashreplace").decode().replace("\0", "␀")
    if len(text) <= limit:
        return text
    return "…" + text[-limit + 1 :] if keep_end else text[: limit - 1] + "…"
