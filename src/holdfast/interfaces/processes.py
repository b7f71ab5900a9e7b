"""More worker processes beside the owner: they are its clients, and end with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping

import msgspec

from holdfast.engines.event_log import EventLog
from holdfast.model import lifecycle
from holdfast.model.errors import HoldfastError
from holdfast.model.outcome import lost, release
from holdfast.runtime.counting import ProcessFigures
from holdfast.runtime.definition import Definition
from holdfast.runtime.observed import ObservedEngine
from holdfast.runtime.views import Running
from holdfast.runtime.worker import Worker
from holdfast.settings import Settings

from .opening import own_name

log = EventLog("holdfast.processes")

_RESTART_SECONDS = 0.5
_STOP = b"stop\n"
_DRAIN = b"drain\n"
_RESUME = b"resume\n"
_STOP_MARGIN_SECONDS = 2.0


class ProcessCharter(msgspec.Struct, frozen=True):
    """What a worker process is told on its standard input, which then stays open as a life line."""

    reference: str | None
    settings: Settings
    name: str
    reports: int | None = None
    """The file descriptor on which it says how it is doing, a line of ``ProcessFigures`` each."""


class WorkerProcesses:
    """Keeps ``processes - 1`` worker processes alive."""

    def __init__(self, definition: Definition, settings: Settings, engine: ObservedEngine) -> None:
        self._reference = definition.reference
        self._settings = settings
        self._engine = engine
        self._keepers: list[asyncio.Task[None]] = []
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._stopping = False
        self._draining = False
        self.figures: dict[str, ProcessFigures] = {}
        """How each of them is doing, as it last said, by its number."""

    def start(self) -> None:
        """Start them all."""
        for number in range(2, self._settings.processes + 1):
            name = own_name(self._settings, f"-{number}")
            keeper = asyncio.get_running_loop().create_task(self._keep(str(number), name))
            self._keepers.append(keeper)

    def apply(self, settings: Settings) -> None:
        """Hand changed settings to all of them, and to those that are started from now on."""
        self._settings = settings
        self._tell_all(msgspec.json.encode(settings) + b"\n")

    def drain(self) -> None:
        """Have all of them, and those that are started from now on, claim no more."""
        self._draining = True
        self._tell_all(_DRAIN)

    def resume(self) -> None:
        """Have them claim again."""
        self._draining = False
        self._tell_all(_RESUME)

    def resize(self, slots: int) -> None:
        """Have this many slots in each of them."""
        self.apply(msgspec.structs.replace(self._settings, worker_count=slots))

    def _tell_all(self, line: bytes) -> None:
        for process in self._running.values():
            if process.stdin is not None:
                with contextlib.suppress(ConnectionError):
                    process.stdin.write(line)

    async def stop(self) -> None:
        """Ask them to drain, wait for it, and kill what is left."""
        self._stopping = True
        self._tell_all(_STOP)
        patience_seconds = self._settings.drain_seconds + _STOP_MARGIN_SECONDS
        if self._keepers:
            await asyncio.wait(self._keepers, timeout=patience_seconds)
        for process in self._running.values():
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
        for keeper in self._keepers:
            keeper.cancel()

    async def _keep(self, number: str, name: str) -> None:
        while not self._stopping:
            process, listening = await self._spawn(number, name)
            self._running[name] = process
            log.say("worker.process_started", worker=name, pid=process.pid)
            if process.stdin is not None:
                if self._draining:
                    process.stdin.write(_DRAIN)
                if self._stopping:  # since it was started
                    process.stdin.write(_STOP)
            try:
                code = await process.wait()
            finally:
                if listening is not None:
                    listening.cancel()
                self.figures.pop(number, None)
            del self._running[name]
            await self._end_leases(name, code)
            if self._stopping:
                return
            log.say("worker.process_ended", worker=name, pid=process.pid, code=code)
            await asyncio.sleep(_RESTART_SECONDS)
            await self._end_leases(name, code)  # what a claim of its had still on the way

    async def _spawn(
        self, number: str, name: str
    ) -> tuple[asyncio.subprocess.Process, asyncio.Task[None] | None]:
        """Start one, and listen to how it is doing; on Windows it has no way to say so."""
        pipe = None if sys.platform == "win32" else os.pipe()
        passed: tuple[int, ...] = () if pipe is None else (pipe[1],)
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "holdfast.interfaces.worker_process",
                stdin=asyncio.subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
                pass_fds=passed,
            )
        except BaseException:
            if pipe is not None:
                os.close(pipe[0])
            raise
        finally:
            for theirs in passed:
                os.close(theirs)
        charter = ProcessCharter(self._reference, self._settings, name, *passed)
        if process.stdin is not None:
            process.stdin.write(msgspec.json.encode(charter) + b"\n")
        if pipe is None:
            return process, None
        return process, asyncio.get_running_loop().create_task(self._listen(number, pipe[0]))

    async def _listen(self, number: str, source: int) -> None:
        stream = asyncio.StreamReader()
        transport, _protocol = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(source, "rb", 0)
        )
        try:
            while line := await stream.readline():
                self.figures[number] = msgspec.json.decode(line, type=ProcessFigures)
        finally:
            transport.close()

    async def _end_leases(self, name: str, code: int) -> None:
        """Whoever held these is gone: nobody needs to wait for their leases."""
        outcomes = [
            # One that ran alone, in a process of its own, did not end this one.
            release(job)
            if lifecycle.runs_alone(job)
            else lost(job, f"{name}, which ran attempt {job.attempt}, ended with code {code}")
            for job in self._engine.held_by(name)
        ]
        if outcomes:
            with contextlib.suppress(HoldfastError):
                await self._engine.settle(outcomes)


class Workforce:
    """The slots of the owner and of its worker processes, as ``operations.Slots`` has them."""

    def __init__(self, worker: Worker, processes: Callable[[], WorkerProcesses | None]) -> None:
        self._worker = worker
        self._processes = processes

    @property
    def slots(self) -> Mapping[str, int]:
        """How many slots there are in each process, by the queues that they serve."""
        return self._worker.slots

    @property
    def draining(self) -> bool:
        """Whether no more is claimed."""
        return self._worker.draining

    def running(self) -> list[Running]:
        """Return what is under way in the owner itself."""
        return self._worker.running()

    def resize(self, slots: int, queue: str = "") -> None:
        """Have this many slots in each process."""
        self._worker.resize(slots, queue)
        processes = self._processes()
        if processes is not None and not queue:
            processes.resize(slots)

    def drain(self) -> None:
        """Claim no more, in any process."""
        self._worker.drain()
        processes = self._processes()
        if processes is not None:
            processes.drain()

    def resume(self) -> None:
        """Claim again."""
        self._worker.resume()
        processes = self._processes()
        if processes is not None:
            processes.resume()
