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
from holdfast.settings import Settings
from holdfast.stores.opening import connect_postgres, open_client
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
from holdfast.worker.loops import LeaseLoop, Loop, Supervisor
from holdfast.worker.registry import Registry
from holdfast.worker.worker import Worker

from .control_socket import control_path
from .forks import let_go_in_forks
from .processes import WorkerProcessConfig
from .watchdog import Watchdog, leave_in_time
from .worker_settings import apply_settings, event_loop_runner, worker_options

log = StructuredLog("holdfast.worker")


def main() -> None:
    """Work until the owner says stop, or is gone."""
    # Signals to the whole group are the owner's to handle: it tells us. Not by SIG_IGN, which
    # whatever a task starts would inherit, and then could not be terminated.
    signal.signal(signal.SIGINT, _leave_it_to_the_owner)
    signal.signal(signal.SIGTERM, _leave_it_to_the_owner)
    life_line = os.fdopen(os.dup(0), "rb")
    close_stdin()  # a task must not read the owner's messages
    line = life_line.readline()
    if not line:
        os._exit(1)  # the owner is gone, or could not keep us
    charter = msgspec.json.decode(line, type=WorkerProcessConfig)
    settings = charter.settings
    configure_logging(LogOptions(settings.log_level, settings.log_format))
    with event_loop_runner(settings) as runner:
        runner.run(_guarded(_work(charter, life_line), charter.name))


async def _guarded(work: Coroutine[None, None, None], name: str) -> None:
    try:
        await work
    except asyncio.CancelledError:
        # A task has let a SystemExit loose on the event loop. The owner starts another process.
        os._exit(1)
    except Exception as error:  # noqa: BLE001 - whatever it is, the owner starts another process
        log.emit("worker.process_failed", worker=name, foreign=error)
        os._exit(1)


async def _work(charter: WorkerProcessConfig, life_line: BinaryIO) -> None:
    settings = charter.settings
    definition = load_registry(charter.reference) if charter.reference else Registry()
    add_builtin(definition, settings.default_task)
    loop = asyncio.get_running_loop()
    exit_with_parent(os.getppid(), lambda: os._exit(1))
    for hook in definition.on_start:
        pending = hook()
        if inspect.isawaitable(pending):
            await pending
    reports = [] if charter.reports is None else [charter.reports]
    let_go_in_forks(control_path(settings), life_line.fileno(), *reports)
    metrics = Metrics()
    engine = await _open_engine(settings, metrics)
    worker = Worker(engine, definition, charter.name, worker_options(settings))
    for queue, slots in charter.slots.items():
        worker.resize(slots, queue)
    if charter.draining:
        worker.drain()
    await worker.look_for_queues()
    worker.start()
    leases = LeaseLoop(
        engine, worker, settings.reclaim_interval_seconds, SystemClock(), reclaims=False
    )
    reporting = [ReportLoop(worker, metrics, into) for into in reports]
    loops: list[Loop] = [leases, SuppressedSummaryLoop(), *reporting]
    supervisor = Supervisor(loops, SystemClock())
    supervisor.start()
    if settings.stall_seconds is not None:
        # The owner starts another one, and ends the leases of this one.
        Watchdog(settings.stall_seconds, lambda: os._exit(70)).start()

    orders = OwnerCommands(settings, worker, leases, reporting)
    threading.Thread(target=_listen, args=(life_line, loop, orders.hear), daemon=True).start()
    await orders.stop.wait()
    await worker.stop(orders.settings.drain_seconds)
    await supervisor.stop()
    for hook in definition.on_stop:
        try:
            pending = hook()
            if inspect.isawaitable(pending):
                await pending
        except Exception as error:  # noqa: BLE001 - said, and the stop goes on
            log.emit("daemon.hook_failed", foreign=error)
    await engine.close()
    sum_up(everything=True)
    leave_in_time(loop, 0)


async def _open_engine(settings: Settings, metrics: Metrics) -> Engine:
    """Return the owner's engine, which counts; on a server, one of our own that does."""
    if settings.on_server:
        return InstrumentedEngine(await connect_postgres(settings), metrics)
    return await open_client(settings)


class OwnerCommands:
    """What the owner says to a worker process of its own, a line each."""

    def __init__(
        self,
        settings: Settings,
        worker: Worker,
        leases: LeaseLoop,
        reporting: Sequence[ReportLoop],
    ) -> None:
        self.settings = settings
        """Those that hold now."""
        self.stop = asyncio.Event()
        self._worker = worker
        self._leases = leases
        self._reporting = reporting

    def hear(self, line: bytes) -> None:
        """Do what the owner says, and tell it how things are now."""
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
        for one in self._reporting:
            one.report()


class ReportLoop:
    """A loop: tells the owner how this process is doing, for its metrics."""

    def __init__(self, worker: Worker, metrics: Metrics, into: int) -> None:
        os.set_blocking(into, False)
        self._worker = worker
        self._metrics = metrics
        self._into = into
        self._lag = LoopLag()
        self._lag.start()

    async def step(self, now_us: int) -> int:
        """Tell it once a second."""
        self.report()
        return now_us + MICROSECONDS

    def report(self) -> None:
        """Tell it; if the owner does not listen, leave it."""
        counted = self._metrics.take()
        report = ProcessReport(self._worker.metrics(self._lag.seconds), counted)
        try:
            os.write(self._into, msgspec.json.encode(report) + b"\n")
        except OSError:
            self._metrics.add(counted)


def _leave_it_to_the_owner(_signal: int, _frame: object) -> None:
    """Do nothing."""


def _listen(
    life_line: BinaryIO, loop: asyncio.AbstractEventLoop, hear: Callable[[bytes], None]
) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed
        while line := life_line.readline():
            loop.call_soon_threadsafe(hear, line)
        os._exit(1)  # the owner is gone


if __name__ == "__main__":
    main()
