"""The simulated world: one clock, one event loop, one seed, and the processes in it."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Sequence

from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.inspection import all_jobs, read_directory, verify
from holdfast.engines.read_models.sqlite_file import SqliteFile
from holdfast.model.audit import head_of
from holdfast.model.event import Event
from holdfast.model.job import MICROSECONDS, Job, State
from holdfast.testing.clock import VirtualClock
from holdfast.testing.disk import SimDisk
from holdfast.testing.loop import VirtualLoop

from .client import Client
from .invariants import InvariantChecker
from .ledger import Ledger
from .network import NORMAL_DELAY_SECONDS, Network
from .observed_runs import JobKey, ObservedRuns
from .owner import SimulatedDaemon, SimulatedJournal
from .process import Process
from .remote import RemoteWorker
from .scenario import Scenario
from .trace import Trace

_JUMP_EFFECT_SECONDS = 15.0
"""How long a clock jump may have effects: longer than any lease."""


class World:
    """Everything that belongs to one run."""

    def __init__(
        self,
        scenario: Scenario,
        journal: type[JournalEngine] = SimulatedJournal,
        write_line: Callable[[str], None] | None = None,
    ) -> None:
        self.scenario = scenario
        self.journal = journal
        self.clock = VirtualClock()
        self.loop = VirtualLoop(self.clock)
        self.trace = Trace(self.clock, write_line=write_line)
        self.runs = ObservedRuns(self.trace)
        self.invariants = InvariantChecker(self.trace, scenario.settings.remember_seconds)
        self.ledger = Ledger(self.trace, self.invariants)
        self.network = Network(self)
        self.disk = SimDisk()
        self.read_models: dict[str, SqliteFile] = {}
        """The files of the read models, by name."""
        self.clock_jump_us = 0
        """The sum of all jumps of the machine's wall clock."""
        self.slowest_disk_seconds = NORMAL_DELAY_SECONDS
        self.faults_active = True
        """Whether this is the fault phase, in which clients make calls too."""
        self.ending = False
        """Whether processes are no longer restarted."""
        self.processes: list[Process] = []
        self.owner: Process | None = None
        self.daemon: SimulatedDaemon | None = None
        self.remotes: dict[str, tuple[Process, RemoteWorker]] = {}
        self.clients: dict[str, Process] = {}
        self._owner_starts = 0
        self._jumped_at = self._owned_at = self._resumed_at = -_JUMP_EFFECT_SECONDS
        self._expected_open_failures = 0
        self._disk_rng = self.random("disk")

    # --- random numbers ----------------------------------------------------------------------

    def random(self, name: str) -> random.Random:
        """Return a random generator for this name, independent of all others."""
        start = self._owner_starts if name == "salts" else 0
        return random.Random(f"{self.scenario.seed}/{name}/{start}")

    def _skew_us(self, name: str) -> int:
        """Draw how far the wall clock of a process is off."""
        seconds = self.random(f"{name}/skew").choice([0.0, 0.0, -3.0, 2.5, 3_600.0])
        return int(seconds * MICROSECONDS)

    def disk_seconds(self) -> tuple[float, float]:
        """Draw the delays before a thread runs its work and before its result arrives."""
        slowest = self.slowest_disk_seconds
        return self._disk_rng.uniform(0, slowest), self._disk_rng.uniform(0, slowest)

    # --- processes ---------------------------------------------------------------------------

    def start(self) -> None:
        """Start all processes."""
        self.start_owner()
        for number in range(self.scenario.remote_workers):
            self.start_remote(f"remote-{number}")
        for number in range(self.scenario.clients):
            self.start_client(f"client-{number}")

    def start_owner(self) -> None:
        """Start a daemon on the store as the last one left it."""
        self._owner_starts += 1
        process = self.process(f"owner-{self._owner_starts}")
        process.disk = self.disk
        process.on_end = lambda: self._owner_ended(process)
        self.owner = process
        self.trace.note("owner.start", process.name)
        process.run(lambda: self._daemon(process))

    def _daemon(self, process: Process) -> Coroutine[object, object, None]:
        self.daemon = SimulatedDaemon(process)
        return self.daemon.main()

    def start_remote(self, name: str) -> None:
        """Start a remote worker."""
        process = self.process(f"{name}.{self._owner_starts}.{len(self.processes)}")
        process.skew_us = self._skew_us(process.name)
        self.trace.note("worker.start", process.name)

        def begin() -> Coroutine[object, object, None]:
            remote = RemoteWorker(process)
            self.remotes[name] = process, remote
            return remote.main()

        process.on_end = lambda: self._restart_later(lambda: self.start_remote(name))
        process.run(begin)

    def start_client(self, name: str) -> None:
        """Start a client, during the fault phase only."""
        if not self.faults_active:
            return
        process = self.process(f"{name}.{len(self.processes)}")
        process.skew_us = self._skew_us(process.name)
        self.clients[name] = process
        process.on_end = lambda: self._restart_later(lambda: self.start_client(name))
        number = 1_000 * len(self.processes)
        process.run(lambda: Client(process, name, number).main())

    def process(self, name: str) -> Process:
        """Create a process."""
        process = Process(self, name)  # type: ignore[abstract] # it implements what is used here
        self.processes.append(process)
        return process

    def _owner_ended(self, process: Process) -> None:
        """Replace the disk by what the owner's end left of it, and start the next owner later."""
        rng = self.random(f"{process.name}/end")
        power_cut = self.faults_active and process.disk is not None and rng.random() < 0.5
        if power_cut:
            self.trace.note("fault.power_cut", process.name)
        full = self.disk.capacity_bytes
        self.disk = self.disk.crash(rng.randrange(1 << 32) if power_cut else None)
        self.disk.capacity_bytes = full
        self.daemon = None
        if not self.ending:
            self.loop.call_later(rng.choice([0.05, 0.5, 2.0, 6.0]), self.start_owner)

    def _restart_later(self, start: Callable[[], None]) -> None:
        """Restart a process after a delay, unless the run is ending."""
        seconds = self.random(f"again/{len(self.processes)}").uniform(0.1, 3.0)
        self.loop.call_later(seconds, lambda: None if self.ending else start())

    # --- time --------------------------------------------------------------------------------

    def jump_clock(self, seconds: float) -> None:
        """Set the machine's wall clock forward or back."""
        self.clock_jump_us += int(seconds * MICROSECONDS)
        self._jumped_at = self.loop.time()
        self.trace.note("fault.clock_jump", "machine", f"{seconds:g} s")

    def resume(self, process: Process) -> None:
        """Resume a paused process."""
        self._resumed_at = self.loop.time()
        self.trace.note("faults.resume", process.name)
        process.resume()

    # --- checks ------------------------------------------------------------------------------

    def expect_open_failure(self) -> None:
        """Allow the next start of the owner to fail, because of a planned disk fault."""
        self._expected_open_failures += 1

    def open_failure_expected(self, error: Exception) -> bool:
        """Whether a planned fault may have caused this failure to open the store; uses it up."""
        planned = isinstance(error.__cause__, OSError) and self._expected_open_failures > 0
        self._expected_open_failures -= planned
        return planned

    async def check_recovered(self, journal: JournalEngine, process: Process) -> None:
        """Compare the recovered state with what was committed and acknowledged."""
        self._owned_at = self.loop.time()
        self.trace.note("owner.opened", process.name, f"at {journal.recovery.last_seq}")
        problems = await journal.validate()
        if problems:
            self.trace.broken(f"after recovery validate found {problems}")
        self._compare({(job.tenant, job.id): job for job in journal.kept()})
        if dict(await journal.policies()) != self.invariants.policies:
            self.trace.broken("the recovered policies differ")
        if dict(await journal.subscriptions()) != self.invariants.subscriptions:
            self.trace.broken("the recovered subscriptions differ")
        if dict(await journal.projections()) != self.invariants.projections:
            self.trace.broken("the recovered projections differ")
        await self._compare_events(journal)
        self.ledger.check()

    async def _compare_events(self, journal: JournalEngine) -> None:
        """Compare stored events with committed events."""
        events = list(self.invariants.events.values())
        found: list[Event | None] = []
        for event in events:
            found += await journal.get_events([event.id], tenant=event.tenant)
        for event, stored in zip(events, found, strict=True):
            if stored != event:
                self.trace.broken(f"event {event.id} was recovered as {stored}, not as {event}")

    def check_reclaimed(self, lost: Sequence[Job], owner: Process) -> None:
        """Check that no lease was taken from a worker that is alive and still holds it."""
        for job in lost:
            run = self.runs.under_way.get(job.token)
            if run is None or not run.active or job.failure is None:
                continue
            if job.failure.error_reason == "stuck":
                continue
            if run.process is owner:
                self.trace.broken(f"{job.id} was taken from the owner's own worker, which runs it")
            elif run.attempt.lease_ends > self.loop.time() and not self._lease_loss_excused():
                self.trace.broken(f"{job.id} was taken from {run.process.name} too early")

    def _lease_loss_excused(self) -> bool:
        """Whether the clock jumped recently and a fault has kept a worker from renewing since.

        After a jump the owner gives every worker the time of a lease to renew. This does not help
        workers that are paused or cut off, or when the owner was down at the jump.
        """
        if self.loop.time() - self._jumped_at > _JUMP_EFFECT_SECONDS:
            return False
        return (
            self._owned_at >= self._jumped_at
            or self._resumed_at >= self._jumped_at
            or any(process.paused for process in self.processes if process.alive)
            or bool(self.network.cut_share)
            or self.network.slowest_seconds > NORMAL_DELAY_SECONDS
            or self.slowest_disk_seconds > NORMAL_DELAY_SECONDS
        )

    def verify_disk(self) -> None:
        """Verify every file of the closed store, and compare it with what was committed."""
        report = verify(self.disk)
        if report.problems:
            self.trace.broken(f"verify found {report.problems}")
            return
        with read_directory(self.disk) as (state, history):
            found = {(job.tenant, job.id): job for job in all_jobs(state, history)}
            operations = list(state.operations)
            records = [] if history is None else history.audit(0, 1 << 30)
        self._compare(found)
        for operation in operations:
            self.invariants.check_operation(operation)
        if report.events != len(self.invariants.events):
            committed = len(self.invariants.events)
            self.trace.broken(f"{report.events} events are stored, and {committed} were committed")
        if [head_of(record) for record in records] != self.invariants.audit_heads[1:]:
            self.trace.broken(f"the audit differs from what was committed: {len(records)} records")

    def _compare(self, found: dict[JobKey, Job]) -> None:
        """Compare stored jobs with committed jobs."""
        for name, job in self.invariants.jobs.items():
            forgettable = job.state in (State.COMPLETED, State.CANCELLED)
            if found.get(name) != job and not (forgettable and name not in found):
                self.trace.broken(f"{name[1]} was recovered as {found.get(name)}, not as {job}")
        for name in found:
            if name not in self.invariants.jobs:
                self.trace.broken(f"{name[1]} was recovered but never committed")
