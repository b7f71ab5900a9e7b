"""Testing the tasks of an application: the real engine and worker in virtual time."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import TracebackType
from typing import Protocol, TypeVar

from holdfast.engines.contract import DEFAULT_LEASE_SECONDS, Claim, Engine
from holdfast.engines.forwarding import ForwardingEngine
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.durations import Duration, seconds_of
from holdfast.model.errors import WrongLoop
from holdfast.model.job import Job, State
from holdfast.model.outcome import Outcome
from holdfast.projections.loop import ProjectionLoop
from holdfast.projections.registry import add_projections
from holdfast.settings import Settings
from holdfast.worker.builtin_tasks import add_builtin
from holdfast.worker.loops import LeaseLoop, Loop, Supervisor
from holdfast.worker.operation_loop import OperationLoop
from holdfast.worker.options import WorkerOptions
from holdfast.worker.outage_loop import OutageLoop
from holdfast.worker.registry import Registry
from holdfast.worker.schedules import ScheduleLoop
from holdfast.worker.worker import Worker

from .clock import VirtualClock
from .disk import SimDisk
from .loop import VirtualLoop

T = TypeVar("T")

_OPTIONS = JournalOptions(inline=True, segment_bytes=4 << 20)
_STEP_SECONDS = 0.05
_TURN_SECONDS = 0.01
"""How long a thread waits for its turn to run the loop before it looks whether it has to."""
_PATIENCE_SECONDS = 24 * 3_600.0


class NamedTask(Protocol):
    """A task, or another object with the name of one."""

    @property
    def name(self) -> str:
        """The task's name."""


class EngineBinding(Protocol):
    """Selects the engine of an application."""

    def use_test_engine(self, test_engine: Rehearsal | None, /) -> None:
        """Use the engine of this testing app, or the own engine again if None."""


