"""The lag of the event loop: how much blocking tasks delay everything else."""

from __future__ import annotations

import asyncio

_EVERY_SECONDS = 0.25
_WINDOW_SECONDS = 15.0


class LoopLag:
    """The largest delay of a timer in the last one to two windows."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._due = self._loop.time()
        self._window_ends = self._due + _WINDOW_SECONDS
        self._worst = self._worst_before = 0.0

    def start(self) -> None:
        """Start to measure."""
        self._due = self._loop.time() + _EVERY_SECONDS
        self._timer = self._loop.call_at(self._due, self._tick)

    def stop(self) -> None:
        """Stop measuring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def seconds(self) -> float:
        """The largest delay, including a timer that is overdue now."""
        late = 0.0 if self._timer is None else self._loop.time() - self._due
        return max(self._worst, self._worst_before, late)

    def _tick(self) -> None:
        now = self._loop.time()
        if now >= self._window_ends:
            self._worst, self._worst_before = 0.0, self._worst
            self._window_ends = now + _WINDOW_SECONDS
        self._worst = max(self._worst, now - self._due)
        self.start()
