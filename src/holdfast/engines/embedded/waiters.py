"""Claims that wait for work, and how they are woken."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterator

from holdfast.engines.clock import Clock

Kind = tuple[str, str]
"""A queue, and a task in it."""


class ClaimWaiters:
    """Wakes waiting claims when there may be work for them. A wake-up promises nothing."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[asyncio.Future[None], _Wanted] = {}

    @property
    def waiting(self) -> bool:
        """Whether any claim waits."""
        return bool(self._waiting)

    def wake(self, kinds: Collection[Kind], queues: Collection[str] = ()) -> None:
        """Wake every claim that waits for work of one of these kinds, or in one of these queues."""
        for future, (wanted, tasks) in self._waiting.items():
            if any(queue in wanted for queue in queues) or any(
                queue in wanted and (tasks is None or task in tasks) for queue, task in kinds
            ):
                _wake(future)

    def wake_all(self) -> None:
        """Wake every claim: the engine closes, or it is unknown what arrived."""
        for future in self._waiting:
            _wake(future)

    async def wait(
        self, queues: Collection[str], tasks: Collection[str] | None, until_us: int
    ) -> None:
        """Return when these queues may have work for these tasks, or at ``until_us``."""
        with self.expecting(queues, tasks) as woken:
            await self.sleep(woken, until_us)

    @contextlib.contextmanager
    def expecting(
        self, queues: Collection[str], tasks: Collection[str] | None
    ) -> Iterator[asyncio.Future[None]]:
        """Yield a future that is done once there may be work for these."""
        woken = asyncio.get_running_loop().create_future()
        self._waiting[woken] = (queues, None if tasks is None else frozenset(tasks))
        try:
            yield woken
        finally:
            del self._waiting[woken]

    async def sleep(self, woken: asyncio.Future[None], until_us: int) -> None:
        """Return when that future is done, or at ``until_us``."""
        timer = self._clock.call_at(until_us, lambda: _wake(woken))
        try:
            await woken
        finally:
            timer.cancel()


_Wanted = tuple[Collection[str], Collection[str] | None]


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
