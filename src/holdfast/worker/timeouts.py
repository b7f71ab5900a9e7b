"""Time-outs of many short attempts with one timer."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Hashable


class Timeouts:
    """Calls back when something has not been taken off again by its deadline.

    A timer per attempt would cost more than a short task itself. Here setting and taking off are
    one dictionary move; the one timer looks at what is left when it fires.
    """

    def __init__(self, overdue: Callable[[Hashable], None]) -> None:
        self._overdue = overdue
        self._due: dict[Hashable, float] = {}
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf

    def set(self, key: Hashable, when: float) -> None:
        """Call back with the key at ``when`` (of the loop's clock) unless it is taken off."""
        self._due[key] = when
        if when < self._timer_at:
            self._arm(when)

    def take_off(self, key: Hashable) -> None:
        """Expect it no longer."""
        self._due.pop(key, None)

    def close(self) -> None:
        """Call nobody back any more."""
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        self._timer, self._timer_at = None, math.inf
        late = [key for key, when in self._due.items() if when <= now]
        for key in late:
            # Unless one that was late as well has taken it off.
            if self._due.pop(key, None) is not None:
                self._overdue(key)
        if self._due:
            self._arm(min(self._due.values()))
