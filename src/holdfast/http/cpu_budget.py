"""A share of the event loop's time, so that peers who ask for more wait and others do not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_CALLBACK_SECONDS = 0.000_03
"""What the event loop itself spends on a callback, beside the time that is measured in it."""
_BURST_SECONDS = 0.1


class CpuBudget:
    """Fills up with time at a steady share, to a tenth of a second; ``charge`` takes from it."""

    def __init__(self, share: float, clock: Callable[[], float]) -> None:
        self._share = share
        self._clock = clock
        self._left_seconds = _BURST_SECONDS
        self._filled_at = clock()

    def charge(self, seconds: float) -> None:
        """Take this much, and what the event loop has spent on calling; it may become negative."""
        self._fill()
        self._left_seconds -= seconds + _CALLBACK_SECONDS

    def wait_seconds(self) -> float:
        """Return how long to wait until there is time left; 0 if there is."""
        self._fill()
        return max(0.0, -self._left_seconds / self._share)

    async def wait(self) -> None:
        """Return when there is time left."""
        while (seconds := self.wait_seconds()) > 0:  # noqa: ASYNC110 - nothing happens at that time
            await asyncio.sleep(seconds)

    def _fill(self) -> None:
        now = self._clock()
        filled = self._left_seconds + (now - self._filled_at) * self._share
        self._left_seconds = min(_BURST_SECONDS, filled)
        self._filled_at = now