class Rehearsal:
    """A testing app: a store, a worker and its loops in virtual time, which the test moves.

    Use it as a context manager. Nothing happens until the test asks for it: jobs that the
    application enqueues stay pending until ``drain``, ``advance`` or ``run`` is called, or a
    result is awaited. Every task runs on the loop; there are no threads and child processes.

    It may be used from any thread, with or without an event loop of its own: the application may
    enqueue from web handlers of a test client.
    """

    clock: VirtualClock
    """The virtual clock; ``clock.now_us()`` is the time in microseconds."""
    loop: VirtualLoop
    """The event loop that everything runs on."""

    __test__ = False

    def __init__(
        self,
        registry: Registry,
        bound: EngineBinding,
        slots: int = 8,
        settings: Settings | None = None,
    ) -> None:
        self.clock = VirtualClock()
        self.loop = VirtualLoop(self.clock)
        self._registry = registry
        self._bound = bound
        self._slots = slots
        self._settings = settings or Settings()
        self._turn = threading.RLock()

    def __enter__(self) -> Rehearsal:
        """Open the store and start the worker."""
        self.call(self._open())
        self._bound.use_test_engine(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the worker, which releases running jobs, and close the store."""
        self._bound.use_test_engine(None)
        self.call(self._close())
        self.loop.close()

    @property
    def engine(self) -> Engine:
        """The engine, for direct calls."""
        return self._engine

    def call(self, work: Coroutine[object, object, T]) -> T:
        """Run the coroutine ``work`` on the loop and return its result; no job starts meanwhile."""
        try:
            self._check_loop()
        except WrongLoop:
            work.close()
            raise
        done = asyncio.run_coroutine_threadsafe(work, self.loop)
        while not done.done():
            # Another thread may run the loop, and then it runs this as well.
            if self._turn.acquire(timeout=_TURN_SECONDS):
                try:
                    _outside_of_loops(lambda: self.loop.run_until_complete(_wait_for(done)))
                finally:
                    self._turn.release()
        return done.result()

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Run the coroutine ``work`` and return its result; jobs that are due run meanwhile.

        If it waits, virtual time moves.
        """
        with self._working():
            return self.call(work)

    def advance(self, duration: Duration) -> None:
        """Move time forward by ``duration`` and run everything that becomes due."""
        seconds = seconds_of("duration", duration)
        with self._working():
            _outside_of_loops(lambda: self.loop.advance(seconds))

    def drain(self) -> None:
        """Run every job that is due, however long it takes; jobs due later stay pending."""
        give_up_us = self.clock.now_us() + int(_PATIENCE_SECONDS * 1_000_000)
        with self._working():
            _outside_of_loops(self.loop.run_until_idle)
            while self._busy():
                if self.clock.now_us() > give_up_us:
                    raise AssertionError("still busy after a virtual day: does a task never end?")
                _outside_of_loops(lambda: self.loop.advance(_STEP_SECONDS))

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Let the worker claim jobs, in this thread's turn."""
        self._check_loop()
        with self._turn:
            self._gate.let_claims_pass()
            try:
                yield
                _outside_of_loops(self.loop.run_until_idle)
            finally:
                self._gate.hold_claims()
                _outside_of_loops(self.loop.run_until_idle)

    def _check_loop(self) -> None:
        if _running_loop() is self.loop:
            raise WrongLoop("a task runs on the loop of the testing app: it cannot run that itself")

    def jobs(self, task: NamedTask | str | None = None) -> list[Job]:
        """Return all jobs, or those of one ``task``, oldest first."""
        name = task if isinstance(task, str) or task is None else task.name
        found = [job for job in self._engine.kept() if name is None or job.task == name]
        return sorted(found, key=lambda job: (job.created_at_us, job.id))

    def assert_completed(self, task: NamedTask | str, times: int | None = None) -> list[Job]:
        """Check that jobs of ``task`` are completed, ``times`` of them if given; return them."""
        return self._assert_state(task, State.COMPLETED, times)

    def assert_dead(
        self, task: NamedTask | str, error_reason: str | None = None, times: int | None = None
    ) -> list[Job]:
        """Check that jobs of ``task`` are dead, for ``error_reason`` if given; return them.

        Exactly ``times`` of them, if given, otherwise one or more.
        """
        found = self._assert_state(task, State.DEAD, times)
        for job in found:
            reason = "" if job.failure is None else job.failure.error_reason
            if error_reason is not None and reason != error_reason:
                raise AssertionError(f"job {job.id} died of {reason!r}, not of {error_reason!r}")
        return found

    def assert_pending(self, task: NamedTask | str, times: int | None = None) -> list[Job]:
        """Check that jobs of ``task`` are pending, ``times`` of them if given; return them."""
        return self._assert_state(task, State.PENDING, times)

    def _assert_state(self, task: NamedTask | str, state: State, times: int | None) -> list[Job]:
        everything = self.jobs(task)
        found = [job for job in everything if job.state is state]
        if (times is None and not found) or (times is not None and len(found) != times):
            wanted = "one or more" if times is None else str(times)
            there = (
                ", ".join(f"{job.id}: {_state_text(job)}" for job in everything) or "none at all"
            )
            name = task if isinstance(task, str) else task.name
            raise AssertionError(
                f"{len(found)} jobs of {name} are {state.value}, not {wanted}; there are: {there}"
            )
        return found

    def _busy(self) -> bool:
        now_us, known = self.clock.now_us(), self._registry.tasks
        return any(
            job.state is State.IN_FLIGHT
            or (job.state is State.PENDING and job.run_at_us <= now_us and job.task in known)
            for job in self._engine.kept()
        )

    async def _open(self) -> None:
        registry = add_builtin(self._registry, self._registry.default_task or None)
        self._engine = await JournalEngine.open(SimDisk(), clock=self.clock, options=_OPTIONS)
        options = WorkerOptions(slots=self._slots, inline=True)
        self._gate = ClaimGate(self._engine)
        projections, read = add_projections(registry, self._gate, self._settings)
        self._worker = Worker(self._gate, registry, "own/testing", options)
        loops: list[Loop] = [
            LeaseLoop(self._engine, self._worker, 1.0),
            OutageLoop(self._engine, self._worker.outage_detector, registry.health_checks),
            ScheduleLoop(
                list(registry.schedules.values()),
                lambda jobs, on_duplicate: self._engine.enqueue(jobs, on_duplicate=on_duplicate),
                remember_seconds=_OPTIONS.remember_seconds,
            ),
            OperationLoop(self._engine),
            ProjectionLoop(self._engine, projections, read),
        ]
        self._supervisor = Supervisor(loops, self.clock)
        for hook in registry.on_start:
            pending = hook()
            if asyncio.iscoroutine(pending):
                await pending
        self._worker.start()
        self._supervisor.start()

    async def _close(self) -> None:
        await self._worker.stop(0.0)
        await self._supervisor.stop()
        for hook in self._registry.on_stop:
            pending = hook()
            if asyncio.iscoroutine(pending):
                await pending
        await self._engine.close()


class ClaimGate(ForwardingEngine):
    """An engine on which no job is claimed while the gate is closed, as it is at first."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._open = asyncio.Event()
        self._claims: set[asyncio.Task[Claim]] = set()

    def let_claims_pass(self) -> None:
        """Open the gate."""
        self._open.set()

    def hold_claims(self) -> None:
        """Close the gate, also for claims that wait for work."""
        self._open.clear()
        for claiming in self._claims:
            claiming.cancel()

    async def claim(
        self,
        *,
        queues: Collection[str],
        worker: str,
        tasks: Collection[str] | None = None,
        limit: int = 1,
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
        wait_seconds: float = 0.0,
        settle: Sequence[Outcome] = (),
        chain: int = 1,
        caller: Caller = SYSTEM,
    ) -> Claim:
        """Wait until the gate is open, and claim; outcomes do not wait for it."""
        if settle and not self._open.is_set():
            return Claim([], await self.engine.settle(settle, caller=caller))
        await self._open.wait()
        claim = self.engine.claim(
            queues=queues,
            worker=worker,
            tasks=tasks,
            limit=limit,
            lease_seconds=lease_seconds,
            wait_seconds=wait_seconds,
            settle=settle,
            chain=chain,
            caller=caller,
        )
        claiming = asyncio.get_running_loop().create_task(claim)
        self._claims.add(claiming)
        try:
            return await claiming
        except asyncio.CancelledError:
            worker_task = asyncio.current_task()
            if worker_task is not None and worker_task.cancelling():
                raise
            return Claim([], [])  # the gate was closed
        finally:
            self._claims.discard(claiming)


async def _wait_for(done: concurrent.futures.Future[T]) -> None:
    await asyncio.gather(asyncio.wrap_future(done), return_exceptions=True)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _outside_of_loops(work: Callable[[], T]) -> T:
    """Run this in a thread of its own if an event loop runs here: loops do not nest."""
    if _running_loop() is None:
        return work()
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(work).result()


def _state_text(job: Job) -> str:
    if job.failure is None:
        return job.state.value
    return f"{job.state.value} ({job.failure.error_reason}: {job.failure.message})"
