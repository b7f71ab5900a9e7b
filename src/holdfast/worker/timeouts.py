"""Timeouts of many short attempts with one timer."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Hashable


class Timeouts:
    """Calls back with a key that was not removed by its deadline.

    A timer per attempt would cost more than a short task itself. Here ``set`` and ``remove`` are
    one dictionary operation each; the one timer checks the rest when it fires.
    """

    def __init__(self, on_timeout: Callable[[Hashable], None]) -> None:
        self._on_timeout = on_timeout
        self._due: dict[Hashable, float] = {}
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf

    def set(self, key: Hashable, when: float) -> None:
        """Call back with the key at ``when`` (loop time) unless it is removed before."""
        self._due[key] = when
        if when < self._timer_at:
            self._arm(when)

    def remove(self, key: Hashable) -> None:
        """Forget this deadline."""
        self._due.pop(key, None)

    def close(self) -> None:
        """Forget every deadline."""
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._loop.call_at(when, self._fire)

    def _fire(self) -> None:
        now = self._loop.time()
        self._timer, self._timer_at = None, math.inf
        late = [key for key, when in self._due.items() if when <= now]
        for key in late:
            # The callback for another key may have removed it.
            if self._due.pop(key, None) is not None:
                self._on_timeout(key)
        if self._due:
            self._arm(min(self._due.values()))
