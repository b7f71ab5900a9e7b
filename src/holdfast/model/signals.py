"""What a task raises or returns about its own run: retry, snooze, dead, cancel."""

from __future__ import annotations

from typing import TypeVar

from .durations import Duration, seconds_of
from .errors import InvalidInput
from .retry import RetryPolicy


class Signal(Exception):
    """The base of the four. They are exceptions, so they can be raised from any depth."""


class Retry(Signal):
    """How to retry: the policy of a task (``retry=Retry(...)``), or of one attempt.

    Waits are exponential from ``backoff`` up to ``max_backoff``, with full jitter; ``after`` is a
    fixed wait instead. ``max_attempts`` is the total number of runs. The setting applies
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
    ) -> None:
        super().__init__(message or "the task asked to be tried again")
        self.after_seconds = None if after is None else seconds_of("after", after)
        self.max_attempts = max_attempts
        self.backoff_seconds = None if backoff is None else seconds_of("backoff", backoff)
        self.max_backoff_seconds = (
            None if max_backoff is None else seconds_of("max_backoff", max_backoff)
        )
        if max_attempts is not None and (type(max_attempts) is not int or max_attempts < 1):
            raise InvalidInput("max_attempts", f"{max_attempts!r} is not a whole number from 1 up")
        if self.after_seconds is not None and (backoff is not None or max_backoff is not None):
            raise InvalidInput("after", "give a fixed wait or a backoff, not both")

    def policy(self, default: RetryPolicy) -> RetryPolicy:
        """Return the default policy with the values given here."""
        return RetryPolicy(
            max_attempts=self.max_attempts or default.max_attempts,
            base_backoff_seconds=_or(self.backoff_seconds, default.base_backoff_seconds),
            max_backoff_seconds=_or(self.max_backoff_seconds, default.max_backoff_seconds),
            retry_after_max_seconds=default.retry_after_max_seconds,
            fixed_seconds=_or(
                self.after_seconds,
                default.fixed_seconds if self.backoff_seconds is None else None,
            ),
        )


class Snooze(Signal):
    """Run it later; this attempt is not charged."""

    def __init__(self, after: Duration) -> None:
        self.after_seconds = seconds_of("after", after)
        super().__init__(f"snoozed for {self.after_seconds:g} s")


class Dead(Signal):
    """It will never work: make it dead now, even with attempts left."""

    def __init__(self, message: str = "", *, error_reason: str = "business_error") -> None:
        super().__init__(message or "the task gave up for good")
        self.error_reason = error_reason


class Cancel(Signal):
    """It is no longer needed: end it as cancelled."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or "the task cancelled itself")


T = TypeVar("T")


def _or(value: T | None, default: T) -> T:
    return default if value is None else value
