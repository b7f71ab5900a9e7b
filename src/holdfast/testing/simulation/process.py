"""A simulated process: an event loop of its own that can be paused and killed.

Many processes share one ``VirtualLoop``, which alone moves time and decides whose turn it is. Code
inside a process sees an ordinary event loop: its own tasks, timers, threads and connections. A
killed process simply never gets another turn; a paused one gets its turns late, all at once.
"""

from __future__ import annotations

import asyncio
import contextvars
from asyncio import _get_running_loop, _set_running_loop  # a loop's own business: we are one
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, TypeVarTuple

from holdfast.engines.clock import SystemClock, Timer
from holdfast.testing.clock import START_US
from holdfast.testing.disk import SimDisk

if TYPE_CHECKING:
    from .world import World

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

UP_US = 5_000 * 1_000_000
"""How long the machine had been up when the simulation began."""
_PATIENT_CLOSES = 100


class Process(asyncio.AbstractEventLoop):
    """One process of the simulated world, and the event loop in it."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.paused = False
        self.turns_left: int | None = None
        """After so many turns more it is killed, wherever it is by then."""
        self.disk: SimDisk | None = None
        """The disk that it uses: when that kills, it kills this process."""
        self.on_end: Callable[[], None] = _nothing
        self.skew_us = 0
        """How far its wall clock is ahead of the others'."""
        self.clock = SystemClock(self._wall_ns, self._monotonic_ns)
        self._loop = world.loop
        self._tasks: dict[asyncio.Task[object], None] = {}
        self._backlog: list[_Turn] = []
        self._context = contextvars.Context()

    def __repr__(self) -> str:
        return f"<process {self.name}>"

    # --- what happens to it ------------------------------------------------------------------

    def run(self, main: Callable[[], Coroutine[object, object, None]]) -> None:
        """Start it: call ``main`` in it, and run the coroutine that this returns."""
        self.call_soon(lambda: self.create_task(self._main(main())), context=contextvars.Context())

    async def _main(self, work: Coroutine[object, object, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - a real process would end with a traceback
            self.world.trace.broken(f"{self.name} ended with {error!r}")

    def kill(self, how: str) -> None:
        """End it here and now: no handler runs, nothing is flushed."""
        if not self.alive:
            return
        self.alive = False
        self.world.trace.note(f"fault.kill_{how}", self.name)
        self._ended()

    def leave(self) -> None:
        """End it in order."""
        if self.alive:
            self.alive = False
            self._ended()

    def pause(self) -> None:
        """Stop it, as SIGSTOP does: time goes on without it."""
        self.paused = True

    def resume(self) -> None:
        """Let it go on, with everything that came meanwhile."""
        self.paused = False
        backlog, self._backlog = self._backlog, []
        for turn in backlog:
            self._loop.call_soon(self._take, turn, context=self._context)

    def bury(self) -> None:
        """Let go of what a killed process left behind: none of it may run, or complain."""
        while self._tasks:  # the end of one may begin another
            task, _ = self._tasks.popitem()
            coroutine = task.get_coro()
            for _try in range(_PATIENT_CLOSES):
                try:
                    coroutine.close()
                    break
                except BaseException:  # noqa: BLE001, S112 - its way of ending is nobody's business
                    continue
        self._backlog.clear()

    def _ended(self) -> None:
        self._backlog.clear()
        self.world.network.hang_up(self)
        self.on_end()

    # --- an event loop -----------------------------------------------------------------------

    def time(self) -> float:
        """Return the machine's monotonic time, in seconds."""
        return self._loop.time()

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """See ``asyncio``."""
        turn = _Turn(0.0, callback, args, self, _or_copied(context))
        self._loop.call_soon(self._take, turn, context=self._context)
        return turn

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """See ``asyncio``; there is one thread only."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """See ``asyncio``."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """See ``asyncio``."""
        turn = _Turn(when, callback, args, self, _or_copied(context))
        turn.timer = self._loop.call_at(when, self._take, turn, context=self._context)
        return turn

    def create_future(self) -> asyncio.Future[Any]:
        """See ``asyncio``."""
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        """See ``asyncio``."""
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        # Kept: the end of a killed process's task must not be left to the garbage collector.
        self._tasks[task] = None
        task.add_done_callback(lambda _done: self._tasks.pop(task, None))
        return task

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[*Ts], T],
        *args: *Ts,
    ) -> asyncio.Future[T]:
        """Do it in a thread: a while later all at once, and a while later still it is known."""
        work = Work(partial(func, *args), self.create_future())
        before, after = self.world.disk_seconds()
        if isinstance(executor, SimulatedThreads):
            executor.take(work)
        self.call_later(before, self.do, work, after)
        return work.future

    async def create_unix_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        path: str,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect by the simulated network."""
        return await self.world.network.connect(self, protocol_factory, path)

    def get_debug(self) -> bool:
        """See ``asyncio``."""
        return False

    def is_running(self) -> bool:
        """See ``asyncio``."""
        return self.alive

    def is_closed(self) -> bool:
        """See ``asyncio``."""
        return not self.alive

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Take an error that nobody handled for what it is: a bug."""
        error = context.get("exception")
        if self.alive and error is not None and "future" not in context:
            self.world.trace.broken(
                f"{self.name} let an error escape: {context.get('message')}: {error!r}"
            )

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """See ``asyncio``."""

    # --- turns -------------------------------------------------------------------------------

    def _take(self, turn: _Turn) -> None:
        if not self.alive or turn.cancelled():
            return
        if self.paused:
            self._backlog.append(turn)
            return
        others = _get_running_loop()
        _set_running_loop(self)
        try:
            turn.work()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - as asyncio does
            self.call_exception_handler({"message": "a callback failed", "exception": error})
        finally:
            _set_running_loop(others)
        if self.disk is not None and self.disk.killed:
            self.kill("at_a_disk_call")
        elif self.turns_left is not None:
            self.turns_left -= 1
            if self.turns_left < 0:
                self.kill("between_turns")

    def do(self, work: Work[T], after: float = 0.0) -> None:
        """Do what a thread does, and have it known a while later."""
        if work.begun:
            return
        work.begun = True
        loop = _get_running_loop()
        _set_running_loop(None)  # as in a thread
        try:
            tell = partial(work.future.set_result, work.func())
        except BaseException as error:  # noqa: BLE001 - it is whoever waits that must hear of it
            tell = partial(work.future.set_exception, error)
        finally:
            _set_running_loop(loop)
        self.call_later(after, _unless_done, work.future, tell)

    def _monotonic_ns(self) -> int:
        return (self.world.clock.now_us() - START_US + UP_US) * 1_000

    def _wall_ns(self) -> int:
        return (self.world.clock.now_us() + self.world.leapt_us + self.skew_us) * 1_000


class Work(Generic[T]):
    """Something for a thread to do."""

    def __init__(self, func: Callable[[], T], future: asyncio.Future[T]) -> None:
        self.func = func
        self.future = future
        self.begun = False


class SimulatedThreads(Executor):
    """Threads of a simulated process. To end them is to wait until they have done their work."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._taken: list[Work[Any]] = []
        self._ended = False

    def take(self, work: Work[T]) -> None:
        """Take something to do."""
        if self._ended:
            raise RuntimeError("these threads have ended")
        self._taken = [*(one for one in self._taken if not one.begun), work]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002 - the contract of executors
        """Do what is left to do."""
        self._ended = True
        for work in self._taken:
            self._process.do(work)


class _Turn(asyncio.TimerHandle):
    """A call that waits for its process's turn."""

    timer: Timer | None = None

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[object, ...],
        loop: Process,
        context: contextvars.Context,
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        self.work: Callable[[], object] = partial(context.run, callback, *args)

    def cancel(self) -> None:
        super().cancel()
        self.work = _nothing
        if self.timer is not None:
            self.timer.cancel()


def here() -> Process:
    """Return the process in which this code runs."""
    process = asyncio.get_running_loop()
    if not isinstance(process, Process):
        raise TypeError("this code does not run in a simulated process")
    return process


def _or_copied(context: contextvars.Context | None) -> contextvars.Context:
    return contextvars.copy_context() if context is None else context


def _unless_done(future: asyncio.Future[T], tell: Callable[[], None]) -> None:
    if not future.done():
        tell()


def _nothing() -> None:
    """Stand where a cancelled call stood."""
