"""Batches concurrent calls: they share a transaction, and are decided in their order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from .enqueue_statements import EnqueueRequest

MAX_BATCH_JOBS = 5_000
"""The most jobs of one transaction; a single request may have more."""


class RequestBatcher:
    """Runs one transaction at a time; requests that come meanwhile share the next."""

    def __init__(self, decide: Callable[[Sequence[EnqueueRequest]], Awaitable[None]]) -> None:
        self._decide = decide
        self._waiting: deque[tuple[EnqueueRequest, asyncio.Future[None]]] = deque()
        self._busy = False
        self._worker: asyncio.Task[None] | None = None

    async def add(self, request: EnqueueRequest) -> None:
        """Return when the request has its answer."""
        if self._busy:
            request.build()
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((request, done))
            await done
            return
        self._busy = True
        try:
            await self._decide([request])  # the first is sent at once, alone
        finally:
            if self._waiting:
                self._worker = asyncio.ensure_future(self._work())
            else:
                self._busy = False

    async def _work(self) -> None:
        try:
            while self._waiting:
                await self._decide_batch()
        finally:
            self._busy = False

    async def _decide_batch(self) -> None:
        batch: list[tuple[EnqueueRequest, asyncio.Future[None]]] = []
        count = 0
        while self._waiting:
            count += len(self._waiting[0][0].jobs)
            if batch and count > MAX_BATCH_JOBS:
                break
            batch.append(self._waiting.popleft())
        requests = [request for request, done in batch if not done.done()]  # not the cancelled
        error: BaseException | None = None
        try:
            if requests:
                await self._decide(requests)
        except BaseException as raised:  # noqa: BLE001 - every waiter gets it
            error = raised
        for _request, done in batch:
            if done.done():
                continue
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)
        if error is not None and not isinstance(error, Exception):
            raise error
