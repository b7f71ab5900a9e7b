"""What the daemon does for its worker processes when they start and when they end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from holdfast.daemon import announcer
from holdfast.daemon.daemon import Daemon
from holdfast.daemon.processes import WorkerProcesses
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.model.errors import WorkerIdInUse
from holdfast.model.job import Job, NewJob, State
from holdfast.model.search import Filter
from holdfast.settings import Settings
from holdfast.telemetry.counters import Metrics
from holdfast.telemetry.instrumented import InstrumentedEngine
from holdfast.worker.options import WorkerOptions
from holdfast.worker.registry import Registry
from holdfast.worker.worker import Worker
from tests.settings.observing import daemon_of, settings_of, until

SETTINGS = Settings(processes=2)


class Started(WorkerProcesses):
    """Its one process does nothing, and ends when it is told anything."""

    async def _spawn(
        self, number: str, name: str
    ) -> tuple[asyncio.subprocess.Process, asyncio.Task[None]]:
        process = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", "read line", stdin=asyncio.subprocess.PIPE
        )
        return process, asyncio.get_running_loop().create_task(asyncio.sleep(0))


@contextlib.asynccontextmanager
async def started() -> AsyncIterator[tuple[MemoryEngine, Started]]:
    """Start the processes of a daemon whose store is a server: leases are read from there."""
    store = MemoryEngine()

    async def held_by(worker: str) -> list[Job]:
        page = await store.find(Filter(states=(State.IN_FLIGHT,)))
        return [job for job in page.jobs if job.worker == worker]

    engine = InstrumentedEngine(store, Metrics())
    worker = Worker(engine, Registry(), "w", WorkerOptions(slots=1))
    processes = Started(Registry(), SETTINGS, engine, worker, held_by)
    processes.start()
    try:
        async with asyncio.timeout(10):
            while not processes.pids:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        await store.enqueue([NewJob(task="t", payload={}, id="held")])
        await store.claim(queues=["default"], worker="w-2")
        yield store, processes
    finally:
        await processes.stop()


async def test_a_process_that_has_started_is_announced_at_once():
    """Also one that is started again: who takes over must not believe that it has ended."""
    async with started() as (_store, processes):
        announced: list[dict[str, int]] = []
        processes.on_started = lambda: announced.append(processes.pids)
        [first] = processes.pids.values()
        processes.resume()  # it ends
        async with asyncio.timeout(10):
            while not announced:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        assert announced == [processes.pids]
        assert processes.pids["w-2"] != first


async def test_by_the_daemon_too(here, monkeypatch):
    """Its entry has the pid of the process, and no beat has come round."""
    monkeypatch.setattr(announcer, "BEAT_SECONDS", 600.0)
    monkeypatch.setattr(WorkerProcesses, "_spawn", Started._spawn)
    async with daemon_of(settings_of(processes="2", worker_id="w")) as (_daemon, client):

        async def pids() -> set[str]:
            [entry] = await client.workers(gone=True)
            return set(entry.process.pids) - {"own/w"}

        assert await until(pids, "the process is announced") == {"own/w-2"}


@pytest.mark.parametrize("taken", [True, False])
async def test_once_its_name_is_taken_a_daemon_ends_no_leases(taken: bool):
    """They may be those of the daemon that took it; otherwise they end with their process."""
    async with started() as (store, processes):
        daemon = Daemon(Registry(), SETTINGS)
        daemon._processes = processes
        if taken:
            daemon._on_name_taken(WorkerIdInUse("w", "west", 7))
        await processes.stop()
        [job] = await store.get(["held"])
        assert job is not None
        assert job.state == (State.IN_FLIGHT if taken else State.PENDING)
