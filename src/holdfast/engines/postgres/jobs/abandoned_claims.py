"""Claims that nobody waits for any more: what they take is handed back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence

from holdfast.engines.contract import Claim
from holdfast.model.job import Job

from .claim import ClaimSurvey

Claimed = tuple[Claim, ClaimSurvey | None]


class AbandonedClaims:
    """Lets a claim come to its end, also if who asked for it is cancelled meanwhile."""

    def __init__(self, release: Callable[[Sequence[Job]], Awaitable[None]]) -> None:
        """Take what hands jobs back."""
        self._release = release
        self._handing_back: set[asyncio.Task[None]] = set()

    async def see_through(self, claiming: Coroutine[object, object, Claimed]) -> Claimed:
        """Claim; if nobody waits for the answer any more, hand back what came."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def end(_task: asyncio.Task[Claimed] | None = None) -> None:
            if not ended.done():
                ended.set_result(None)

        async def claim() -> Claimed:
            try:
                return await claiming
            finally:
                end()  # who waits hears of it a turn sooner than by the task's end

        task = loop.create_task(claim())
        task.add_done_callback(end)  # also if it is cancelled before it begins
        try:
            await ended  # and not the task: who is cancelled would cancel that
        except asyncio.CancelledError:
            back = loop.create_task(self._hand_back(task))
            self._handing_back.add(back)
            back.add_done_callback(self._handing_back.discard)
            raise
        return task.result()

    async def _hand_back(self, claiming: asyncio.Task[Claimed]) -> None:
        await asyncio.wait([claiming])
        if not claiming.cancelled() and claiming.exception() is None:
            await self._release(claiming.result()[0].jobs)

    async def close(self, seconds: float) -> None:
        """Wait until everything is handed back, for so long at most."""
        if self._handing_back:
            await asyncio.wait(self._handing_back, timeout=seconds)
