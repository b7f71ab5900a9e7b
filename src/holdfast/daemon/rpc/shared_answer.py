"""An answer that is made once for all who ask at about the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedAnswer(Generic[T]):
    """Makes an answer when somebody asks, and keeps it for a moment.

    It is kept for longer if making it is expensive, so that making it takes at most ``share`` of
    the time, however often it is asked for.
    """

    def __init__(
        self, make: Callable[[], Awaitable[T]], kept_seconds: float, *, share: float = 1.0
    ) -> None:
        self._make = make
        self._kept_seconds = kept_seconds
        self._share = share
        self._making: asyncio.Task[T] | None = None
        self._fresh_until = 0.0

    async def get(self) -> T:
        """Return the answer; it is never older than it is kept."""
        loop = asyncio.get_running_loop()
        making = self._making
        if making is None or (making.done() and loop.time() >= self._fresh_until):
            making = self._making = loop.create_task(self._make_timed())
        return await asyncio.shield(making)

    async def _make_timed(self) -> T:
        loop = asyncio.get_running_loop()
        started = perf_counter()
        try:
            return await self._make()
        finally:
            cost_seconds = (perf_counter() - started) / self._share
            self._fresh_until = loop.time() + max(self._kept_seconds, cost_seconds)
