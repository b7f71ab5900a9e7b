"""Claims whose caller was cancelled: the jobs that they took are handed back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence

from holdfast.engines.contract import Claim
from holdfast.model.job import Job

from .claim_statements import QueueHeads

Claimed = tuple[Claim, QueueHeads | None]


class AbandonedClaims:
    """Runs claims to their end, even if the caller is cancelled meanwhile."""

    def __init__(self, release: Callable[[Sequence[Job]], Awaitable[None]]) -> None:
        """Take the function that hands jobs back."""
        self._release = release
        self._releasing: set[asyncio.Task[None]] = set()

    async def run(self, claiming: Coroutine[object, object, Claimed]) -> Claimed:
        """Claim; if the caller is cancelled, hand back what was claimed."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def end(_task: asyncio.Task[Claimed] | None = None) -> None:
            if not ended.done():
                ended.set_result(None)

        async def claim() -> Claimed:
            try:
                return await claiming
            finally:
                end()  # wakes the caller one loop iteration earlier than the task's own callback

        task = loop.create_task(claim())
        task.add_done_callback(end)  # also if it is cancelled before it starts
        try:
            await ended  # not the task: a cancelled caller would cancel that
        except asyncio.CancelledError:
            releasing = loop.create_task(self._hand_back(task))
            self._releasing.add(releasing)
            releasing.add_done_callback(self._releasing.discard)
            raise
        return task.result()

    async def _hand_back(self, claiming: asyncio.Task[Claimed]) -> None:
        await asyncio.wait([claiming])
        if not claiming.cancelled() and claiming.exception() is None:
            await self._release(claiming.result()[0].jobs)

    async def close(self, timeout_seconds: float) -> None:
        """Wait until everything is handed back."""
        if self._releasing:
            await asyncio.wait(self._releasing, timeout=timeout_seconds)
