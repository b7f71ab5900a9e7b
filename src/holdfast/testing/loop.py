"""An event loop in virtual time: hours of ``asyncio.sleep`` pass at once, always the same way.

The loop's timers are kept by its ``VirtualClock``, so that ``asyncio.sleep``, time-outs and
``clock.call_at`` are one line of events. Whether anything is ready is learnt from the selector:
asyncio asks it to wait for ever exactly when nothing is. No private attribute of asyncio is needed.
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
"""What lies closer than a nanosecond is the same moment: sums of floats are not exact."""


class Deadlock(RuntimeError):
    """Nothing is ready, no timer is set, and somebody still waits."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs coroutines by a ``VirtualClock``. Time moves only when nothing is ready.

    ``run_until_complete`` jumps to the next timer whenever nothing is ready, and raises
    ``Deadlock`` when there is none. ``time`` counts seconds from the loop's creation. Timers of
    one microsecond fire in the order in which they were set, but what the clock's own call back
    runs before what the loop's make ready.

    Time stands still while ``run_in_executor`` and ``asyncio.to_thread`` have a thread at work,
    for up to ``patience_seconds`` of real time; a thread that takes longer is no longer waited
    for, so that a time-out of a stuck one can be seen. Other threads and real sockets are served
    when they have something, but never waited for.
    """

    def __init__(self, clock: VirtualClock | None = None, *, patience_seconds: float = 5.0) -> None:
        self.clock = clock or VirtualClock()
        self._origin_us = self.clock.now_us()
        self._reached = 0.0
        self._patience_seconds = patience_seconds
        self._at_work: set[object] = set()
        self._goal_us: int | None = None
        self._patient = True
        super().__init__(_Selector(self._when_idle))

    def time(self) -> float:
        """Return the seconds that have passed by the clock since the loop was made."""
        # At least what a timer was set for that has fired, whatever its rounding: code that waits
        # until ``time() >= deadline`` must get there.
        return max((self.clock.now_us() - self._origin_us) / 1e6, self._reached)

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
            self._reached = max(self._reached, when)
            handle.stands_for = self.call_soon(callback, *args, context=context)

        if when < math.inf:
            when_us = self._origin_us + math.ceil(when * 1e6 - _RESOLUTION_US)
            timer = self.clock.call_at(when_us, fire)
            if handle.stands_for is None:  # else its time had come, and it has fired
                handle.stands_for = timer
        return handle

    def run_until_idle(self) -> None:
        """Run whatever is ready until nothing is; time does not move, nothing is waited for."""
        self._run(self.clock.now_us(), patient=False)

    def advance(self, seconds: float) -> None:
        """Move time on by this much, stopping at each timer on the way to run what it makes ready.

        What is ready runs first, and at the end nothing is.
        """
        if not 0 <= seconds < math.inf:
            raise ValueError(f"time cannot be moved by {seconds!r} seconds")
        self._run(self.clock.now_us() + round(seconds * 1e6), patient=True)

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[*Ts], T],
        *args: *Ts,
    ) -> asyncio.Future[T]:
        """Run it in a thread; time stands still meanwhile."""
        future = super().run_in_executor(executor, func, *args)
        self._at_work.add(future)
        future.add_done_callback(self._at_work.discard)
        return future

    async def shutdown_default_executor(
        self,
        timeout: float | None = None,  # noqa: ARG002, ASYNC109 - newer Pythons hand one over
    ) -> None:
        """Wait, in real time, for the default executor's threads."""
        joining = self.create_future()
        self._at_work.add(joining)
        try:
            await super().shutdown_default_executor()
        finally:
            self._at_work.discard(joining)

    def _run(self, goal_us: int, *, patient: bool) -> None:
        self._goal_us, self._patient = goal_us, patient
        try:
            self.run_forever()
        finally:
            self._goal_us, self._patient = None, True

    def _when_idle(self, wait: Callable[[float], Events]) -> Events:
        """Do what is to be done instead of waiting for ever; return what came in meanwhile."""
        if self._at_work and self._patient:
            events = wait(self._patience_seconds)
            if not events:
                self._at_work.clear()
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
                "nothing is ready and no timer is set, so that nothing can happen any more; "
                f"waiting: {', '.join(waiting) or 'no task'}"
            )
        return []

    def _next_timer_us(self) -> int | None:
        timers = self.clock._timers  # noqa: SLF001 - our own clock; only a loop looks ahead
        while timers and timers[0][2].callback is None:
            heapq.heappop(timers)
        return timers[0][0] if timers else None

    def _move_to(self, when_us: int) -> None:
        # Half a microsecond more: the clock cuts off what its float is short of.
        left_us = when_us - self.clock.now_us()
        if left_us > 0:
            self.clock.advance((left_us + 0.5) / 1e6)


class _LoopTimer(asyncio.TimerHandle):
    """What ``call_at`` returns; it stands for the clock's timer, and then for the call itself."""

    stands_for: Timer | None = None

    def cancel(self) -> None:
        super().cancel()
        if self.stands_for is not None:
            self.stands_for.cancel()


class _Selector(selectors.DefaultSelector):
    """Looks at real files without waiting; when it is told to wait, asks what to do instead."""

    def __init__(self, when_idle: Callable[[Callable[[float], Events]], Events]) -> None:
        super().__init__()
        self._when_idle = when_idle

    def select(self, timeout: float | None = None) -> Events:
        events = super().select(0)
        if events or timeout == 0:
            return events
        return self._when_idle(super().select)
