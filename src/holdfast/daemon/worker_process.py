"""A worker process of an owner: ``python -m holdfast.daemon.worker_process``."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import BinaryIO

import msgspec

from holdfast.engines.clock import SystemClock
from holdfast.engines.contract import Engine
from holdfast.engines.structured_log import StructuredLog
from holdfast.model.job import MICROSECONDS
from holdfast.projections.registry import add_projections
from holdfast.settings import Settings
from holdfast.stores.opening import connect_postgres, open_client, open_remote
from holdfast.telemetry.counters import Metrics, ProcessReport
from holdfast.telemetry.instrumented import InstrumentedEngine
from holdfast.telemetry.log_output import (
    LogOptions,
    SuppressedSummaryLoop,
    configure_logging,
    sum_up,
)
from holdfast.telemetry.loop_lag import LoopLag
from holdfast.worker.app_loader import load_registry
from holdfast.worker.builtin_tasks import add_builtin
from holdfast.worker.child_process import close_stdin, exit_with_parent
from holdfast.worker.loops import CancellationLoop, LeaseLoop, Loop, Supervisor
from holdfast.worker.outage_loop import OutageLoop
from holdfast.worker.registry import Registry
from holdfast.worker.worker import Worker

from .control_socket import control_path
from .forks import close_in_forks
from .processes import WorkerProcessConfig
from .watchdog import Watchdog, exit_in_time
from .worker_settings import apply_settings, event_loop_runner, worker_options

log = StructuredLog("holdfast.worker")


def main() -> None:
    """Work until the owner stops this process, or ends."""
    # The owner handles signals to the whole group, and sends commands. Not SIG_IGN: processes that
    # a task starts would inherit it, and could not be terminated.
    signal.signal(signal.SIGINT, _ignore_signal)
    signal.signal(signal.SIGTERM, _ignore_signal)
    owner_pipe = os.fdopen(os.dup(0), "rb")
    close_stdin()  # a task must not read the owner's commands
    line = owner_pipe.readline()
    if not line:
        os._exit(1)  # the owner has ended
    config = msgspec.json.decode(line, type=WorkerProcessConfig)
    settings = config.settings
    configure_logging(LogOptions(settings.log_level, settings.log_format))
    with event_loop_runner(settings) as runner:
        runner.run(_exit_on_failure(_work(config, owner_pipe), config.name))


async def _exit_on_failure(work: Coroutine[None, None, None], name: str) -> None:
    try:
        await work
    except asyncio.CancelledError:
        # A task raised SystemExit on the event loop. The owner starts another process.
        os._exit(1)
    except Exception as error:  # noqa: BLE001 - the owner starts another process
        log.emit("worker.process_failed", worker=name, foreign=error)
        os._exit(1)


async def _work(config: WorkerProcessConfig, owner_pipe: BinaryIO) -> None:
    settings = config.settings
    registry = load_registry(config.reference) if config.reference else Registry()
    add_builtin(registry, settings.default_task)
    loop = asyncio.get_running_loop()
    exit_with_parent(os.getppid(), lambda: os._exit(1))
    for hook in registry.on_start:
        pending = hook()
        if inspect.isawaitable(pending):
            await pending
    reports = [] if config.reports is None else [config.reports]
    close_in_forks(control_path(settings), owner_pipe.fileno(), *reports)
    metrics = Metrics()
    engine = await _open_engine(settings, metrics, registry.settings.key)
    if settings.on_server:
        add_projections(registry, engine, settings)
    elif settings.only_projections is not None:
        registry.tasks.clear()  # the owner applies them: the files are its own
    worker = Worker(engine, registry, config.name, worker_options(settings))
    for queue, slots in config.slots.items():
        worker.resize(slots, queue)
    if config.draining:
        worker.drain()
    await worker.look_for_queues()
    worker.start()
    leases = LeaseLoop(
        engine, worker, settings.reclaim_interval_seconds, SystemClock(), reclaims=False
    )
    report_loops = [ReportLoop(worker, metrics, into) for into in reports]
    loops: list[Loop] = [
        leases,
        CancellationLoop(worker),
        OutageLoop(engine, worker.outage_detector, registry.health_checks),
        SuppressedSummaryLoop(),
        *report_loops,
    ]
    supervisor = Supervisor(loops, SystemClock())
    supervisor.start()
    # The owner starts another one, and ends the leases of this one.
    Watchdog(settings.stall_seconds, lambda: os._exit(70)).start()

    commands = OwnerCommands(settings, worker, leases, report_loops)
    threading.Thread(target=_listen, args=(owner_pipe, loop, commands.handle), daemon=True).start()
    await commands.stop.wait()
    await worker.stop(commands.settings.drain_seconds)
    await supervisor.stop()
    for hook in registry.on_stop:
        try:
            pending = hook()
            if inspect.isawaitable(pending):
                await pending
        except Exception as error:  # noqa: BLE001 - logged, and the stop goes on
            log.emit("daemon.hook_failed", foreign=error)
    await engine.close()
    sum_up(everything=True)
    exit_in_time(loop, 0)


async def _open_engine(settings: Settings, metrics: Metrics, key: str | None) -> Engine:
    """Return a client of the owner, which counts; elsewhere, an engine that counts itself."""
    engine: Engine
    if settings.on_server:
        engine = await connect_postgres(settings)
    elif settings.remote:
        engine = open_remote(settings, key)
    else:
        return await open_client(settings)
    return InstrumentedEngine(engine, metrics, outage_max_seconds=settings.outage_max_seconds)


class OwnerCommands:
    """Handles the owner's commands, one per line."""

    def __init__(
        self,
        settings: Settings,
        worker: Worker,
        leases: LeaseLoop,
        report_loops: Sequence[ReportLoop],
    ) -> None:
        self.settings = settings
        """The present settings."""
        self.stop = asyncio.Event()
        self._worker = worker
        self._leases = leases
        self._report_loops = report_loops

    def handle(self, line: bytes) -> None:
        """Execute a command, and report."""
        if line == b"stop\n":
            self.stop.set()
        elif line == b"drain\n":
            self._worker.drain()
        elif line == b"resume\n":
            self._worker.resume()
        elif line.startswith(b"resize "):
            _word, slots, queue = line.decode().rstrip("\n").split(" ", 2)
            self._worker.resize(int(slots), queue)
        else:
            settings = self.settings = msgspec.json.decode(line, type=Settings)
            apply_settings(self._worker, self._leases, settings)
            configure_logging(LogOptions(settings.log_level, settings.log_format))
        for one in self._report_loops:
            one.report()


class ReportLoop:
    """A loop that reports this process's metrics to the owner."""

    def __init__(self, worker: Worker, metrics: Metrics, into: int) -> None:
        os.set_blocking(into, False)
        self._worker = worker
        self._metrics = metrics
        self._into = into
        self._lag = LoopLag()
        self._lag.start()

    async def step(self, now_us: int) -> int:
        """Report once a second."""
        self.report()
        return now_us + MICROSECONDS

    def report(self) -> None:
        """Report; if the pipe is full or closed, keep the counts for the next report."""
        counted = self._metrics.take()
        report = ProcessReport(self._worker.metrics(self._lag.seconds), counted)
        try:
            os.write(self._into, msgspec.json.encode(report) + b"\n")
        except OSError:
            self._metrics.add(counted)


def _ignore_signal(_signal: int, _frame: object) -> None:
    """Do nothing."""


def _listen(
    owner_pipe: BinaryIO, loop: asyncio.AbstractEventLoop, handle: Callable[[bytes], None]
) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed
        while line := owner_pipe.readline():
            loop.call_soon_threadsafe(handle, line)
        os._exit(1)  # the owner has ended


if __name__ == "__main__":
    main()
