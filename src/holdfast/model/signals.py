"""What a task raises or returns about its own run: retry, snooze, dead, cancel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from .durations import Duration, seconds_of
from .errors import InvalidInput
from .retry import RetryPolicy, check_jitter


class Signal(Exception):
    """The base of the four. They are exceptions, so they can be raised from any depth."""


class Retry(Signal):
    """How to retry: the policy of a task (``retry=Retry(...)``), or of one attempt.

    Waits are exponential from ``backoff`` up to ``max_backoff``. ``waits`` names them one by one
    instead, such as ``["10s", "1m", "10m"]``; the last one repeats. ``jitter`` is the share of
    each that is random, from 0 to 1: with 0.5, the default, a wait is never below half of its
    nominal length. ``after`` is a fixed wait without jitter. ``max_attempts`` is the total number
    of runs; with ``waits`` it is one more than there are waits, unless given. The setting applies
    to what is not given, or, if an attempt raises it, the task's policy.
    """

    def __init__(
        self,
        message: str = "",
        *,
        after: Duration | None = None,
        max_attempts: int | None = None,
        backoff: Duration | None = None,
        max_backoff: Duration | None = None,
        waits: Sequence[Duration] | None = None,
        jitter: float | None = None,
    ) -> None:
        super().__init__(message or "the task asked to be tried again")
        self.after_seconds = None if after is None else seconds_of("after", after)
        self.max_attempts = max_attempts
        self.backoff_seconds = None if backoff is None else seconds_of("backoff", backoff)
        self.max_backoff_seconds = (
            None if max_backoff is None else seconds_of("max_backoff", max_backoff)
        )
        self.waits_seconds = () if waits is None else _waits(waits)
        self.jitter = None if jitter is None else check_jitter("jitter", jitter)
        if max_attempts is not None and (type(max_attempts) is not int or max_attempts < 1):
            raise InvalidInput("max_attempts", f"{max_attempts!r} is not a whole number from 1 up")
        if max_attempts is None and self.waits_seconds:
            self.max_attempts = len(self.waits_seconds) + 1
        exponential = backoff is not None or max_backoff is not None
        if self.after_seconds is not None and (exponential or waits is not None):
            raise InvalidInput("after", "give a fixed wait, waits or a backoff, not two of them")
        if self.after_seconds is not None and jitter is not None:
            raise InvalidInput("jitter", "a fixed wait has none: give waits=[…] instead of after")
        if waits is not None and exponential:
            raise InvalidInput("waits", "give waits or a backoff, not both")

    def policy(self, default: RetryPolicy) -> RetryPolicy:
        """Return the default policy with the values given here."""
        exponential = self.backoff_seconds is not None or self.max_backoff_seconds is not None
        others = self.waits_seconds or exponential  # then a fixed wait of the default is not meant
        return RetryPolicy(
            max_attempts=self.max_attempts or default.max_attempts,
            base_backoff_seconds=_or(self.backoff_seconds, default.base_backoff_seconds),
            max_backoff_seconds=_or(self.max_backoff_seconds, default.max_backoff_seconds),
            retry_after_max_seconds=default.retry_after_max_seconds,
            fixed_seconds=_or(self.after_seconds, None if others else default.fixed_seconds),
            waits_seconds=self.waits_seconds or (() if exponential else default.waits_seconds),
            jitter=_or(self.jitter, default.jitter),
        )


class Snooze(Signal):
    """Not yet: run it again ``after`` this time; the attempt is not charged."""

    def __init__(self, after: Duration) -> None:
        self.after_seconds = seconds_of("after", after)
        super().__init__(f"snoozed for {self.after_seconds:g} s")


class Dead(Signal):
    """It will never work: make it dead now, even with attempts left.

    ``message`` and ``error_reason`` are kept with the dead letter.
    """

    def __init__(self, message: str = "", *, error_reason: str = "business_error") -> None:
        super().__init__(message or "the task gave up for good")
        self.error_reason = error_reason


class Cancel(Signal):
    """It is no longer needed: end it as cancelled. ``message`` is for who reads the code."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or "the task cancelled itself")


class BatchError(Exception):
    """Some items of a batch failed: ``errors`` has the exception of each, by its index.

    These items fail as if each had raised its exception alone. The others are called again without
    them, as nothing is known about them.
    """

    def __init__(self, errors: Mapping[int, BaseException]) -> None:
        super().__init__(f"{len(errors)} items of the batch failed")
        self.errors = dict(errors)


T = TypeVar("T")


def _waits(waits: Sequence[Duration]) -> tuple[float, ...]:
    if isinstance(waits, str) or not waits:
        raise InvalidInput("waits", f"{waits!r} is not a list such as ['10s', '1m', '10m']")
    return tuple(seconds_of("waits", wait) for wait in waits)


def _or(value: T | None, default: T) -> T:
    return default if value is None else value
