"""A simulated process: an event loop that can be paused and killed.

All processes share one ``VirtualLoop``, which moves time and orders their turns. Code inside a
process sees an ordinary event loop with its own tasks, timers, threads and connections. A killed
process gets no more turns; a paused one gets its turns late, all at once.
"""

from __future__ import annotations

import asyncio
import contextvars
from asyncio import _get_running_loop, _set_running_loop  # for event loops, and this is one
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

UPTIME_US = 5_000 * 1_000_000
"""The uptime of the machine when the simulation starts."""
_MAX_CLOSE_ATTEMPTS = 100


class Process(asyncio.AbstractEventLoop):
    """One process of the simulated world, and its event loop."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.paused = False
        self.turns_left: int | None = None
        """The process is killed after this many more turns."""
        self.disk: SimDisk | None = None
        """The disk of the process: a kill fault there kills this process."""
        self.on_end: Callable[[], None] = _no_op
        self.skew_us = 0
        """How far its wall clock is ahead of the machine's."""
        self.clock = SystemClock(self._wall_ns, self._monotonic_ns)
        self._loop = world.loop
        self._tasks: dict[asyncio.Task[object], None] = {}
        self._backlog: list[_Turn] = []
        self._context = contextvars.Context()

    def __repr__(self) -> str:
        return f"<process {self.name}>"

    # --- start and end -----------------------------------------------------------------------

    def run(self, main: Callable[[], Coroutine[object, object, None]]) -> None:
        """Start the process: call ``main`` in it and run the coroutine that it returns."""
        self.call_soon(
            lambda: self.create_task(self._run_main(main())), context=contextvars.Context()
        )

    async def _run_main(self, work: Coroutine[object, object, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - a real process would end with a traceback
            self.world.trace.broken(f"{self.name} ended with {error!r}")

    def kill(self, point: str) -> None:
        """End it at once: no handler runs, nothing is flushed."""
        if not self.alive:
            return
        self.alive = False
        self.world.trace.note(f"fault.kill_{point}", self.name)
        self._ended()

    def exit(self) -> None:
        """End it normally."""
        if self.alive:
            self.alive = False
            self._ended()

    def pause(self) -> None:
        """Stop it, as SIGSTOP does, while time goes on."""
        self.paused = True

    def resume(self) -> None:
        """Continue, first with the turns that became due during the pause."""
        self.paused = False
        backlog, self._backlog = self._backlog, []
        for turn in backlog:
            self._loop.call_soon(self._run_turn, turn, context=self._context)

    def close_tasks(self) -> None:
        """Close the tasks of an ended process without running them or printing warnings."""
        while self._tasks:  # closing one task may start another
            task, _ = self._tasks.popitem()
            coroutine = task.get_coro()
            for _try in range(_MAX_CLOSE_ATTEMPTS):
                try:
                    coroutine.close()
                    break
                except BaseException:  # noqa: BLE001, S112 - how it ends does not matter
                    continue
        self._backlog.clear()

    def _ended(self) -> None:
        self._backlog.clear()
        self.world.network.drop_connections(self)
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
        turn = _Turn(0.0, callback, args, self, _context_or_copy(context))
        self._loop.call_soon(self._run_turn, turn, context=self._context)
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
        turn = _Turn(when, callback, args, self, _context_or_copy(context))
        turn.timer = self._loop.call_at(when, self._run_turn, turn, context=self._context)
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
        """Simulate a thread: run the function after one delay, set the result after another."""
        work = Work(partial(func, *args), self.create_future())
        before, after = self.world.disk_seconds()
        if isinstance(executor, SimulatedThreads):
            executor.add(work)
        self.call_later(before, self.execute, work, after)
        return work.future

    async def create_unix_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        path: str,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect through the simulated network."""
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
        """Record an unhandled error as a broken promise."""
        error = context.get("exception")
        if self.alive and error is not None and "future" not in context:
            self.world.trace.broken(
                f"{self.name} did not handle an error: {context.get('message')}: {error!r}"
            )

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """See ``asyncio``."""

    # --- turns -------------------------------------------------------------------------------

    def _run_turn(self, turn: _Turn) -> None:
        if not self.alive or turn.cancelled():
            return
        if self.paused:
            self._backlog.append(turn)
            return
        outer_loop = _get_running_loop()
        _set_running_loop(self)
        try:
            turn.work()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - as asyncio does
            self.call_exception_handler({"message": "a callback failed", "exception": error})
        finally:
            _set_running_loop(outer_loop)
        if self.disk is not None and self.disk.killed:
            self.kill("at_a_disk_call")
        elif self.turns_left is not None:
            self.turns_left -= 1
            if self.turns_left < 0:
                self.kill("between_turns")

    def execute(self, work: Work[T], after: float = 0.0) -> None:
        """Run the work of a thread; set its result ``after`` seconds later."""
        if work.started:
            return
        work.started = True
        loop = _get_running_loop()
        _set_running_loop(None)  # as in a thread
        try:
            set_outcome = partial(work.future.set_result, work.func())
        except BaseException as error:  # noqa: BLE001 - raised where the future is awaited
            set_outcome = partial(work.future.set_exception, error)
        finally:
            _set_running_loop(loop)
        self.call_later(after, _resolve, work.future, set_outcome)

    def _monotonic_ns(self) -> int:
        return (self.world.clock.now_us() - START_US + UPTIME_US) * 1_000

    def _wall_ns(self) -> int:
        return (self.world.clock.now_us() + self.world.clock_jump_us + self.skew_us) * 1_000


class Work(Generic[T]):
    """A function for a thread to run."""

    def __init__(self, func: Callable[[], T], future: asyncio.Future[T]) -> None:
        self.func = func
        self.future = future
        self.started = False


class SimulatedThreads(Executor):
    """Threads of a simulated process. Shutting down runs the work that is left."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._taken: list[Work[Any]] = []
        self._ended = False

    def add(self, work: Work[T]) -> None:
        """Queue work."""
        if self._ended:
            raise RuntimeError("cannot add work after shutdown")
        self._taken = [*(one for one in self._taken if not one.started), work]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002 - as in Executor
        """Run the work that is left."""
        self._ended = True
        for work in self._taken:
            self._process.execute(work)


class _Turn(asyncio.TimerHandle):
    """A callback that waits for a turn of its process."""

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
        self.work = _no_op
        if self.timer is not None:
            self.timer.cancel()


def current_process() -> Process:
    """Return the process that runs this code."""
    process = asyncio.get_running_loop()
    if not isinstance(process, Process):
        raise TypeError("this code does not run in a simulated process")
    return process


def _context_or_copy(context: contextvars.Context | None) -> contextvars.Context:
    return contextvars.copy_context() if context is None else context


def _resolve(future: asyncio.Future[T], set_outcome: Callable[[], None]) -> None:
    if not future.done():
        set_outcome()


def _no_op() -> None:
    """Do nothing: the replacement of a cancelled callback."""
