"""Periodic work: loops with a ``step``, and the supervisor that drives them."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Protocol

from holdfast.engines.clock import Clock
from holdfast.engines.contract import DEFAULT_LEASE_SECONDS, Engine
from holdfast.engines.structured_log import StructuredLog
from holdfast.model.errors import DurabilityLost, EngineClosed, Unavailable
from holdfast.model.job import MICROSECONDS
from holdfast.model.samples import SAMPLE_SECONDS

from .worker import Worker

log = StructuredLog("holdfast.loops")

_AFTER_ERROR_SECONDS = 1.0
_MAX_RENEW_LEASES = 10
"""For how many lease durations renewing our own leases may delay a reclaim."""


class Loop(Protocol):
    """Periodic work. The simulator calls the same steps."""

    async def step(self, now_us: int) -> int | None:
        """Do what is due; return the time of the next call, or None for never."""


class LeaseLoop:
    """Renews this worker's leases, then reclaims expired leases of all workers.

    One loop, in this order: after the event loop was blocked, our own leases are renewed before
    they can be reclaimed. When the clock jumps forward (it was set, the machine slept), every
    lease seems expired: ours are renewed, and nothing is reclaimed for the length of a lease, so
    that every live worker can renew its own.
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
        """Take the engine's own clock, to detect a jump just before a reclaim.

        It must be the same object: a jump forward and back is seen only by a clock that was read
        in between. A process with another clock than the engine's renews its own leases and
        leaves reclaiming to the owner (``reclaims=False``).
        """
        self.interval_seconds = interval_seconds
        self._engine = engine
        self._worker = worker
        self._clock = clock
        self._reclaims = reclaims
        self._ahead_us: int | None = None
        self._no_reclaim_until = -math.inf

    async def step(self, now_us: int) -> int:
        """Renew, reclaim, find new queues."""
        jumped = self._jumped(now_us)
        if self._worker is not None:
            await self._renew(self._worker, everything=jumped)
        if self._clock is not None:
            self._jumped(self._clock.now_us())
        if self._reclaims and asyncio.get_running_loop().time() >= self._no_reclaim_until:
            await self._engine.reclaim(every_seconds=self.interval_seconds)
        interval_seconds = self.interval_seconds
        if self._worker is not None:
            await self._worker.look_for_queues()
            interval_seconds = min(interval_seconds, self._worker.lease_seconds / 3)
        return now_us + int(interval_seconds * MICROSECONDS)

    def _jumped(self, now_us: int) -> bool:
        """Whether the clock has jumped ahead of the event loop's since the last call."""
        loop_time = asyncio.get_running_loop().time()
        lease_seconds = (
            DEFAULT_LEASE_SECONDS if self._worker is None else self._worker.lease_seconds
        )
        before_us, self._ahead_us = self._ahead_us, now_us - int(loop_time * MICROSECONDS)
        least_us = min(1.0, lease_seconds / 10) * MICROSECONDS
        if before_us is None or self._ahead_us - before_us < least_us:
            return False
        self._no_reclaim_until = loop_time + lease_seconds
        jump_seconds = (self._ahead_us - before_us) / MICROSECONDS
        log.emit("loop.clock_leapt", seconds=round(jump_seconds, 1))
        return True

    async def _renew(self, worker: Worker, *, everything: bool) -> None:
        """Renew until none of our leases is expired: a slow disk may take longer than a lease."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + _MAX_RENEW_LEASES * worker.lease_seconds
        await worker.heartbeat(everything=everything)
        while worker.has_overdue() and loop.time() < give_up:
            await worker.heartbeat()


class CancellationLoop:
    """Looks every second whether the cancellation of a running attempt was requested.

    A heartbeat, which renews, would tell too, but comes only when a third of the lease is used.
    """

    interval_seconds = 1.0

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    async def step(self, now_us: int) -> int:
        """Look at the leases of the attempts that take long."""
        await self._worker.look_for_cancellations()
        return now_us + int(self.interval_seconds * MICROSECONDS)


class Prunable(Protocol):
    """An engine that prunes on request; the journal prunes by itself."""

    async def prune(self, *, every_seconds: float) -> object:
        """Delete what is past its retention, unless a process did so within this time."""


class PruneLoop:
    """Prunes an engine periodically."""

    def __init__(self, engine: Prunable, interval_seconds: float = 60.0) -> None:
        self.interval_seconds = interval_seconds
        self._engine = engine

    async def step(self, now_us: int) -> int:
        """Prune, unless another process has just done it."""
        await self._engine.prune(every_seconds=self.interval_seconds)
        return now_us + int(self.interval_seconds * MICROSECONDS)


class SampleLoop:
    """Samples the queues; of several processes that share a store, one does."""

    def __init__(self, engine: Engine, interval_seconds: float = SAMPLE_SECONDS) -> None:
        self.interval_seconds = interval_seconds
        self._engine = engine
        self._begun = False

    async def step(self, now_us: int) -> int:
        """Take a sample if it is time; where that takes long, it is done less often.

        The first one is taken an interval after the start: before, there is no rate.
        """
        seconds = self.interval_seconds
        if not self._begun:
            self._begun = True
            return now_us + int(seconds * MICROSECONDS)
        with contextlib.suppress(Unavailable):  # reported elsewhere
            seconds = await self._engine.take_sample(every_seconds=self.interval_seconds)
        return now_us + int(seconds * MICROSECONDS)


class Supervisor:
    """Drives loops in production, each in a task of its own."""

    def __init__(
        self,
        loops: Sequence[Loop],
        clock: Clock,
        on_failure: Callable[[DurabilityLost], None] = lambda _error: None,
    ) -> None:
        """Take the loops; ``on_failure`` is called when the store has stopped for good."""
        self._loops = loops
        self._clock = clock
        self._on_failure = on_failure
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False

    def start(self) -> None:
        """Start every loop."""
        running = asyncio.get_running_loop()
        self._tasks = [running.create_task(self._drive(loop)) for loop in self._loops]

    async def stop(self) -> None:
        """Stop every loop; a running step is cancelled."""
        self._stopping = True  # a cancellation may be swallowed by a step that ends just then
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
            except Exception as error:  # noqa: BLE001 - logged, and retried
                log.emit("loop.step_failed", loop=type(loop).__name__, error=error)
            if next_us is None or self._stopping:
                return
            await self._sleep_until(next_us)

    async def _sleep_until(self, when_us: int) -> None:
        due = asyncio.Event()
        timer = self._clock.call_at(when_us, due.set)
        try:
            await due.wait()
        finally:
            timer.cancel()
