"""An event loop in virtual time: hours of ``asyncio.sleep`` pass at once, deterministically.

The ``VirtualClock`` keeps the timers of the loop, so that ``asyncio.sleep``, timeouts and
``clock.call_at`` share one order. The selector shows when nothing is ready: only then does asyncio
ask it to wait forever. No private attribute of asyncio is needed.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import math
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar, TypeVarTuple

from holdfast.engines.clock import Timer

from .clock import VirtualClock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Events = list[tuple[selectors.SelectorKey, int]]

_RESOLUTION_US = 1e-3
"""Times within a nanosecond are equal: sums of floats are not exact."""


class Deadlock(RuntimeError):
    """Nothing is ready and no timer is set, but a task still waits."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs coroutines on a ``VirtualClock``. Time moves only when nothing is ready.

    ``run_until_complete`` jumps to the next timer whenever nothing is ready, and raises
    ``Deadlock`` when there is none. ``time`` counts seconds from the loop's creation. Timers
    that are due in the same microsecond fire in the order in which they were set; callbacks of the
    clock run before callbacks that the loop's timers make ready.

    Time stands still while a thread of ``run_in_executor`` or ``asyncio.to_thread`` runs, for up to
    ``patience_seconds`` of real time. After that the loop no longer waits for the thread, so that
    a timeout of a stuck one can be tested. The loop never waits for other threads and real
    sockets, but handles their events.
    """

    def __init__(self, clock: VirtualClock | None = None, *, patience_seconds: float = 5.0) -> None:
        self.clock = clock or VirtualClock()
        self._origin_us = self.clock.now_us()
        self._reached_seconds = 0.0
        self._patience_seconds = patience_seconds
        self._busy_futures: set[object] = set()
        self._goal_us: int | None = None
        self._waits_for_threads = True
        super().__init__(_Selector(self._when_idle))

    def time(self) -> float:
        """Return the virtual seconds since the loop was created."""
        # Never less than the time of a fired timer, in spite of rounding: code that waits until
        # ``time() >= deadline`` must finish.
        return max((self.clock.now_us() - self._origin_us) / 1e6, self._reached_seconds)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call back once ``time`` has reached ``when``, to the microsecond."""
        if self.is_closed():
            raise RuntimeError("Event loop is closed")
        context = contextvars.copy_context() if context is None else context
        handle = _LoopTimer(when, callback, args, self, context)

        def fire() -> None:
            self._reached_seconds = max(self._reached_seconds, when)
            handle.inner = self.call_soon(callback, *args, context=context)

        if when < math.inf:
            when_us = self._origin_us + math.ceil(when * 1e6 - _RESOLUTION_US)
            timer = self.clock.call_at(when_us, fire)
            if handle.inner is None:  # not fired yet
                handle.inner = timer
        return handle

    def run_until_idle(self) -> None:
        """Run everything that is ready, without moving time or waiting for threads."""
        self._run(self.clock.now_us(), patient=False)

    def advance(self, seconds: float) -> None:
        """Move time forward, stopping at each timer to run what it makes ready.

        Everything that is ready runs first, and nothing is ready at the end.
        """
        if not 0 <= seconds < math.inf:
            raise ValueError(f"cannot advance time by {seconds!r} seconds")
        self._run(self.clock.now_us() + round(seconds * 1e6), patient=True)

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[*Ts], T],
        *args: *Ts,
    ) -> asyncio.Future[T]:
        """Run it in a thread; time stands still until it ends."""
        future = super().run_in_executor(executor, func, *args)
        self._busy_futures.add(future)
        future.add_done_callback(self._busy_futures.discard)
        return future

    async def shutdown_default_executor(
        self,
        timeout: float | None = None,  # noqa: ARG002, ASYNC109 - newer Pythons pass one
    ) -> None:
        """Wait, in real time, for the default executor's threads."""
        threads = self.create_future()
        self._busy_futures.add(threads)
        try:
            await super().shutdown_default_executor()
        finally:
            self._busy_futures.discard(threads)

    def _run(self, goal_us: int, *, patient: bool) -> None:
        self._goal_us, self._waits_for_threads = goal_us, patient
        try:
            self.run_forever()
        finally:
            self._goal_us, self._waits_for_threads = None, True

    def _when_idle(self, wait: Callable[[float], Events]) -> Events:
        """Wait for threads, move time or stop, instead of waiting forever; return new events."""
        if self._busy_futures and self._waits_for_threads:
            events = wait(self._patience_seconds)
            if not events:
                self._busy_futures.clear()
            return events
        next_us = self._next_timer_us()
        if self._goal_us is not None and (next_us is None or next_us > self._goal_us):
            self._move_to(self._goal_us)
            self.stop()
        elif next_us is not None:
            self._move_to(next_us)
        else:
            waiting = sorted(
                f"{task.get_name()} ({getattr(task.get_coro(), '__qualname__', '?')})"
                for task in asyncio.all_tasks(self)
            )
            raise Deadlock(
                "deadlock: nothing is ready and no timer is set; "
                f"waiting: {', '.join(waiting) or 'no task'}"
            )
        return []

    def _next_timer_us(self) -> int | None:
        timers = self.clock._timers  # noqa: SLF001 - only a loop looks ahead
        while timers and timers[0][2].callback is None:
            heapq.heappop(timers)
        return timers[0][0] if timers else None

    def _move_to(self, when_us: int) -> None:
        # Half a microsecond more: the clock truncates the float.
        left_us = when_us - self.clock.now_us()
        if left_us > 0:
            self.clock.advance((left_us + 0.5) / 1e6)


class _LoopTimer(asyncio.TimerHandle):
    """The handle of ``call_at``; ``inner`` is the timer of the clock, then the ready callback."""

    inner: Timer | None = None

    def cancel(self) -> None:
        super().cancel()
        if self.inner is not None:
            self.inner.cancel()


class _Selector(selectors.DefaultSelector):
    """Polls real files without waiting; calls ``when_idle`` where asyncio would wait."""

    def __init__(self, when_idle: Callable[[Callable[[float], Events]], Events]) -> None:
        super().__init__()
        self._when_idle = when_idle

    def select(self, timeout: float | None = None) -> Events:
        events = super().select(0)
        if events or timeout == 0:
            return events
        return self._when_idle(super().select)
