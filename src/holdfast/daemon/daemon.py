"""The daemon: owns the store, runs the worker and the loops, and answers on its socket."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from holdfast import __version__
from holdfast.engines.contract import Engine
from holdfast.engines.structured_log import StructuredLog
from holdfast.model.durations import format_seconds
from holdfast.model.errors import DurabilityLost, HoldfastError, InvalidInput, UnknownTask
from holdfast.model.redaction import without_secrets
from holdfast.operations.operations import Operations
from holdfast.settings import LoadedSettings, Settings, unusable_paths, with_origin
from holdfast.telemetry.counters import Metrics
from holdfast.telemetry.instrumented import InstrumentedEngine
from holdfast.telemetry.log_output import SuppressedSummaryLoop, sum_up
from holdfast.telemetry.loop_lag import LoopLag
from holdfast.worker.builtin_tasks import add_builtin
from holdfast.worker.loops import LeaseLoop, Loop, Supervisor
from holdfast.worker.registry import Hook, Registry
from holdfast.worker.schedules import ScheduleLoop, store_schedules
from holdfast.worker.worker import Worker

from .control_socket import control_lock, control_path
from .daemon_store import Store, open_store
from .forks import close_in_forks
from .processes import ProcessSlotsControl, WorkerProcesses
from .reload import SettingsReloader
from .rpc.app import Route, RpcApp
from .rpc.routes import config_routes, health_routes, metrics_routes, operation_routes
from .rpc.server import bind_loopback, bind_socket, serving
from .watchdog import Watchdog, exit_in_time
from .worker_settings import apply_settings, worker_name, worker_options

log = StructuredLog("holdfast.daemon")

EXIT_FAILED = 1


class Daemon:
    """Everything that ``holdfast run`` runs, from ``start`` to ``stop``."""

    def __init__(
        self,
        registry: Registry,
        settings: Settings,
        *,
        say: Callable[[str], None] = lambda _line: None,
        adopt: Callable[[Engine | None], None] = lambda _engine: None,
        origins: Mapping[str, str] = MappingProxyType({}),
        reload: Callable[[], LoadedSettings] | None = None,
        configure: Callable[[Settings], None] = lambda _settings: None,
    ) -> None:
        """``adopt`` takes the engine that the application is to use, and None at the end.

        ``reload`` reads the settings again, and ``configure`` takes those that changed.
        """
        self.settings = settings
        self._origins = dict.fromkeys(settings.__struct_fields__, "default") | dict(origins)
        self.metrics = Metrics()
        self._registry = registry
        self._say = say
        self._adopt = adopt
        self._reload = reload
        self._configure = configure
        self._reloading: SettingsReloader | None = None
        self._stop_asked = asyncio.Event()
        self._failure: HoldfastError | None = None
        self._stopping = False
        self._metrics_at: str | None = None
        self._open = contextlib.AsyncExitStack()
        self._lease_loop: LeaseLoop | None = None
        self._store: Store | None = None
        self._operations: Operations | None = None
        self._worker: Worker | None = None
        self._processes: WorkerProcesses | None = None
        self.slots_control: ProcessSlotsControl | None = None
        """The slots of all processes, once it has started."""

    async def start(self) -> None:
        """Own the store, recover, listen, and begin to work."""
        settings = self.settings
        self._check()
        store = self._store = await self._open_store()
        self._open.push_async_callback(store.engine.close)
        self._say(f"holdfast started: store {settings.store_shown} {store.summary(settings)}")
        try:
            await self._start(store)
        except BaseException:
            await self._open.aclose()
            raise

    async def _start(self, store: Store) -> None:
        settings, metrics = self.settings, self.metrics
        metrics.add_queues(self._registry.queues)
        metrics.store = store.figures
        engine = InstrumentedEngine(store.engine, metrics, store.held_now(), store.clock.now_us())
        engine.count_lost(store.lost_at_open)
        self._adopt(engine)
        self._open.callback(self._adopt, None)
        await self._run_hooks(self._registry.on_start)
        worker = self._worker = self._make_worker(engine)
        # Before a drain can be asked for: processes that start later must know of it.
        processes = WorkerProcesses(self._registry, settings, engine, worker, store.held_by)
        self._processes = processes
        self.slots_control = ProcessSlotsControl(worker, processes, engine)
        operations = Operations(
            engine,
            self._registry,
            self.slots_control,
            default_max_attempts=settings.max_attempts,
            totals=lambda: {
                **metrics.totals(),
                "recovery_seconds": store.recovery_seconds,
            },
        )
        self._operations = operations
        await store_schedules(engine, self._registry.schedules.values(), store.clock.now_us())
        lag = LoopLag()
        lag.start()
        self._open.callback(lag.stop)
        metrics.processes = lambda: {"1": worker.metrics(lag.seconds), **processes.figures}
        probes = {**health_routes(engine, self._not_ready_reason), **metrics_routes(metrics)}
        config = config_routes(await self._make_reloader(operations, worker))
        await self._listen(engine, {**probes, **config, **operation_routes(operations)})
        await self._serve_metrics(probes)
        self._say(f"workers: {self._slots_shown(worker)}")
        await worker.look_for_queues()
        worker.start()
        processes.start()
        supervisor = Supervisor(self._loops(engine, store, worker), store.clock, self._fail)
        supervisor.start()
        self._open.push_async_callback(supervisor.stop)
        if settings.stall_seconds is not None:
            watchdog = Watchdog(settings.stall_seconds, excused=store.waits_for_disk)
            watchdog.start()
            self._open.callback(watchdog.stop)
        log.emit(
            "daemon.started",
            version=__version__,
            pid=os.getpid(),
            store=without_secrets(settings.store),
            worker=worker.name,
            slots=sum(worker.slots.values()),
            metrics=self._metrics_at,
        )

    async def run(self) -> int:
        """Run until a stop is requested; return the exit code."""
        try:
            return await self._run()
        except asyncio.CancelledError:
            # A task raised SystemExit or KeyboardInterrupt on the event loop, outside of its own
            # attempt. That ends the loop, and is not a clean stop.
            sys.stderr.write(
                "holdfast: a task ended the event loop; exiting without a clean shutdown\n"
            )
            sys.stderr.flush()
            os._exit(EXIT_FAILED)

    async def _run(self) -> int:
        loop = asyncio.get_running_loop()
        if self.settings.run_seconds is not None:
            loop.call_later(self.settings.run_seconds, self.ask_to_stop)
        with _signals(loop, {signal.SIGTERM: self._on_stop, signal.SIGINT: self._on_stop}):
            if hasattr(signal, "SIGHUP") and self._reload is not None:
                loop.add_signal_handler(signal.SIGHUP, self._on_reload)
            await self.start()
            await self._stop_asked.wait()
            await self.stop()
        if self._failure is not None:
            self._say(f"holdfast stopped: {self._failure}")
        else:
            self._say("holdfast stopped")
        code = 0 if self._failure is None else EXIT_FAILED
        log.emit("daemon.stopped", code=code)
        sum_up(everything=True)
        exit_in_time(loop, code)
        return code

    def ask_to_stop(self) -> None:
        """Begin to stop."""
        self._stop_asked.set()

    async def stop(self) -> None:
        """Stop claiming, wait for running jobs, release the rest, close everything."""
        self._stopping = True
        worker, slots_control, processes = self._worker, self.slots_control, self._processes
        if worker is not None and slots_control is not None and processes is not None:
            busy = len(slots_control.running())
            patience = format_seconds(self.settings.drain_seconds)
            self._say(f"stopping: {busy} running, waiting up to {patience}")
            log.emit("daemon.draining", running=busy, seconds=self.settings.drain_seconds)
            await asyncio.gather(worker.stop(self.settings.drain_seconds), processes.stop())
        await self._run_hooks(self._registry.on_stop, quiet=True)
        log.emit("daemon.closing")
        try:
            await self._open.aclose()
        except DurabilityLost as error:
            self._failure = error

    async def _open_store(self) -> Store:
        return await open_store(self.settings)

    def _make_worker(self, engine: Engine) -> Worker:
        settings = self.settings
        return Worker(engine, self._registry, worker_name(settings), worker_options(settings))

    def _loops(self, engine: Engine, store: Store, worker: Worker) -> list[Loop]:
        settings = self.settings
        self._lease_loop = LeaseLoop(engine, worker, settings.reclaim_interval_seconds, store.clock)
        schedules = list(self._registry.schedules.values())
        return [
            self._lease_loop,
            *store.loops(settings),
            ScheduleLoop(
                schedules,
                lambda jobs, on_duplicate: engine.enqueue(jobs, on_duplicate=on_duplicate),
                remember_seconds=settings.remember_seconds,
                states=engine.schedules,
            ),
            SuppressedSummaryLoop(),
        ]

    async def _listen(self, engine: Engine, routes: Mapping[str, Route]) -> None:
        if not hasattr(socket, "AF_UNIX"):
            self._say(
                "no socket: this system has no Unix sockets, so this daemon takes no commands"
            )
            return
        path = control_path(self.settings)
        if self.settings.on_server and not self._open.enter_context(control_lock(path)):
            self._say("no socket: another daemon of this store on this machine takes commands")
            return
        bound = _bind_as_owner(path)
        await self._open.enter_async_context(serving(RpcApp(engine, routes), sockets=[bound]))

    async def _serve_metrics(self, routes: Mapping[str, Route]) -> None:
        if self.settings.metrics_port is None:
            return
        try:
            bound = bind_loopback(self.settings.metrics_host, self.settings.metrics_port)
        except InvalidInput as error:
            problem = InvalidInput("metrics_port", error.problem)
            raise with_origin(problem, self._origins) from error
        host, port = bound.getsockname()[:2]
        await self._open.enter_async_context(serving(RpcApp(None, routes), sockets=[bound]))
        self._metrics_at = f"http://{host}:{port}/metrics"
        self._say(f"metrics: {self._metrics_at}")

    def _not_ready_reason(self) -> str | None:
        if self._stopping:
            return "stopping"
        return None if self._failure is None else str(self._failure)

    def _fail(self, error: DurabilityLost) -> None:
        log.emit("daemon.store_failed", error=error)
        self._failure = error
        self._stop_asked.set()

    def _on_stop(self) -> None:
        if self._stop_asked.is_set():
            # The second signal exits at once. Running jobs are lost with this process, and rerun.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(128 + signal.SIGTERM)
        self.ask_to_stop()

    def _on_reload(self) -> None:
        if self._reloading is not None:
            self._reloading.reload_soon()

    def _check(self) -> None:
        """Raise for errors that show before anything is opened."""
        for problem in unusable_paths(LoadedSettings(self.settings, self._origins)):
            raise problem
        try:
            add_builtin(self._registry, self.settings.default_task)
        except UnknownTask as error:
            problem = InvalidInput("default_task", str(error))
            raise with_origin(problem, self._origins) from None

    async def _make_reloader(self, operations: Operations, worker: Worker) -> SettingsReloader:
        """Switch the flags that the settings name; return the reloader."""
        loaded = LoadedSettings(self.settings, self._origins)
        self._reloading = SettingsReloader(
            loaded,
            self._reload,
            operations,
            can_apply=lambda wanted: worker.can_change(worker_options(wanted)),
            apply=self._apply,
        )
        await self._reloading.switch_flags(await operations.engine.flags(), loaded)
        return self._reloading

    def _apply(self, settings: Settings) -> None:
        """Apply the settings that can change while running."""
        if self._worker is not None:
            apply_settings(self._worker, self._lease_loop, settings)
        if self._store is not None:
            self._store.change(settings)
        if self._operations is not None:
            self._operations.default_max_attempts = settings.max_attempts
        if self._processes is not None:
            self._processes.apply(settings)
        self._configure(settings)
        self.settings = settings

    def _slots_shown(self, worker: Worker) -> str:
        if list(worker.slots) == [""]:
            served = self.settings.queues or "all"
            text = f"{self.settings.worker_count}, queues: {served}"
        else:
            text = ", ".join(f"{queue}:{size}" for queue, size in worker.slots.items())
        more = self.settings.processes
        return text if more == 1 else f"{text}, in each of {more} processes"

    async def _run_hooks(self, hooks: Iterable[Hook], *, quiet: bool = False) -> None:
        for hook in hooks:
            try:
                pending = hook()
                if inspect.isawaitable(pending):
                    await pending
            except Exception as error:
                if not quiet:
                    raise
                log.emit("daemon.hook_failed", foreign=error)


def _bind_as_owner(path: str) -> socket.socket:
    """Replace the socket: the owner of a store can only find left-overs there.

    For example of a process that a task of the last owner forked: it keeps the socket open.
    """
    if Path(path).is_socket():
        Path(path).unlink()
    close_in_forks(path)
    return bind_socket(path)


@contextlib.contextmanager
def _signals(
    loop: asyncio.AbstractEventLoop, handlers: Mapping[signal.Signals, Callable[[], None]]
) -> Iterator[None]:
    """Handle these signals on the loop while the context is open."""
    old = {}
    for number, handler in handlers.items():
        try:
            loop.add_signal_handler(number, handler)
        except NotImplementedError:  # Windows: on the main thread, between two bytecodes
            call = handler
            old[number] = signal.signal(
                number, lambda *_, call=call: loop.call_soon_threadsafe(call)
            )
    try:
        yield
    finally:
        for number in handlers:
            with contextlib.suppress(NotImplementedError):
                loop.remove_signal_handler(number)
        for number, previous in old.items():
            signal.signal(number, previous)
