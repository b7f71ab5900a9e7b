"""The owner of the store: the production daemon on a simulated disk and simulated sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor

from msgspec.structs import replace

from holdfast.daemon.daemon import Daemon
from holdfast.daemon.daemon_store import JournalStore, Store
from holdfast.daemon.rpc.app import Route, RpcApp
from holdfast.daemon.worker_settings import worker_options
from holdfast.engines.contract import Engine, Reclaim
from holdfast.engines.embedded.commands import Commands
from holdfast.engines.embedded.core import EmbeddedCore
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.engines.journal.snapshots.compaction import (
    CompactionRequest,
    CompactionResult,
    compact,
)
from holdfast.engines.journal.wal.flush import AdaptiveRunner, Done, FlushRunner, Work
from holdfast.engines.journal.wal.recovery import RecoveredState
from holdfast.engines.protocol.messages import MAX_BODY_BYTES
from holdfast.http.connection import HttpConnection
from holdfast.http.limits import local_limits
from holdfast.http.server import GRACE_SECONDS
from holdfast.model.access import Caller
from holdfast.model.audit import Attribution
from holdfast.model.effects import Effect
from holdfast.model.errors import HoldfastError, LeaseLost, StorageError, StorageFull
from holdfast.model.job import Job, JobRef
from holdfast.model.outcome import Outcome
from holdfast.worker.worker import Worker

from .application import registry
from .process import Process, SimulatedThreads, current_process
from .projected import KeptReadModels
from .recording_engine import RecordingEngine

PATH = "simulated/holdfast.sock"
_POLL_SECONDS = 0.1
_LIMITS = local_limits(MAX_BODY_BYTES, max_connections=1_000)
_SLOW_CHANCE = 0.03


class CheckedCore(EmbeddedCore):
    """The core of the journal; every commit is checked."""

    def commit(self, effects: Sequence[Effect], *, essential: bool = True) -> list[Job | None]:
        """See ``EmbeddedCore``."""
        jobs = super().commit(effects, essential=essential)
        process = current_process()
        process.world.invariants.committed(effects, jobs, process.name)
        return jobs


class CheckedCommands(Commands):
    """The commands of the journal; every settle and reclaim is checked."""

    def settle(
        self, outcomes: Sequence[Outcome], caller: Caller, now_us: int
    ) -> list[LeaseLost | None]:
        """See ``Commands``."""
        invariants = current_process().world.invariants
        acceptable = invariants.acceptable(outcomes)
        answers = super().settle(outcomes, caller, now_us)
        invariants.settled(outcomes, acceptable, answers)
        return answers

    def reclaim(
        self,
        limit: int,
        forced: Sequence[JobRef],
        attribution: Attribution | None,
        caller: Caller,
        now_us: int,
    ) -> Reclaim:
        """See ``Commands``."""
        found = super().reclaim(limit, forced, attribution, caller, now_us)
        if not forced:  # an operator may end a live lease
            process = current_process()
            process.world.check_reclaimed(found.lost, process)
        return found


class SimulatedJournal(JournalEngine):
    """The journal with invariant checks; its threads and processes are simulated."""

    core_type = CheckedCore
    commands_type = CheckedCommands
    read_models_type: type[KeptReadModels] = KeptReadModels

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.process = current_process()
        files = self.process.world.read_models
        self.read_models = self.read_models_type(files, self, self._threads)

    def _runner(self, options: JournalOptions) -> FlushRunner:  # noqa: ARG002 - the real one's
        return AdaptiveRunner(
            ProcessRunner(current_process()), _random_flush_timer(current_process())
        )

    def _threads(self, count: int, name: str) -> Executor:  # noqa: ARG002 - the real one's
        return SimulatedThreads(current_process())

    async def _compact_in_process(self, request: CompactionRequest) -> CompactionResult:
        compacted = await asyncio.to_thread(compact, self._disk, request)
        self.process.world.trace.note("owner.snapshot", self.process.name, str(compacted.last_seq))
        return compacted

    def _note_files(self, found: RecoveredState) -> None:
        super()._note_files(found)
        world = self.process.world
        world.invariants.recovered(found.end.last_seq, world.ledger.acknowledged_seq)


class ProcessRunner:
    """Runs flushes in a thread of a simulated process."""

    here = False

    def __init__(self, process: Process) -> None:
        self._process = process

    def submit(self, work: Work, done: Done, *, small: bool) -> None:  # noqa: ARG002 - the real one's
        """See ``FlushRunner``."""
        doing = self._process.run_in_executor(None, work)
        doing.add_done_callback(lambda done_work: done(done_work.exception()))

    def close(self) -> None:
        """Nothing to stop."""


def _random_flush_timer(process: Process) -> Callable[[], float]:
    """Return a timer that makes some flushes look slow, so that both ways of flushing are used."""
    rng = process.world.random(f"{process.name}/whim")
    passed = 0.0

    def seconds() -> float:
        nonlocal passed
        passed += rng.random() < _SLOW_CHANCE
        return passed

    return seconds


class SimulatedDaemon(Daemon):
    """The production daemon with a simulated store and a simulated listener."""

    def __init__(self, process: Process) -> None:
        scenario = process.world.scenario
        super().__init__(registry(owner=True), scenario.settings)
        self.process = process
        self.journal: JournalEngine | None = None

    async def main(self) -> None:
        """Run until asked to stop or until the store fails; then exit."""
        process, world = self.process, self.process.world
        try:
            await self.start()
        except StorageError as error:
            full = isinstance(error, StorageFull)
            world.trace.note("owner.no_start", process.name, type(error).__name__)
            if not full and not world.open_failure_expected(error):
                world.trace.broken(f"the store does not open: {error}")
            process.exit()
            return
        await self._stop_asked.wait()
        try:
            await self.stop()
        except HoldfastError as error:
            world.trace.note("owner.bad_stop", process.name, type(error).__name__)
        world.trace.note("owner.stopped", process.name, type(self._failure).__name__)
        process.exit()

    @property
    def worker(self) -> Worker | None:
        """The daemon's own worker, or None before it has started."""
        return self._worker

    async def _open_store(self) -> Store:
        process, scenario = self.process, self.process.world.scenario
        if process.disk is None:
            raise StorageError("there is no disk")
        journal = await process.world.journal.open(
            process.disk,
            clock=process.clock,
            options=scenario.options,
            random_bytes=process.world.random("salts").randbytes,
        )
        return JournalStore(journal)

    async def _start(self, store: Store) -> None:
        assert isinstance(store, JournalStore)
        self.journal = store.engine
        await self.process.world.check_recovered(store.engine, self.process)
        await super()._start(store)

    def _watch_loop(self, store: Store) -> None:
        """Do nothing: real threads and real time have no place here."""

    def _make_worker(self, engine: Engine, name: str) -> Worker:
        options = replace(worker_options(self.settings), inline=True)
        recording = RecordingEngine(engine, self.process)
        return Worker(recording, self._registry, name, options)

    async def _listen(self, engine: Engine, routes: Mapping[str, Route]) -> None:
        server = SimulatedServer(self.process, RpcApp(engine, routes))
        self.process.world.network.listen(self.process, PATH, server.connection)
        self._open.push_async_callback(server.close)


class SimulatedServer:
    """Serves simulated connections as ``http.server`` serves real ones."""

    def __init__(self, process: Process, app: RpcApp) -> None:
        self.connections: set[HttpConnection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.budget = None
        self._process = process
        self._app = app
        self._made: list[HttpConnection] = []

    def connection(self) -> HttpConnection:
        """Return the protocol of a new connection."""
        protocol = HttpConnection(self._app, self, _LIMITS)
        self._made.append(protocol)
        return protocol

    def opened(self, connection: HttpConnection) -> None:
        """Keep a connection."""
        self.connections.add(connection)

    def closed(self, connection: HttpConnection) -> None:
        """Forget a connection."""
        self.connections.discard(connection)

    async def close(self) -> None:
        """Stop listening, finish open requests, close the connections."""
        self._process.world.network.close(PATH)
        self._app.stop()
        for protocol in self._open():
            protocol.shutdown()
        give_up = self._process.time() + GRACE_SECONDS
        while (self.connections or self.tasks) and self._process.time() < give_up:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_SECONDS)
        for protocol in self._open():
            protocol.transport.abort()

    def _open(self) -> list[HttpConnection]:
        return [protocol for protocol in self._made if protocol in self.connections]
