"""When to try again: backoff with jitter, Retry-After, and a cap on attempts."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from .errors import InvalidInput
from .failure import Failure, FailureClass

DEFAULT_MAX_ATTEMPTS = 20
DEFAULT_BASE_BACKOFF_SECONDS = 2.0
DEFAULT_MAX_BACKOFF_SECONDS = 900.0
DEFAULT_JITTER = 0.5
"""Equal jitter: a wait is never below half of its nominal length."""


class RetryPolicy(msgspec.Struct, frozen=True):
    """How often and how soon a failed job runs again.

    ``max_attempts`` counts runs in all: 3 means three runs. ``retry_after_max_seconds`` bounds
    what an upstream may ask for.
    """

    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    base_backoff_seconds: float = DEFAULT_BASE_BACKOFF_SECONDS
    max_backoff_seconds: float = DEFAULT_MAX_BACKOFF_SECONDS
    retry_after_max_seconds: float = 3_600.0
    fixed_seconds: float | None = None
    """Always wait this long, without backoff and jitter."""
    waits_seconds: tuple[float, ...] = ()
    """The nominal wait after each failure, instead of a backoff; the last one repeats."""
    jitter: float = DEFAULT_JITTER
    """The share of a wait that is random: 0 is none, 1 is anything from zero to the whole."""

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise InvalidInput("max_attempts", f"{self.max_attempts} is less than 1")
        for field in ("base_backoff_seconds", "max_backoff_seconds", "retry_after_max_seconds"):
            value = getattr(self, field)
            if not 0 <= value < float("inf"):
                raise InvalidInput(field, f"{value} is not a number of seconds from 0 up")
        check_jitter("jitter", self.jitter)

    def nominal_seconds(self, attempt: int) -> float:
        """Return the longest wait after this run: without jitter and Retry-After."""
        if self.fixed_seconds is not None:
            return self.fixed_seconds
        if self.waits_seconds:
            return self.waits_seconds[min(attempt, len(self.waits_seconds)) - 1]
        # 2**63 seconds is past any cap; the bound keeps huge attempt counts from overflowing.
        exponential = self.base_backoff_seconds * 2.0 ** min(attempt - 1, 63)
        return min(self.max_backoff_seconds, exponential)

    def delay_seconds(
        self, failure: Failure, attempt: int, uniform: Callable[[float, float], float]
    ) -> float | None:
        """Return how long to wait before the next run, or None if there is none.

        ``uniform(low, high)`` is the source of jitter: ``random.uniform`` in production.
        """
        if failure.failure_class is FailureClass.DETERMINISTIC or attempt >= self.max_attempts:
            return None
        nominal = self.nominal_seconds(attempt)
        if self.fixed_seconds is not None:
            return nominal
        jittered = uniform((1.0 - self.jitter) * nominal, nominal)
        if failure.retry_after_seconds is None:
            return jittered
        # Add the wait: many clients got the same number.
        return min(failure.retry_after_seconds, self.retry_after_max_seconds) + jittered


def check_jitter(field: str, value: float) -> float:
    """Return it, or raise ``InvalidInput`` unless it is a share from 0 to 1."""
    if type(value) not in (int, float) or not 0 <= value <= 1:
        raise InvalidInput(field, f"{value!r} is not a number from 0 (none) to 1 (full)")
    return float(value)
