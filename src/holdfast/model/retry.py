"""When to try again: exponential backoff with full jitter, Retry-After, and a cap on attempts."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from .errors import InvalidInput
from .failure import Failure, FailureClass

DEFAULT_MAX_ATTEMPTS = 3


class RetryPolicy(msgspec.Struct, frozen=True):
    """How often and how soon a failed job runs again.

    ``max_attempts`` counts runs in all: 3 means three runs. ``retry_after_max_seconds`` bounds
    what an upstream may ask for.
    """

    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    base_backoff_seconds: float = 1.0
    max_backoff_seconds: float = 300.0
    retry_after_max_seconds: float = 3_600.0
    fixed_seconds: float | None = None
    """Always wait this long, without backoff."""

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise InvalidInput("max_attempts", f"{self.max_attempts} is less than 1")
        for field in ("base_backoff_seconds", "max_backoff_seconds", "retry_after_max_seconds"):
            value = getattr(self, field)
            if not 0 <= value < float("inf"):
                raise InvalidInput(field, f"{value} is not a number of seconds from 0 up")

    def delay_seconds(
        self, failure: Failure, attempt: int, uniform: Callable[[float, float], float]
    ) -> float | None:
        """Return how long to wait before the next run, or None if there is none.

        ``uniform(low, high)`` is the source of jitter: ``random.uniform`` in production.
        """
        if failure.failure_class is FailureClass.DETERMINISTIC or attempt >= self.max_attempts:
            return None
        if self.fixed_seconds is not None:
            return self.fixed_seconds
        # 2**63 seconds is past any cap; the bound keeps huge attempt counts from overflowing.
        exponential = self.base_backoff_seconds * 2.0 ** min(attempt - 1, 63)
        jittered = uniform(0.0, min(self.max_backoff_seconds, exponential))
        if failure.retry_after_seconds is None:
            return jittered
        # Add jitter: many clients got the same number.
        return min(failure.retry_after_seconds, self.retry_after_max_seconds) + jittered
