"""More worker processes beside the daemon, which end with it.

Of a store that the daemon owns they are its clients; on a server each has its own connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import TypedDict

import msgspec

from holdfast.engines.structured_log import StructuredLog
from holdfast.model import lifecycle
from holdfast.model.errors import HoldfastError
from holdfast.model.job import Job
from holdfast.model.outcome import lost, release
from holdfast.operations.views import ProcessSlots, RunningAttempt
from holdfast.settings import Settings
from holdfast.telemetry.counters import ProcessMetrics, ProcessReport
from holdfast.telemetry.instrumented import InstrumentedEngine
from holdfast.worker.registry import Registry
from holdfast.worker.worker import Worker

from .worker_settings import worker_name

log = StructuredLog("holdfast.processes")

_RESTART_SECONDS = 0.5
_STOP = b"stop\n"
_DRAIN = b"drain\n"
_RESUME = b"resume\n"
_STOP_MARGIN_SECONDS = 2.0


class WorkerProcessConfig(msgspec.Struct, frozen=True):
    """What a worker process is told on its standard input, which then stays open as a life line."""

    reference: str | None
    settings: Settings
    name: str
    slots: Mapping[str, int]
    """How many it is to have by their queues, whatever the settings say: they may be resized."""
    draining: bool
    reports: int | None = None
    """The file descriptor on which it says how it is doing, a line of ``ProcessReport`` each."""


class WorkerProcesses:
    """Keeps ``processes - 1`` worker processes alive."""

    def __init__(
        self,
        definition: Registry,
        settings: Settings,
        engine: InstrumentedEngine,
        worker: Worker,
        held_by: Callable[[str], Awaitable[list[Job]]],
    ) -> None:
        """Take whose they are: each of them has as many slots as the owner's own worker.

        ``held_by`` says what a worker holds that does not claim through this process.
        """
        self._reference = definition.reference
        self._settings = settings
        self._engine = engine
        self._worker = worker
        self._held_by = held_by
        numbers = map(str, range(2, settings.processes + 1))
        self.names = {number: worker_name(settings, f"-{number}") for number in numbers}
        """As whom they claim, by their number."""
        self._keepers: list[asyncio.Task[None]] = []
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._stopping = False
        self._draining = False
        self.figures: dict[str, ProcessMetrics] = {}
        """How each of them is doing, as it last said, by its number."""

    def start(self) -> None:
        """Start them all."""
        for number, name in self.names.items():
            keeper = asyncio.get_running_loop().create_task(self._keep(number, name))
            self._keepers.append(keeper)

    def apply(self, settings: Settings) -> None:
        """Hand changed settings to all of them, and to those that are started from now on."""
        self._settings = settings
        self._tell_all(msgspec.json.encode(settings) + b"\n")

    def drain(self) -> None:
        """Have all of them, and those that are started from now on, claim no more."""
        self._draining = True
        for number, name in self.names.items():
            if name in self._running:  # it may claim until it says that it has heard this
                figures = self.figures.get(number, ProcessMetrics())
                self.figures[number] = msgspec.structs.replace(figures, draining=False)
        self._tell_all(_DRAIN)

    def resume(self) -> None:
        """Have them claim again."""
        self._draining = False
        self._tell_all(_RESUME)

    def resize(self, slots: int, queue: str = "") -> None:
        """Have this many slots in each of them; one that is started later has the owner's."""
        self._tell_all(f"resize {slots} {queue}\n".encode())

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
            try:
                process, listening = await self._spawn(number, name)
            except OSError as error:  # too many files or processes, or too little memory
                log.emit("worker.process_not_started", worker=name, error=error)
                await asyncio.sleep(_RESTART_SECONDS)
                continue
            self._running[name] = process
            log.emit("worker.process_started", worker=name, pid=process.pid)
            if process.stdin is not None and self._stopping:  # since it was started
                process.stdin.write(_STOP)
            try:
                code = await process.wait()
            finally:
                listening.cancel()
                self.figures.pop(number, None)
            del self._running[name]
            await self._end_leases(name, code)
            if self._stopping:
                return
            log.emit("worker.process_ended", worker=name, pid=process.pid, code=code)
            await asyncio.sleep(_RESTART_SECONDS)
            await self._end_leases(name, code)  # what a claim of its had still on the way

    async def _spawn(
        self, number: str, name: str
    ) -> tuple[asyncio.subprocess.Process, asyncio.Task[None]]:
        """Start one, and listen to how it is doing."""
        ours, theirs = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "holdfast.daemon.worker_process",
                stdin=asyncio.subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
                **_passed(theirs),
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        listening = asyncio.get_running_loop().create_task(self._listen(number, ours))
        charter = WorkerProcessConfig(
            self._reference,
            self._settings,
            name,
            self._worker.slots,
            self._draining,
            theirs if _passed(theirs) else None,
        )
        if process.stdin is not None:
            process.stdin.write(msgspec.json.encode(charter) + b"\n")
        return process, listening

    async def _listen(self, number: str, source: int) -> None:
        stream = asyncio.StreamReader()
        transport, _protocol = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(source, "rb", 0)
        )
        try:
            while line := await stream.readline():
                report = msgspec.json.decode(line, type=ProcessReport)
                self.figures[number] = report.figures
                self._engine.metrics.add(report.counted)
        finally:
            transport.close()

    async def _end_leases(self, name: str, code: int) -> None:
        """Whoever held these is gone: nobody needs to wait for their leases."""
        try:
            jobs = [*self._engine.held_by(name), *await self._held_by(name)]
        except HoldfastError:
            return  # their leases run out
        outcomes = [
            # One that ran alone, in a process of its own, did not end this one.
            release(job)
            if lifecycle.runs_alone(job)
            else lost(job, f"{name}, which ran attempt {job.attempt}, ended with code {code}")
            for job in jobs
        ]
        if outcomes:
            with contextlib.suppress(HoldfastError):
                await self._engine.settle(outcomes)


