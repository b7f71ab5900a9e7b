"""Periodic work: small objects with a step, and the supervisor that calls them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Protocol

from holdfast.engines.clock import Clock
from holdfast.engines.contract import DEFAULT_LEASE_SECONDS, Engine
from holdfast.engines.structured_log import StructuredLog
from holdfast.model.errors import DurabilityLost, EngineClosed
from holdfast.model.job import MICROSECONDS

from .worker import Worker

log = StructuredLog("holdfast.loops")

_AFTER_ERROR_SECONDS = 1.0
_MOST_LEASES = 10
"""For how many leases' time our own renewals may hold up the reclaiming of others'."""


class Loop(Protocol):
    """Something to do again and again. The simulator calls the same steps."""

    async def step(self, now_us: int) -> int | None:
        """Do what is due; return when to be called again, or None for never."""


class LeaseLoop:
    """Renews this worker's leases, then ends those that others let run out.

    One loop, in this order: after the event loop was blocked, our own leases are renewed before
    anybody takes them away. When the clock leaps (it was set, the machine slept), every lease
    seems to have run out: ours are renewed, and for the time of a lease nobody's is taken, so
    that all who are alive can renew theirs.
    """

    def __init__(
        self,
        engine: Engine,
        worker: Worker | None,
        interval_seconds: float,
        clock: Clock | None = None,
        *,
        reclaims: bool = True,
    ) -> None:
        """Take the clock that the engine goes by, to notice a leap up to the last moment.

        It must be that very one: a leap forward and back again that only one of two clocks
        was asked in between is a leap for that one alone. A process that has another clock
        than the engine renews its own leases, and leaves it to the owner to end others'.
        """
        self.interval_seconds = interval_seconds
        self._engine = engine
        self._worker = worker
        self._clock = clock
        self._reclaims = reclaims
        self._ahead_us: int | None = None
        self._spare_until = -math.inf

    async def step(self, now_us: int) -> int:
        """Renew, reclaim, look for new queues."""
        leapt = self._leapt(now_us)
        if self._worker is not None:
            await self._renew(self._worker, everything=leapt)
        if self._clock is not None:
            self._leapt(self._clock.now_us())
        if self._reclaims and asyncio.get_running_loop().time() >= self._spare_until:
            await self._engine.reclaim(every_seconds=self.interval_seconds)
        interval_seconds = self.interval_seconds
        if self._worker is not None:
            await self._worker.look_for_queues()
            interval_seconds = min(interval_seconds, self._worker.lease_seconds / 3)
        return now_us + int(interval_seconds * MICROSECONDS)

    def _leapt(self, now_us: int) -> bool:
        """Whether the clock has run ahead of the event loop's since it was last looked at."""
        loop_time = asyncio.get_running_loop().time()
        lease_seconds = (
            DEFAULT_LEASE_SECONDS if self._worker is None else self._worker.lease_seconds
        )
        before_us, self._ahead_us = self._ahead_us, now_us - int(loop_time * MICROSECONDS)
        least_us = min(1.0, lease_seconds / 10) * MICROSECONDS
        if before_us is None or self._ahead_us - before_us < least_us:
            return False
        self._spare_until = loop_time + lease_seconds
        leapt_seconds = (self._ahead_us - before_us) / MICROSECONDS
        log.emit("loop.clock_leapt", seconds=round(leapt_seconds, 1))
        return True

    async def _renew(self, worker: Worker, *, everything: bool) -> None:
        """Renew until no lease of ours has run out: a slow disk may take longer than a lease."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + _MOST_LEASES * worker.lease_seconds
        await worker.heartbeat(everything=everything)
        while worker.has_overdue() and loop.time() < give_up:
            await worker.heartbeat()


class Prunable(Protocol):
    """An engine that forgets when it is told to; the journal does so by itself."""

    async def prune(self, *, every_seconds: float) -> object:
        """Forget what need not be remembered, if nobody has for so long."""


class PruneLoop:
    """Has an engine forget what need not be remembered."""

    def __init__(self, engine: Prunable, interval_seconds: float = 60.0) -> None:
        self.interval_seconds = interval_seconds
        self._engine = engine

    async def step(self, now_us: int) -> int:
        """Forget, unless another process has just done it."""
        await self._engine.prune(every_seconds=self.interval_seconds)
        return now_us + int(self.interval_seconds * MICROSECONDS)


class Supervisor:
    """Drives loops in production, each in a task of its own."""

    def __init__(
        self,
        loops: Sequence[Loop],
        clock: Clock,
        on_failure: Callable[[DurabilityLost], None] = lambda _error: None,
    ) -> None:
        """Take the loops; ``on_failure`` hears that the store has stopped for good."""
        self._loops = loops
        self._clock = clock
        self._on_failure = on_failure
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False

    def start(self) -> None:
        """Begin."""
        running = asyncio.get_running_loop()
        self._tasks = [running.create_task(self._drive(loop)) for loop in self._loops]

    async def stop(self) -> None:
        """End them; a step under way is cancelled."""
        self._stopping = True  # a cancellation may be swallowed where something comes just then
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _drive(self, loop: Loop) -> None:
        while True:
            now_us = self._clock.now_us()
            next_us: int | None = now_us + int(_AFTER_ERROR_SECONDS * MICROSECONDS)
            try:
                next_us = await loop.step(now_us)
            except EngineClosed:
                return
            except DurabilityLost as error:
                self._on_failure(error)
                return
            except Exception as error:  # noqa: BLE001 - said, and tried again
                log.emit("loop.step_failed", loop=type(loop).__name__, error=error)
            if next_us is None or self._stopping:
                return
            await self._until(next_us)

    async def _until(self, when_us: int) -> None:
        due = asyncio.Event()
        timer = self._clock.call_at(when_us, due.set)
        try:
            await due.wait()
        finally:
            timer.cancel()
