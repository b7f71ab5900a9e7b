"""A worker on the memory engine in virtual time, with records of what it does."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from holdfast.engines.clock import Clock, SystemClock
from holdfast.engines.contract import EngineOptions
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.model.job import Job, NewJob, State
from holdfast.model.outcome import Outcome
from holdfast.model.retry import RetryPolicy
from holdfast.testing import VirtualClock
from holdfast.testing.loop import VirtualLoop
from holdfast.worker.loops import LeaseLoop, Supervisor
from holdfast.worker.options import WorkerOptions
from holdfast.worker.registry import Registry, TaskSpec, execution_of
from holdfast.worker.signature import Signature
from holdfast.worker.worker import Worker

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])
NO_WAIT = RetryPolicy(base_backoff_seconds=0.0, max_backoff_seconds=0.0)


def spec_of(function: Callable[..., object], **fields: Any) -> TaskSpec:
    name = str(fields.pop("name", getattr(function, "__name__", "")))
    execution = execution_of(function, fields.pop("run_in", None))
    return TaskSpec(name, function, Signature(function, name), execution, **fields)


class BusyEngine(MemoryEngine):
    """The memory engine; counts calls, and can be unavailable."""

    def __init__(self, clock: Clock, options: EngineOptions | None = None) -> None:
        super().__init__(clock=clock, options=options)
        self.calls: Counter[str] = Counter()
        self.demands: list[int] = []
        self.fused: list[int] = []
        self.away: Callable[[str], Exception | None] = lambda _verb: None
        self.refuse: Callable[[Sequence[Outcome]], Exception | None] = lambda _outcomes: None

    async def _enter(self, verb: str) -> None:
        self.calls[verb] += 1
        error = self.away(verb)
        if error is not None:
            await asyncio.sleep(0)
            raise error

    def _look_at(self, outcomes: Sequence[Outcome]) -> None:
        error = self.refuse(outcomes) if outcomes else None
        if error is not None:
            raise error

    async def claim(self, **asked: Any) -> Any:
        await self._enter("claim")
        outcomes = asked.setdefault("settle", ())
        self._look_at(outcomes)
        self.demands.append(asked.setdefault("limit", 1))
        self.fused.append(len(outcomes))
        return await super().claim(**asked)

    async def settle(self, *args: Any, **asked: Any) -> Any:
        await self._enter("settle")
        self._look_at(args[0])
        return await super().settle(*args, **asked)

    async def extend(self, *args: Any, **asked: Any) -> Any:
        await self._enter("extend")
        return await super().extend(*args, **asked)

    async def reclaim(self, **asked: Any) -> Any:
        await self._enter("reclaim")
        return await super().reclaim(**asked)


class World:
    """Use it as ``World().run(scenario)``, where the scenario is a coroutine function of it.

    ``real`` is for threads and child processes: virtual time would not wait for them.
    """

    def __init__(self, *, real: bool = False, **options: Any) -> None:
        self.clock: Clock = SystemClock() if real else VirtualClock()
        self.registry = Registry()
        self.engine = BusyEngine(self.clock, options.pop("engine_options", None))
        self.running = 0
        self.most_running = 0
        self.seen: list[Any] = []
        options.setdefault("slots", 2)
        options.setdefault("retry", NO_WAIT)
        self.options = WorkerOptions(**options)

    def task(self, **fields: Any) -> Callable[[F], F]:
        def declare(function: F) -> F:
            self.registry.add_task(spec_of(function, **fields))
            return function

        return declare

    def run(self, scenario: Callable[[World], Coroutine[Any, Any, T]]) -> T:
        clock = self.clock
        factory = (lambda: VirtualLoop(clock)) if isinstance(clock, VirtualClock) else None
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(scenario(self))

    def start(self, *, leases: float | None = 1.0) -> Worker:
        """Start a worker, and its lease loop with this interval."""
        worker = Worker(self.engine, self.registry, "w", self.options)
        worker.start()
        self.worker = worker
        self.supervisor: Supervisor | None = None
        if leases is not None:
            self.supervisor = Supervisor([LeaseLoop(self.engine, worker, leases)], self.clock)
            self.supervisor.start()
        return worker

    async def stop(self, drain_seconds: float = 30.0) -> None:
        await self.worker.stop(drain_seconds)
        if self.supervisor is not None:
            await self.supervisor.stop()

    async def enqueue(self, task: str, count: int = 1, **fields: Any) -> list[str]:
        jobs = [NewJob(task=task, **fields) for _ in range(count)]
        return [receipt.id for receipt in await self.engine.enqueue(jobs)]

    async def job(self, job_id: str) -> Job:
        job = (await self.engine.get([job_id]))[0]
        assert job is not None
        return job

    async def states(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for counts in (await self.engine.counts()).values():
            for state in State:
                found[state.value] += getattr(counts, state.value)
        return +found

    async def until(self, reached: Callable[[], object], seconds: float = 600.0) -> None:
        """Let time pass until the condition holds."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + seconds
        while not reached():
            assert loop.time() < give_up, "the condition did not become true"
            await asyncio.sleep(0.01)

    async def until_state(self, seconds: float = 600.0, every: float = 0.05, **wanted: int) -> None:
        """Let time pass until the engine has exactly these counts."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + seconds
        while await self.states() != wanted:
            assert loop.time() < give_up, f"{await self.states()} did not become {wanted}"
            await asyncio.sleep(every)

    async def busy(self, seconds: float) -> None:
        """Run as a task; count how many run at once."""
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.running -= 1
