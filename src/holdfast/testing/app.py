"""Testing the tasks of an application: the real engine and worker in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Protocol, TypeVar

from holdfast.engines.contract import Engine
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.model.durations import Duration, seconds_of
from holdfast.model.job import Job, State
from holdfast.worker.builtin_tasks import add_builtin
from holdfast.worker.loops import LeaseLoop, Loop, Supervisor
from holdfast.worker.options import WorkerOptions
from holdfast.worker.registry import Registry
from holdfast.worker.schedules import ScheduleLoop
from holdfast.worker.worker import Worker

from .clock import VirtualClock
from .disk import SimDisk
from .loop import VirtualLoop

T = TypeVar("T")

_OPTIONS = JournalOptions(inline=True, segment_bytes=4 << 20)
_STEP_SECONDS = 0.05
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

    Use it as a context manager. Nothing runs by itself, only in ``advance``, ``drain`` and ``run``.
    Every task runs on the loop; there are no threads and child processes.
    """

    __test__ = False

    def __init__(self, registry: Registry, bound: EngineBinding, slots: int = 8) -> None:
        self.clock = VirtualClock()
        self.loop = VirtualLoop(self.clock)
        self._registry = registry
        self._bound = bound
        self._slots = slots

    def __enter__(self) -> Rehearsal:
        """Open the store and start the worker."""
        self.run(self._open())
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
        self.run(self._close())
        self.loop.close()

    @property
    def engine(self) -> Engine:
        """The engine, for direct calls."""
        return self._engine

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Run a coroutine on the loop and return its result."""
        return self.loop.run_until_complete(work)

    def advance(self, duration: Duration) -> None:
        """Move time forward and run everything that becomes due."""
        self.loop.advance(seconds_of("duration", duration))

    def drain(self) -> None:
        """Run every job that is due, however long it takes; jobs due later stay pending."""
        give_up_us = self.clock.now_us() + int(_PATIENCE_SECONDS * 1_000_000)
        self.loop.run_until_idle()
        while self._busy():
            if self.clock.now_us() > give_up_us:
                raise AssertionError("still busy after a virtual day: does a task never end?")
            self.loop.advance(_STEP_SECONDS)

    def jobs(self, task: NamedTask | str | None = None) -> list[Job]:
        """Return all jobs, or those of one task, oldest first."""
        name = task if isinstance(task, str) or task is None else task.name
        found = [job for job in self._engine.kept() if name is None or job.task == name]
        return sorted(found, key=lambda job: (job.created_at_us, job.id))

    def assert_completed(self, task: NamedTask | str, times: int | None = None) -> list[Job]:
        """Check that jobs of the task are completed, ``times`` of them if given; return them."""
        return self._assert_state(task, State.COMPLETED, times)

    def assert_dead(
        self, task: NamedTask | str, error_reason: str | None = None, times: int | None = None
    ) -> list[Job]:
        """Check that jobs of the task are dead, for ``error_reason`` if given; return them."""
        found = self._assert_state(task, State.DEAD, times)
        for job in found:
            reason = "" if job.failure is None else job.failure.error_reason
            if error_reason is not None and reason != error_reason:
                raise AssertionError(f"job {job.id} died of {reason!r}, not of {error_reason!r}")
        return found

    def assert_pending(self, task: NamedTask | str, times: int | None = None) -> list[Job]:
        """Check that jobs of the task are pending; return them."""
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
        self._worker = Worker(self._engine, registry, "own/testing", options)
        loops: list[Loop] = [
            LeaseLoop(self._engine, self._worker, 1.0),
            ScheduleLoop(
                list(registry.schedules.values()),
                lambda jobs, on_duplicate: self._engine.enqueue(jobs, on_duplicate=on_duplicate),
                remember_seconds=_OPTIONS.remember_seconds,
            ),
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


def _state_text(job: Job) -> str:
    if job.failure is None:
        return job.state.value
    return f"{job.state.value} ({job.failure.error_reason}: {job.failure.message})"
