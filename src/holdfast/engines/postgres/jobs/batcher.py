"""Calls of one process that come at once and are decided together, in their order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from .enqueue import EnqueueRequest

MOST_JOBS = 5_000
"""How many jobs go into one transaction; a single request may have more."""


class CallBatcher:
    """One transaction is under way at a time; requests that come meanwhile share the next."""

    def __init__(self, decide: Callable[[Sequence[EnqueueRequest]], Awaitable[None]]) -> None:
        self._decide = decide
        self._waiting: deque[tuple[EnqueueRequest, asyncio.Future[None]]] = deque()
        self._busy = False
        self._worker: asyncio.Task[None] | None = None

    async def add(self, request: EnqueueRequest) -> None:
        """Have a request decided; return when it has its answer."""
        if self._busy:
            request.make()
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((request, done))
            await done
            return
        self._busy = True
        try:
            await self._decide([request])  # the first goes at once, and by itself
        finally:
            if self._waiting:
                self._worker = asyncio.ensure_future(self._work())
            else:
                self._busy = False

    async def _work(self) -> None:
        try:
            while self._waiting:
                await self._decide_some()
        finally:
            self._busy = False

    async def _decide_some(self) -> None:
        some: list[tuple[EnqueueRequest, asyncio.Future[None]]] = []
        count = 0
        while self._waiting:
            count += len(self._waiting[0][0].jobs)
            if some and count > MOST_JOBS:
                break
            some.append(self._waiting.popleft())
        requests = [request for request, done in some if not done.done()]  # some gave up
        error: BaseException | None = None
        try:
            if requests:
                await self._decide(requests)
        except BaseException as raised:  # noqa: BLE001 - whoever waits must hear of anything
            error = raised
        for _request, done in some:
            if done.done():
                continue
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)
        if error is not None and not isinstance(error, Exception):
            raise error
