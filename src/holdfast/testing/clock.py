"""A clock that a test moves."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

START_US = 1_800_000_000_000_000


class VirtualTimer:
    """A callback with a due time."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Cancel the callback."""
        self.callback = None


class VirtualClock:
    """Satisfies ``holdfast.engines.clock.Clock``; time stands still until ``advance``."""

    def __init__(self, now_us: int = START_US) -> None:
        self._now_us = now_us
        self._timers: list[tuple[int, int, VirtualTimer]] = []
        self._order = itertools.count()

    def now_us(self) -> int:
        """Return the current virtual time."""
        return self._now_us

    def call_at(self, when_us: int, callback: Callable[[], None]) -> VirtualTimer:
        """Call back when ``advance`` reaches that time; at once if it is not in the future."""
        timer = VirtualTimer(callback)
        heapq.heappush(self._timers, (when_us, next(self._order), timer))
        self._fire()
        return timer

    def advance(self, seconds: float) -> None:
        """Move time forward and run the callbacks that become due, in order."""
        target_us = self._now_us + int(seconds * 1_000_000)
        while self._timers and self._timers[0][0] <= target_us:
            self._now_us = max(self._now_us, self._timers[0][0])
            self._fire()
        self._now_us = max(self._now_us, target_us)

    def _fire(self) -> None:
        while self._timers and self._timers[0][0] <= self._now_us:
            timer = heapq.heappop(self._timers)[2]
            if timer.callback is not None:
                timer.callback()
