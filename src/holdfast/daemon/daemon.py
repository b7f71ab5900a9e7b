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
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast import __version__
from holdfast.engines.contract import Engine
from holdfast.engines.entropy import random_bytes
from holdfast.engines.journal.wal.disk import LocalDisk
from holdfast.engines.protocol.messages import MAX_BODY_BYTES
from holdfast.engines.structured_log import StructuredLog
from holdfast.http.allowed_hosts import AllowedHosts
from holdfast.http.credential_files import TlsFiles, TokenFile
from holdfast.http.limits import PROBE_LIMITS, local_limits
from holdfast.http.listeners import bind_port, bind_socket
from holdfast.http.server import serving
from holdfast.model.durations import format_seconds
from holdfast.model.errors import (
    AccessDenied,
    DurabilityLost,
    HoldfastError,
    InvalidInput,
    UnknownTask,
    WorkerIdInUse,
)
from holdfast.model.fleet import WorkerProcess
from holdfast.model.redaction import without_secrets
from holdfast.operations.operations import Operations
from holdfast.projections.declaration import Projection
from holdfast.projections.loop import ProjectionLoop
from holdfast.projections.registry import add_projections
from holdfast.settings import LoadedSettings, Settings, unusable_paths, with_origin
from holdfast.telemetry.counters import Metrics
from holdfast.telemetry.instrumented import InstrumentedEngine
from holdfast.telemetry.log_output import SuppressedSummaryLoop, sum_up
from holdfast.telemetry.loop_lag import LoopLag
from holdfast.worker.auto_replay import AutoReplayLoop
from holdfast.worker.builtin_tasks import add_builtin
from holdfast.worker.loops import CancellationLoop, LeaseLoop, Loop, SampleLoop, Supervisor
from holdfast.worker.operation_loop import OperationLoop
from holdfast.worker.outage_loop import OutageLoop
from holdfast.worker.registry import Hook, Registry, check_times
from holdfast.worker.schedules import ScheduleLoop, store_schedules
from holdfast.worker.worker import Worker

from .announcer import Announcer, child_pids, this_process
from .command_executor import CommandExecutor
from .control_socket import control_lock, control_path
from .daemon_store import Store, open_store
from .forks import close_in_forks
from .processes import ProcessSlotsControl, WorkerProcesses
from .reload import SettingsReloader
from .rpc.app import Route, RpcApp
from .rpc.probes import METRICS_PATH, ProbeApp
from .rpc.routes import config_routes, health_routes, metrics_routes, operation_routes
from .take_over import enter_registry
from .watchdog import Watchdog, exit_in_time
from .worker_settings import apply_settings, default_worker_id, worker_names, worker_options

if TYPE_CHECKING:
    from .api_process import ApiProcess

log = StructuredLog("holdfast.daemon")