class ProcessSlotsControl:
    """The slots of the owner and of its worker processes, as ``operations.Slots`` has them."""

    def __init__(
        self, worker: Worker, processes: WorkerProcesses, engine: InstrumentedEngine
    ) -> None:
        self._worker = worker
        self._processes = processes
        self._engine = engine

    @property
    def slots(self) -> Mapping[str, int]:
        """How many slots there are in each process, by the queues that they serve."""
        return self._worker.slots

    @property
    def processes(self) -> Mapping[str, ProcessSlots | None]:
        """The slots of each process by its number; None is one that has not said anything yet."""
        found: dict[str, ProcessSlots | None] = {**self._worker.processes}
        for number in self._processes.names:
            said = self._processes.figures.get(number)
            found[number] = (
                None if said is None else ProcessSlots(said.slots, said.busy, said.draining)
            )
        return found

    @property
    def draining(self) -> bool:
        """Whether no more is claimed."""
        return self._worker.draining

    def running(self) -> list[RunningAttempt]:
        """Return what is under way: attempts in the owner, and every other lease of any process."""
        found, known = self._worker.running(), self._worker.tokens()
        names = self._worker.name, *self._processes.names.values()
        return found + [
            RunningAttempt(job.id, job.task, job.queue, job.attempt, seconds, None, "")
            for job, seconds in self._engine.held_for(*names)
            if job.token not in known
        ]

    def check_resize(self, slots: int, queue: str = "") -> None:
        """Raise ``InvalidInput`` if there cannot be this many slots."""
        self._worker.check_resize(slots, queue)

    def resize(self, slots: int, queue: str = "") -> None:
        """Have this many slots in each process."""
        self._worker.resize(slots, queue)
        self._processes.resize(slots, queue)

    def drain(self) -> None:
        """Claim no more, in any process."""
        self._worker.drain()
        self._processes.drain()

    def resume(self) -> None:
        """Claim again."""
        self._worker.resume()
        self._processes.resume()


class _Passed(TypedDict, total=False):
    pass_fds: tuple[int, ...]


def _passed(number: int) -> _Passed:
    """Return how a process is given a file of ours; on Windows there is no way."""
    return {} if sys.platform == "win32" else {"pass_fds": (number,)}
