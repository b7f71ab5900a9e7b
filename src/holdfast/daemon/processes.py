"""Worker processes beside the daemon, which end with it.

They are clients of a daemon that owns its store; on a server each has its own connections.
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
from holdfast.model.errors import HoldfastError
from holdfast.model.fleet import ProcessSlots, RunningAttempt
from holdfast.model.job import Job
from holdfast.settings import Settings
from holdfast.telemetry.counters import ProcessMetrics, ProcessReport
from holdfast.telemetry.instrumented import InstrumentedEngine
from holdfast.worker.registry import Registry
from holdfast.worker.worker import Worker

from .take_over import ended_leases

log = StructuredLog("holdfast.processes")

_RESTART_SECONDS = 0.5
_STOP = b"stop\n"
_DRAIN = b"drain\n"
_RESUME = b"resume\n"
_STOP_MARGIN_SECONDS = 2.0


class WorkerProcessConfig(msgspec.Struct, frozen=True):
    """The first line on a worker process's standard input, which closes when the daemon ends."""

    reference: str | None
    settings: Settings
    name: str
    slots: Mapping[str, int]
    """The number of slots by queue, which may have been resized since the settings were read."""
    draining: bool
    reports: int | None = None
    """The file descriptor to which it writes a ``ProcessReport`` per line."""


class WorkerProcesses:
    """Keeps ``processes - 1`` worker processes alive."""

    def __init__(
        self,
        registry: Registry,
        settings: Settings,
        engine: InstrumentedEngine,
        worker: Worker,
        held_by: Callable[[str], Awaitable[list[Job]]],
    ) -> None:
        """Each has as many slots as the daemon's own worker.

        ``held_by`` returns the jobs of a worker that does not claim through this process.
        """
        self._reference = registry.reference
        self._settings = settings
        self._engine = engine
        self._worker = worker
        self._held_by = held_by
        numbers = map(str, range(2, settings.processes + 1))
        self.names = {number: f"{worker.name}-{number}" for number in numbers}
        """The names of their workers, by process number."""
        self._tasks: list[asyncio.Task[None]] = []
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._stopping = False
        self._draining = False
        self._name_taken = False
        self.on_started: Callable[[], None] = lambda: None
        """Called when one has started, long before it has loaded the application and claims."""
        self.figures: dict[str, ProcessMetrics] = {}
        """The last metrics of each, by process number."""

    @property
    def pids(self) -> dict[str, int]:
        """The pids of those that run, by the names of their workers."""
        return {name: process.pid for name, process in self._running.items()}

    def start(self) -> None:
        """Start them all."""
        for number, name in self.names.items():
            keeper = asyncio.get_running_loop().create_task(self._keep_running(number, name))
            self._tasks.append(keeper)

    def leave_leases(self) -> None:
        """End no leases from now on: another daemon has the names, so they may be its own."""
        self._name_taken = True

    def apply(self, settings: Settings) -> None:
        """Send changed settings to all of them; later ones start with them."""
        self._settings = settings
        self._send_all(msgspec.json.encode(settings) + b"\n")

    def drain(self) -> None:
        """Make all of them, and later ones, stop claiming."""
        self._draining = True
        for number, name in self.names.items():
            if name in self._running:  # it may claim until it reports that it is draining
                figures = self.figures.get(number, ProcessMetrics())
                self.figures[number] = msgspec.structs.replace(figures, draining=False)
        self._send_all(_DRAIN)

    def resume(self) -> None:
        """Make them claim again."""
        self._draining = False
        self._send_all(_RESUME)

    def resize(self, slots: int, queue: str = "") -> None:
        """Set the number of slots in each; one that is started later has the daemon's."""
        self._send_all(f"resize {slots} {queue}\n".encode())

    def _send_all(self, line: bytes) -> None:
        for process in self._running.values():
            if process.stdin is not None:
                with contextlib.suppress(ConnectionError):
                    process.stdin.write(line)

    async def stop(self) -> None:
        """Ask them to drain, wait for it, and kill those that are left."""
        self._stopping = True
        self._send_all(_STOP)
        patience_seconds = self._settings.drain_seconds + _STOP_MARGIN_SECONDS
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=patience_seconds)
        for process in self._running.values():
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
        for keeper in self._tasks:
            keeper.cancel()

    async def _keep_running(self, number: str, name: str) -> None:
        while not self._stopping:
            try:
                process, listening = await self._spawn(number, name)
            except OSError as error:  # too many files or processes, or too little memory
                log.emit("worker.process_not_started", worker=name, error=error)
                await asyncio.sleep(_RESTART_SECONDS)
                continue
            self._running[name] = process
            self.on_started()
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
            await self._end_leases(name, code)  # for a claim that was still in flight

    async def _spawn(
        self, number: str, name: str
    ) -> tuple[asyncio.subprocess.Process, asyncio.Task[None]]:
        """Start one, and a task that reads its reports."""
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
        config = WorkerProcessConfig(
            self._reference,
            self._settings,
            name,
            self._worker.slots,
            self._draining,
            theirs if _passed(theirs) else None,
        )
        if process.stdin is not None:
            process.stdin.write(msgspec.json.encode(config) + b"\n")
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
        """End the leases of a process that has ended."""
        try:
            jobs = [*self._engine.held_by(name), *await self._held_by(name)]
        except HoldfastError:
            return  # their leases run out
        if jobs and not self._name_taken:
            with contextlib.suppress(HoldfastError):
                await self._engine.settle(ended_leases(jobs, f"{name} ended with code {code}"))


class ProcessSlotsControl:
    """The slots of the daemon and of its worker processes."""

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
        """The slots of each by the name of its worker; None for one that has not reported yet."""
        found: dict[str, ProcessSlots | None] = {self._worker.name: self._worker.process_slots}
        for number, name in self._processes.names.items():
            report = self._processes.figures.get(number)
            found[name] = (
                None if report is None else ProcessSlots(report.slots, report.busy, report.draining)
            )
        return found

    @property
    def pids(self) -> Mapping[str, int]:
        """The pids of the worker processes, by the names of their workers."""
        return self._processes.pids

    @property
    def queues(self) -> tuple[str, ...] | None:
        """The queues that they serve; None: all."""
        return self._worker.queues

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