EXIT_FAILED = 1
_MOST_CONNECTIONS = 4_096
"""Of clients on the socket."""


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
        self._projections: dict[str, Projection] = {}
        self._listed = True
        """Whether it is in the registry of the store."""
        self._metrics_socket: socket.socket | None = None
        self._metrics_at: str | None = None
        self._open = contextlib.AsyncExitStack()
        self._lease_loop: LeaseLoop | None = None
        self._store: Store | None = None
        self._operations: Operations | None = None
        self._worker: Worker | None = None
        self._api: ApiProcess | None = None
        self._processes: WorkerProcesses | None = None
        self.slots_control: ProcessSlotsControl | None = None
        """The slots of all processes, once it has started."""

    async def start(self) -> None:
        """Own the store, recover, listen, and begin to work. If it fails, it leaves nothing."""
        self._check()
        try:
            if not self._owner_may_leave():
                self._bind_metrics()
            store = self._store = await self._open_store()
            self._open.push_async_callback(store.engine.close)
            await self._start(store)
        except BaseException:
            await self._open.aclose()
            raise

    async def _start(self, store: Store) -> None:
        settings, metrics = self.settings, self.metrics
        metrics.add_queues(self._registry.queues)
        metrics.store = store.figures
        engine = self._instrumented(store)
        engine.count_lost(store.lost_at_open)
        self._adopt(engine)
        self._open.callback(self._adopt, None)
        await self._run_hooks(self._registry.on_start)
        self._add_projections(engine, store)
        entry = await self._enter_registry(engine, store)
        worker = self._worker = self._make_worker(engine, next(iter(entry.processes)))
        processes = WorkerProcesses(self._registry, settings, engine, worker, store.held_by)
        self._processes = processes
        self.slots_control = ProcessSlotsControl(worker, processes, engine)
        current = lambda: self._current_process(entry, store)
        operations = Operations(
            engine, self._registry, default_max_attempts=settings.max_attempts, this_process=current
        )
        self._operations = operations
        if store.maintained:
            schedules = self._registry.schedules.values()
            await store_schedules(engine, schedules, store.clock.now_us())
        lag = LoopLag()
        lag.start()
        self._open.callback(lag.stop)
        metrics.processes = lambda: {"1": worker.metrics(lag.seconds), **processes.figures}
        probes = {**health_routes(engine, self._not_ready_reason), **metrics_routes(metrics)}
        reloader = await self._make_reloader(operations, worker, store)
        # Before it listens, and before its processes start: they must know of a drain.
        execute = CommandExecutor(self.slots_control, reloader).execute
        announcer = Announcer(engine, current, execute, self._on_name_taken)
        engine.on_command = announcer.announce_soon
        processes.on_started = announcer.announce_soon  # its pid proves that its leases are held
        await self._announce(announcer)
        routes = {**probes, **config_routes(reloader), **operation_routes(operations)}
        await self._listen(engine, routes)
        await self._serve_metrics(probes)
        await self._bind_api(engine)
        self._tell_start(store, worker)
        await worker.look_for_queues()
        worker.start()
        processes.start()
        supervisor = Supervisor(self._loops(engine, store, worker), store.clock, self._fail)
        supervisor.start()
        self._open.push_async_callback(supervisor.stop)
        self._watch_loop(store)
        if self._api is not None:
            self._api.start()
        log.emit(
            "daemon.started",
            version=__version__,
            pid=os.getpid(),
            store=without_secrets(settings.store),
            worker=worker.name,
            slots=sum(worker.slots.values()),
            metrics=self._metrics_at,
        )

    async def _announce(self, announcer: Announcer) -> None:
        if self._listed:
            await announcer.beat()  # who sees that it is up sees all of it
            announcer.start()
            self._open.push_async_callback(announcer.stop)

    def _tell_start(self, store: Store, worker: Worker) -> None:
        settings = self.settings
        self._say(f"holdfast started: store {settings.store_shown} {store.summary(settings)}")
        if self._metrics_at is not None:
            self._say(f"metrics: {self._metrics_at}")
        if self._api is not None:
            self._say(f"API: {self._api.address}")
        self._say(f"workers: {self._slots_shown(worker)}")

    def _instrumented(self, store: Store) -> InstrumentedEngine:
        """Return the engine that counts and logs."""
        return InstrumentedEngine(
            store.engine,
            self.metrics,
            store.held_now(),
            store.clock.now_us(),
            outage_max_seconds=self.settings.outage_max_seconds,
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
        with _signals(loop, {signal.SIGTERM: self._on_stop, signal.SIGINT: self._on_stop}):
            if hasattr(signal, "SIGHUP") and self._reload is not None:
                loop.add_signal_handler(signal.SIGHUP, self._on_reload)
            await self.start()
            if self.settings.run_seconds is not None:
                loop.call_later(self.settings.run_seconds, self.ask_to_stop)
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
        if self._api is not None:
            await self._api.stop()  # before the store that it asks
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
        return await open_store(self.settings, self._registry.settings.key)

    async def _enter_registry(self, engine: Engine, store: Store) -> WorkerProcess:
        """Enter the registry of the store; return the entry of this daemon."""
        settings = self.settings
        named = settings.worker_id is not None
        worker_id = settings.worker_id or default_worker_id()
        while True:
            names = worker_names(settings, worker_id)
            entry = this_process(worker_id, names, store.clock.now_us())
            try:
                await enter_registry(engine, entry, store.held_by, self._say, patient=named)
            except WorkerIdInUse:
                if named:
                    raise
                # Containers may share a host name, and each has a process 1.
                worker_id = f"{default_worker_id()}-{random_bytes(3).hex()}"
            except AccessDenied:
                if store.maintained:
                    raise
                self._say("not in the list of workers: the key does not reach the whole store")
                self._listed = False
                return entry
            else:
                self._open.push_async_callback(_depart, engine, entry.id)
                return entry

    def _current_process(self, entry: WorkerProcess, store: Store) -> WorkerProcess:
        """Return the entry of this daemon as it is now."""
        slots_control = self.slots_control
        if slots_control is None:
            return entry
        return replace(
            entry,
            slots=dict(slots_control.slots),
            processes=dict(slots_control.processes),
            pids={**entry.pids, **child_pids(slots_control.pids)},
            queues=slots_control.queues,
            tasks=tuple(sorted(self._registry.tasks)),
            task_queues=tuple(sorted(self._registry.queues)),
            draining=slots_control.draining or self._stopping,
            metrics=self._metrics_at or "",
            running=tuple(slots_control.running()),
            totals={**self.metrics.totals(), "recovery_seconds": store.recovery_seconds},
        )

    def _add_projections(self, engine: Engine, store: Store) -> None:
        """Let this process apply the projections that are declared, or those asked for."""
        if not store.maintained:
            if self._registry.projections or self._registry.schedules:
                self._say("schedules and projections are left to the daemons at the store")
            return
        self._projections, self._read_event = add_projections(self._registry, engine, self.settings)
        self.metrics.lag_slos = {
            name: one.lag_slo_seconds for name, one in self._projections.items()
        }

    def _make_worker(self, engine: Engine, name: str) -> Worker:
        return Worker(engine, self._registry, name, worker_options(self.settings))

    def _loops(self, engine: Engine, store: Store, worker: Worker) -> list[Loop]:
        settings, maintained = self.settings, store.maintained
        self._lease_loop = LeaseLoop(
            engine, worker, settings.reclaim_interval_seconds, store.clock, reclaims=maintained
        )
        working: list[Loop] = [
            self._lease_loop,
            CancellationLoop(worker),
            SuppressedSummaryLoop(),
        ]
        if self._listed:
            health_checks = self._registry.health_checks if maintained else {}
            working.append(OutageLoop(engine, worker.outage_detector, health_checks))
        if not maintained:
            return working
        schedules = list(self._registry.schedules.values())
        return [
            *working,
            *store.loops(settings),
            ScheduleLoop(
                schedules,
                lambda jobs, on_duplicate: engine.enqueue(jobs, on_duplicate=on_duplicate),
                remember_seconds=settings.remember_seconds,
                states=engine.schedules,
            ),
            OperationLoop(engine),
            ProjectionLoop(engine, self._projections, self._read_event),
            AutoReplayLoop(engine),
            SampleLoop(engine),
        ]

    def _watch_loop(self, store: Store) -> None:
        watchdog = Watchdog(self.settings.stall_seconds, excused=store.waits_for_disk)
        watchdog.start()
        self._open.callback(watchdog.stop)

    async def _listen(self, engine: Engine, routes: Mapping[str, Route]) -> None:
        if not hasattr(socket, "AF_UNIX"):
            self._say(
                "no socket: this system has no Unix sockets, so this daemon takes no commands"
            )
            return
        path = control_path(self.settings)
        shared = self.settings.directory is None
        if shared and not self._open.enter_context(control_lock(path)):
            self._say("no socket: another daemon of this store on this machine has it")
            return
        bound = _bind_as_owner(path)
        limits = local_limits(MAX_BODY_BYTES, _max_connections())
        await self._open.enter_async_context(
            serving(RpcApp(engine, routes), sockets=[bound], limits=limits)
        )

    def _owner_may_leave(self) -> bool:
        """Whether another process owns the store: it may be stopping, and about to free the port.

        There is a store already, so nothing new is left behind if the port is taken all the same.
        """
        directory = self.settings.directory
        return directory is not None and LocalDisk(directory).owner() is not None

    def _bind_metrics(self) -> None:
        """Listen on the port of the metrics; connections wait until they are served."""
        if self.settings.metrics_port is None or self._metrics_socket is not None:
            return
        try:
            bound = bind_port(self.settings.metrics_host, self.settings.metrics_port)
        except InvalidInput as error:
            problem = InvalidInput("metrics_port", error.problem)
            raise with_origin(problem, self._origins) from error
        self._open.callback(bound.close)
        self._metrics_socket = bound

    async def _serve_metrics(self, routes: Mapping[str, Route]) -> None:
        self._bind_metrics()
        if (bound := self._metrics_socket) is None:
            return
        try:
            token_file, tls = _credentials(self.settings)
        except InvalidInput as error:
            raise with_origin(error, self._origins) from error
        names = (self.settings.metrics_allowed_hosts or "").split(",")
        hosts = AllowedHosts(names, "metrics_allowed_hosts")
        app = ProbeApp(routes, token_file)
        await self._open.enter_async_context(
            serving(app, sockets=[bound], limits=PROBE_LIMITS, tls=tls, hosts=hosts)
        )
        host, port = bound.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        scheme = "http" if tls is None else "https"
        self._metrics_at = f"{scheme}://{shown}:{port}{METRICS_PATH}"

    async def _bind_api(self, engine: Engine) -> None:
        """Listen on the port of the API, if it has one; connections wait until they are served."""
        if self.settings.api_port is None:
            return
        from .api_process import api_beside  # noqa: PLC0415 - most daemons have none

        try:
            api = self._api = await api_beside(self.settings, engine)
        except InvalidInput as error:
            raise with_origin(error, self._origins) from error
        self._open.push_async_callback(api.stop)

    def _not_ready_reason(self) -> str | None:
        if self._stopping:
            return "stopping"
        return None if self._failure is None else str(self._failure)

    def _fail(self, error: DurabilityLost) -> None:
        log.emit("daemon.store_failed", error=error)
        self._failure = error
        self._stop_asked.set()

    def _on_name_taken(self, error: WorkerIdInUse) -> None:
        log.emit("daemon.worker_id_taken", worker=error.name, error=error)
        if self._processes is not None:
            self._processes.leave_leases()
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
        cap_seconds = self.settings.max_processing_seconds
        origin = f"({self._origins.get('max_processing_seconds', 'given')})"
        for spec in self._registry.tasks.values():
            check_times(spec, cap_seconds, origin)

    async def _make_reloader(
        self, operations: Operations, worker: Worker, store: Store
    ) -> SettingsReloader:
        """Switch the flags that the settings name; return the reloader."""
        loaded = LoadedSettings(self.settings, self._origins)
        self._reloading = SettingsReloader(
            loaded,
            self._reload,
            operations,
            can_apply=lambda wanted: worker.can_change(worker_options(wanted)),
            apply=self._apply,
        )
        if store.maintained:
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


def _credentials(settings: Settings) -> tuple[TokenFile | None, TlsFiles | None]:
    """Return the token and the certificate of the metrics port, or raise ``InvalidInput``."""
    token, cert, key = (
        settings.metrics_token_file,
        settings.metrics_cert_file,
        settings.metrics_key_file,
    )
    return (
        None if token is None else TokenFile(token, "metrics_token_file"),
        None if cert is None else TlsFiles(cert, key or cert, "metrics_cert_file"),
    )


def _max_connections() -> int:
    """Return how many clients may connect: half of the descriptors, the store needs the rest."""
    try:
        import resource  # noqa: PLC0415 - not on every system
    except ImportError:
        return _MOST_CONNECTIONS
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_CONNECTIONS if soft < 0 else min(_MOST_CONNECTIONS, max(16, soft // 2))


async def _depart(engine: Engine, process_id: str) -> None:
    with contextlib.suppress(HoldfastError):  # then its entry runs out
        await engine.depart(process_id)


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
