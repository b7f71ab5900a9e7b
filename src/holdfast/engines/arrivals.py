"""Claims that wait: who waits for which queues, and what wakes them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from .clock import Clock


class Arrivals:
    """Wakes waiting claims when work may have come for them. A wake-up promises nothing."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[asyncio.Future[None], frozenset[str]] = {}

    @property
    def anybody(self) -> bool:
        """Whether anybody waits."""
        return bool(self._waiting)

    def announce(self, queues: Collection[str]) -> None:
        """Wake every claim that waits for one of these queues."""
        for future, wanted in self._waiting.items():
            if not wanted.isdisjoint(queues):
                _wake(future)

    def announce_end(self) -> None:
        """Wake everybody: the engine is going away."""
        for future in self._waiting:
            _wake(future)

    async def wait(self, queues: Collection[str], until_us: int) -> None:
        """Return when work may have come for these queues, or at ``until_us``."""
        future = asyncio.get_running_loop().create_future()
        self._waiting[future] = frozenset(queues)
        timer = self._clock.call_at(until_us, lambda: _wake(future))
        try:
            await future
        finally:
            timer.cancel()
            del self._waiting[future]


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
