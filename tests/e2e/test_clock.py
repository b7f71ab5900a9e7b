"""The machine's clock jumps under workers that are alive: the real engine, clock and worker."""

import asyncio
import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from holdfast.engines import clock as clocks
from holdfast.engines.clock import SystemClock
from holdfast.engines.journal.engine import JournalEngine
from holdfast.model.job import NewJob, State
from holdfast.worker.loops import LeaseLoop, Supervisor
from holdfast.worker.options import WorkerOptions
from holdfast.worker.registry import Registry, TaskSpec, execution_of
from holdfast.worker.signature import Signature
from holdfast.worker.worker import Worker

JOBS = 120


class Wall:
    """A wall clock that an operator, NTP or a resumed machine sets."""

    monotonic_ns = staticmethod(time.monotonic_ns)

    def __init__(self) -> None:
        self._ahead_ns = 0

    def time_ns(self) -> int:
        return time.time_ns() + self._ahead_ns

    def jump(self, seconds: float) -> None:
        self._ahead_ns += int(seconds * 1e9)


class Shop:
    """Workers on one journal, each with a lease loop of its own, as processes have."""

    def __init__(self, directory: Path, lease_seconds: float) -> None:
        self.executions: Counter[str] = Counter()
        self.registry = Registry()
        self._directory = directory
        self._lease_seconds = lease_seconds

        async def nap(name: str, seconds: float) -> None:
            self.executions[name] += 1
            await asyncio.sleep(seconds)

        signature = Signature(nap, "nap")
        self.registry.add_task(TaskSpec("nap", nap, signature, execution_of(nap, None)))

    def _leases(
        self, engine: JournalEngine, worker: Worker, interval: float, *, owner: bool
    ) -> LeaseLoop:
        """One in the owner's process, by its clock, and others in processes of their own."""
        clock = engine.clock if owner else SystemClock()
        return LeaseLoop(engine, worker, interval, clock, reclaims=owner)

    async def run(self, naps: list[float], workers: int, disturb, interval: float = 0.05) -> None:
        engine = await JournalEngine.open(self._directory, clock=SystemClock())
        options = WorkerOptions(
            slots=8, lease_seconds=self._lease_seconds, task_timeout_seconds=30.0
        )
        crew = [Worker(engine, self.registry, f"w{n}", options) for n in range(workers)]
        supervisors = [
            Supervisor(
                [self._leases(engine, worker, interval, owner=worker is crew[0])], engine.clock
            )
            for worker in crew
        ]
        ids = [f"j{number}" for number in range(len(naps))]
        await engine.enqueue(
            [
                NewJob(task="nap", id=job_id, payload={"name": job_id, "seconds": nap})
                for job_id, nap in zip(ids, naps, strict=True)
            ]
        )
        for worker, supervisor in zip(crew, supervisors, strict=True):
            worker.start()
            supervisor.start()
        async with asyncio.timeout(60):
            while (await engine.counts())["default"].completed < len(naps):
                await disturb()
        for worker, supervisor in zip(crew, supervisors, strict=True):
            await worker.stop(5.0)
            await supervisor.stop()
        found = await engine.get(ids)
        assert all(job is not None and job.state is State.COMPLETED for job in found)
        assert all(job is not None and job.losses == 0 for job in found), "a lease was taken"
        assert sum(worker.late_outcomes for worker in crew) == 0
        assert engine.leases_refused == 0
        await engine.close()
        assert self.executions == Counter(dict.fromkeys(ids, 1)), "each ran once"


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("steps", ["forward", "back and forth"])
def test_clock_jumps_lose_no_job_and_take_no_lease_of_a_live_worker(
    tmp_path, monkeypatch, steps, workers
):
    seed = int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    rng = random.Random(seed)
    wall = Wall()
    monkeypatch.setattr(clocks, "time", wall)

    async def disturb() -> None:
        # Longer than a lease, and in sum less than max_processing_seconds for any one job.
        seconds = rng.uniform(10.0, 45.0)
        wall.jump(seconds if steps == "forward" else rng.choice((seconds, -seconds)))
        await asyncio.sleep(rng.uniform(0.02, 0.12))

    naps = [rng.uniform(0.02, 0.4) for _ in range(JOBS)]
    asyncio.run(Shop(tmp_path, lease_seconds=5.0).run(naps, workers, disturb))


def test_short_leases_of_several_live_workers_are_renewed_in_time(tmp_path):
    async def disturb() -> None:
        await asyncio.sleep(0.05)

    # Reclaimed by any of three loops, each as often as a lease is long.
    naps = [1.6] * 24
    asyncio.run(Shop(tmp_path, lease_seconds=0.5).run(naps, 3, disturb, interval=0.5))
