"""The simulated world: one clock, one event loop, one seed, and the processes that live in it."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Sequence

from holdfast.engines.journal.doctor import verify
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.readonly import look
from holdfast.model.audit import head_of
from holdfast.model.job import MICROSECONDS, Job, State
from holdfast.testing.clock import VirtualClock
from holdfast.testing.disk import SimDisk
from holdfast.testing.loop import VirtualLoop

from .client import Client
from .invariants import InvariantChecker
from .ledger import Ledger
from .network import CALM_DELAY_SECONDS, Network
from .observed_runs import Name, ObservedRuns
from .owner import SimulatedDaemon, SimulatedJournal
from .process import Process
from .remote import RemoteWorker
from .scenario import Scenario
from .trace import Trace

_LEAP_SECONDS = 15.0
"""How long a leap of the clock may matter: longer than any lease."""


class World:
    """Everything that one seed makes."""

    def __init__(
        self,
        scenario: Scenario,
        journal: type[JournalEngine] = SimulatedJournal,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.scenario = scenario
        self.journal = journal
        self.clock = VirtualClock()
        self.loop = VirtualLoop(self.clock)
        self.trace = Trace(self.clock, say=say)
        self.runs = ObservedRuns(self.trace)
        self.watch = InvariantChecker(self.trace, scenario.settings.remember_seconds)
        self.ledger = Ledger(self.trace, self.watch)
        self.network = Network(self)
        self.disk = SimDisk()
        self.leapt_us = 0
        """How far the machine's wall clock was set forward, all in all."""
        self.slowest_disk_seconds = CALM_DELAY_SECONDS
        self.stormy = True
        """Whether faults happen, and clients ask for more."""
        self.ending = False
        """Whether nobody is to be started any more."""
        self.processes: list[Process] = []
        self.owner: Process | None = None
        self.daemon: SimulatedDaemon | None = None
        self.remotes: dict[str, tuple[Process, RemoteWorker]] = {}
        self.clients: dict[str, Process] = {}
        self._lives = 0
        self._leapt_at = self._owned_at = self._resumed_at = -_LEAP_SECONDS
        self._excuses = 0
        self._disk_rng = self.random("disk")

    # --- chance ------------------------------------------------------------------------------

    def random(self, name: str) -> random.Random:
        """Return a source of chance of its own for each name: one's use changes no other's."""
        return random.Random(f"{self.scenario.seed}/{name}/{self._lives_of(name)}")

    def _lives_of(self, name: str) -> int:
        return self._lives if name == "salts" else 0

    def _skew_us(self, name: str) -> int:
        """Draw how far a process's wall clock is off."""
        seconds = self.random(f"{name}/skew").choice([0.0, 0.0, -3.0, 2.5, 3_600.0])
        return int(seconds * MICROSECONDS)

    def disk_seconds(self) -> tuple[float, float]:
        """Draw how long something on another thread waits and works, and is on its way back."""
        slowest = self.slowest_disk_seconds
        return self._disk_rng.uniform(0, slowest), self._disk_rng.uniform(0, slowest)

    # --- processes ---------------------------------------------------------------------------

    def start(self) -> None:
        """Start everybody."""
        self.start_owner()
        for number in range(self.scenario.remote_workers):
            self.start_remote(f"remote-{number}")
        for number in range(self.scenario.clients):
            self.start_client(f"client-{number}")

    def start_owner(self) -> None:
        """Have a daemon own the store, as it was left."""
        self._lives += 1
        process = self.process(f"owner-{self._lives}")
        process.disk = self.disk
        process.on_end = lambda: self._owner_ended(process)
        self.owner = process
        self.trace.note("owner.start", process.name)
        process.run(lambda: self._daemon(process))

    def _daemon(self, process: Process) -> Coroutine[object, object, None]:
        self.daemon = SimulatedDaemon(process)
        return self.daemon.live()

    def start_remote(self, name: str) -> None:
        """Have a worker in a process of its own."""
        process = self.process(f"{name}.{self._lives}.{len(self.processes)}")
        process.skew_us = self._skew_us(process.name)
        self.trace.note("worker.start", process.name)

        def begin() -> Coroutine[object, object, None]:
            remote = RemoteWorker(process)
            self.remotes[name] = process, remote
            return remote.live()

        process.on_end = lambda: self._again(lambda: self.start_remote(name))
        process.run(begin)

    def start_client(self, name: str) -> None:
        """Have a client, while there is a storm to be a client in."""
        if not self.stormy:
            return
        process = self.process(f"{name}.{len(self.processes)}")
        process.skew_us = self._skew_us(process.name)
        self.clients[name] = process
        process.on_end = lambda: self._again(lambda: self.start_client(name))
        number = 1_000 * len(self.processes)
        process.run(lambda: Client(process, name, number).live())

    def process(self, name: str) -> Process:
        """Make one more process."""
        process = Process(self, name)  # type: ignore[abstract] # it has what is used here
        self.processes.append(process)
        return process

    def _owner_ended(self, process: Process) -> None:
        """Find the disk as the end of the owner left it, and start another one after a while."""
        rng = self.random(f"{process.name}/end")
        power_cut = self.stormy and process.disk is not None and rng.random() < 0.5
        if power_cut:
            self.trace.note("fault.power_cut", process.name)
        full = self.disk.capacity_bytes
        self.disk = self.disk.crash(rng.randrange(1 << 32) if power_cut else None)
        self.disk.capacity_bytes = full
        self.daemon = None
        if not self.ending:
            self.loop.call_later(rng.choice([0.05, 0.5, 2.0, 6.0]), self.start_owner)

    def _again(self, start: Callable[[], None]) -> None:
        """Start something again after a while, unless everything is about to end."""
        seconds = self.random(f"again/{len(self.processes)}").uniform(0.1, 3.0)
        self.loop.call_later(seconds, lambda: None if self.ending else start())

    # --- time --------------------------------------------------------------------------------

    def leap(self, seconds: float) -> None:
        """Set the machine's wall clock forward or back."""
        self.leapt_us += int(seconds * MICROSECONDS)
        self._leapt_at = self.loop.time()
        self.trace.note("fault.leap", "machine", f"{seconds:g} s")

    def resume(self, process: Process) -> None:
        """Let a paused process go on."""
        self._resumed_at = self.loop.time()
        self.trace.note("weather.resume", process.name)
        process.resume()

    # --- judge -------------------------------------------------------------------------------

    def excuse(self) -> None:
        """Take note that the next start may fail: the disk was told to fail."""
        self._excuses += 1

    def excuses(self, error: Exception) -> bool:
        """Whether a store may have failed to open because of a fault that we planned."""
        planned = isinstance(error.__cause__, OSError) and self._excuses > 0
        self._excuses -= planned
        return planned

    async def judge_opened(self, journal: JournalEngine, process: Process) -> None:
        """Hold what was recovered against what was committed and told."""
        self._owned_at = self.loop.time()
        self.trace.note("owner.opened", process.name, f"at {journal.recovery.last_seq}")
        problems = await journal.validate()
        if problems:
            self.trace.broken(f"after the recovery validate says {problems}")
        self._compare({(job.tenant, job.id): job for job in journal.kept()})
        if dict(await journal.policies()) != self.watch.policies:
            self.trace.broken("the policies came back otherwise")
        self.ledger.check()

    def judge_lost(self, lost: Sequence[Job], owner: Process) -> None:
        """No lease may be taken from a worker that is alive and relies on it."""
        for job in lost:
            run = self.runs.under_way.get(job.token)
            if run is None or not run.wanted or job.failure is None:
                continue
            if job.failure.error_reason == "stuck":
                continue
            if run.process is owner:
                self.trace.broken(f"{job.id} was taken from the owner's own worker, which runs it")
            elif run.attempt.lease_ends > self.loop.time() and not self._leapt_in_trouble():
                self.trace.broken(f"{job.id} was taken from {run.process.name} before its time")

    def _leapt_in_trouble(self) -> bool:
        """Whether the clock leapt a while ago and something kept a worker from renewing since.

        A leap is noticed, and everybody who is there gets the time of a lease to renew: not those
        who are paused or cut off, and not when the owner was away and cannot know.
        """
        if self.loop.time() - self._leapt_at > _LEAP_SECONDS:
            return False
        return (
            self._owned_at >= self._leapt_at
            or self._resumed_at >= self._leapt_at
            or any(process.paused for process in self.processes if process.alive)
            or bool(self.network.cut_share)
            or self.network.slowest_seconds > CALM_DELAY_SECONDS
            or self.slowest_disk_seconds > CALM_DELAY_SECONDS
        )

    def verify_disk(self) -> None:
        """Check every file of a store that nobody owns, and that it holds what was committed."""
        report = verify(self.disk)
        if report.problems:
            self.trace.broken(f"verify says {report.problems}")
            return
        with look(self.disk) as offline:
            found = {(job.tenant, job.id): job for job in offline.jobs()}
            records = [] if offline.cold is None else offline.cold.audit(0, 1 << 30)
        self._compare(found)
        if [head_of(record) for record in records] != self.watch.audit_heads[1:]:
            self.trace.broken(f"the audit has {len(records)} records, and not those that it had")

    def _compare(self, found: dict[Name, Job]) -> None:
        """Hold what is kept against what was committed."""
        for name, job in self.watch.jobs.items():
            forgettable = job.state in (State.COMPLETED, State.CANCELLED)
            if found.get(name) != job and not (forgettable and name not in found):
                self.trace.broken(f"{name[1]} came back as {found.get(name)}, not as {job}")
        for name in found:
            if name not in self.watch.jobs:
                self.trace.broken(f"{name[1]} came back from nowhere")
