"""A remote worker: its own process and a client of the owner, like ``daemon.worker_process``."""

from __future__ import annotations

import asyncio

from holdfast.engines.client.engine import ClientEngine
from holdfast.model.errors import HoldfastError
from holdfast.worker.loops import CancellationLoop, LeaseLoop, Supervisor
from holdfast.worker.worker import Worker

from .application import registry
from .owner import PATH
from .process import Process
from .recording_engine import RecordingEngine


class RemoteWorker:
    """A process with one worker, whose leases survive restarts of the owner."""

    def __init__(self, process: Process) -> None:
        self.worker: Worker | None = None
        self._process = process
        self._stop = asyncio.Event()

    def ask_to_stop(self) -> None:
        """Begin to stop."""
        self._process.call_soon(self._stop.set)

    async def main(self) -> None:
        """Work until asked to stop, or exit if no owner can be reached at the start."""
        process, world = self._process, self._process.world
        settings = world.scenario.settings
        engine = ClientEngine(
            PATH,
            clock=process.clock,
            random_bytes=world.random(f"{process.name}/ids").randbytes,
        )
        recording = RecordingEngine(engine, process)
        worker = Worker(
            recording,
            registry(owner=False),
            process.name,
            world.scenario.remote_options(),
        )
        try:
            await worker.look_for_queues()
        except HoldfastError as error:
            world.trace.note("worker.no_start", process.name, type(error).__name__)
            await engine.close()
            process.exit()
            return
        worker.start()
        self.worker = worker
        leases = LeaseLoop(
            recording, worker, settings.reclaim_interval_seconds, process.clock, reclaims=False
        )
        supervisor = Supervisor([leases, CancellationLoop(worker)], process.clock)
        supervisor.start()
        await self._stop.wait()
        await worker.stop(settings.drain_seconds)
        await supervisor.stop()
        await engine.close()
        world.trace.note("worker.stopped", process.name)
        process.exit()
