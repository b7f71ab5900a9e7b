"""One run: a phase with faults, a recovery phase without, then the final checks."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager

import msgspec

from holdfast.engines.client.engine import ClientEngine
from holdfast.engines.journal.engine import JournalEngine
from holdfast.model.audit import Attribution
from holdfast.model.errors import HoldfastError
from holdfast.model.job import MAX_TIME_US, MICROSECONDS, Job, NewJob, State
from holdfast.worker.worker import Worker

from . import projected
from .faults import FaultInjector
from .observed_runs import JobKey
from .owner import PATH, SimulatedJournal
from .scenario import Scenario, draw_scenario
from .trace import BrokenPromise, Trace
from .world import World

RECOVERY_SECONDS = 240.0
"""All jobs must finish within this time after the last fault."""
_POLL_SECONDS = 1.0
_FILL_SECONDS = 5.0
OPERATION = Attribution("checker", "the faults are over")


class SimulationReport(msgspec.Struct, frozen=True):
    """The result of a run."""

    seed: int
    hash: str
    counts: dict[str, int]
    virtual_seconds: float
    jobs: int


def simulate(
    seed: int,
    *,
    journal: type[JournalEngine] = SimulatedJournal,
    write_line: Callable[[str], None] | None = None,
    scenario: Scenario | None = None,
) -> SimulationReport:
    """Run the simulation of this seed; raise ``BrokenPromise`` if a promise is broken."""
    world = World(scenario or draw_scenario(seed), journal, write_line)
    with _isolated(world):
        Simulation(world).run()
    if world.trace.failure is not None:
        raise BrokenPromise(failure_report(seed, world.trace))
    return SimulationReport(
        seed,
        world.trace.hash,
        dict(world.trace.counts),
        world.loop.time(),
        len(world.invariants.jobs),
    )


def failure_report(seed: int, trace: Trace) -> str:
    """Return the message for a run that broke a promise."""
    return "\n".join(
        [
            f"seed {seed}: {trace.failure}",
            "last events:",
            *(f"  {line}" for line in trace.last_lines),
            f"reproduce with: python -m holdfast.testing.simulation --seed {seed} --trace",
        ]
    )


class Simulation:
    """Drives a world through the fault phase and the recovery phase."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._faults = FaultInjector(world)

    def run(self) -> None:
        """Run all phases; a broken promise is in the trace."""
        world = self._world
        world.start()
        self._faults.schedule()
        self._advance(world.scenario.fault_seconds)
        if world.trace.failure is None:
            self._faults.end_all()
            self._finish_jobs()
        if world.trace.failure is None:
            self._fill_every_slot()
        if world.trace.failure is None:
            self._close()

    def _advance(
        self,
        seconds: float,
        until: Callable[[], bool] = lambda: False,
        poll_seconds: float = _POLL_SECONDS,
    ) -> bool:
        """Advance time until ``until`` holds or a promise is broken; return whether it holds."""
        world = self._world
        end = world.loop.time() + seconds
        while (
            not (held := until()) and world.trace.failure is None and end - world.loop.time() > 1e-5
        ):
            world.loop.advance(min(poll_seconds, end - world.loop.time()))
        return held

    def _finish_jobs(self) -> None:
        """Wait until every job is finished, as it must be."""
        world = self._world
        left = self._advance(
            RECOVERY_SECONDS, lambda: not any(client.alive for client in world.clients.values())
        )
        self._expect(left, "a client waits forever")
        self._call_owner(_lift_policies)
        if not self._advance(
            RECOVERY_SECONDS, lambda: not self._unfinished() and not self._rebuilding()
        ):
            waiting = [f"{job.id} ({job.state})" for job in self._unfinished()]
            self._expect(
                not waiting,
                f"{RECOVERY_SECONDS:g} s after the last fault these still wait: {waiting[:10]}",
            )
            self._expect(not self._rebuilding(), "a rebuild does not end")
        # A worker learns at its next heartbeat that it lost a lease.
        self._advance(_POLL_SECONDS + world.scenario.settings.lease_seconds)
        if world.trace.failure is None:
            world.ledger.check()
            projected.check_rows(world.trace, world.invariants, world.read_models)
            for run in world.runs.running():
                job = run.attempt.job
                # An automatic replay may have begun meanwhile: its run has a lease.
                if run.active and not world.invariants.holds(job.tenant, job.id, job.token):
                    world.trace.broken(f"{run.attempt.id} is finished but still runs")

    def _unfinished(self) -> list[Job]:
        """Return the unfinished jobs that need no operator to finish."""
        held = self._held()
        now_us = self._world.invariants.last_at_us
        return [
            job
            for name, job in self._world.invariants.jobs.items()
            if not job.state.finished
            and name not in held
            # Schedules enqueue a new job every few seconds.
            and not (job.id.startswith("cron/") and job.created_at_us > now_us - 15 * MICROSECONDS)
        ]

    def _rebuilding(self) -> bool:
        states = self._world.invariants.projections.values()
        return any(state.rebuild is not None for state in states)

    def _held(self) -> set[JobKey]:
        """Return the jobs that need an operator, and all jobs behind them."""
        jobs = self._world.invariants.jobs
        held = {
            name
            for name, job in jobs.items()
            if job.state is State.DEAD or (job.state is State.BLOCKED and job.ties.hold)
        }
        before = -1
        while before < len(held):
            before = len(held)
            keys: dict[tuple[str, str, str | None], int] = {}
            for name in held:
                key = jobs[name].tenant, jobs[name].queue, jobs[name].ties.key
                keys[key] = min(keys.get(key, MAX_TIME_US), jobs[name].ties.key_seq)
            for name, job in jobs.items():
                if job.state in (State.PENDING, State.BLOCKED) and (
                    any((job.tenant, one) in held for one in job.ties.waiting_for)
                    or (
                        job.ties.key is not None
                        and keys.get((job.tenant, job.queue, job.ties.key), MAX_TIME_US)
                        < job.ties.key_seq
                    )
                ):
                    held.add(name)
        return held

    def _fill_every_slot(self) -> None:
        """Enqueue as many jobs as there are slots: all must run at once."""
        world = self._world
        slots = sum(sum(worker.slots.values()) for worker in self._workers())
        world.runs.max_concurrent = len(world.runs.running())
        jobs = [
            NewJob(task="mail", queue="mail", id=f"final-{number}", payload={"ms": 800})
            for number in range(slots)
        ]
        self._call_owner(lambda engine: _enqueue(engine, jobs))
        full = self._advance(_FILL_SECONDS, lambda: world.runs.max_concurrent >= slots, 0.1)
        self._expect(full, f"{slots} slots, but only {world.runs.max_concurrent} jobs ran at once")
        done = self._advance(15.0, lambda: not self._unfinished())
        self._expect(done, f"these took too long: {[job.id for job in self._unfinished()]}")

    def _workers(self) -> list[Worker]:
        world = self._world
        found = [remote.worker for process, remote in world.remotes.values() if process.alive]
        if world.daemon is not None:
            found.append(world.daemon.worker)
        return [worker for worker in found if worker is not None]

    def _close(self) -> None:
        """Stop all processes normally, then verify the disk."""
        world = self._world
        world.ending = True
        for process, remote in world.remotes.values():
            if process.alive:
                remote.ask_to_stop()
        gone = self._advance(
            20.0, lambda: not any(process.alive for process, _ in world.remotes.values()), 0.1
        )
        self._expect(gone, "a worker does not stop")
        owner, daemon = world.owner, world.daemon
        if owner is None or daemon is None:
            world.trace.broken("the owner did not restart")
            return
        owner.call_soon(daemon.ask_to_stop)
        self._expect(self._advance(20.0, lambda: not owner.alive, 0.1), "the owner does not stop")
        world.verify_disk()

    def _expect(self, kept: bool, promise: str) -> None:  # noqa: FBT001 - a plain condition
        if not kept and self._world.trace.failure is None:
            self._world.trace.broken(promise)

    def _call_owner(self, work: Callable[[ClientEngine], Coroutine[object, object, None]]) -> None:
        """Make a call to the owner from a new process, and wait for the answer."""
        world = self._world
        process = world.process(f"checker-{len(world.processes)}")
        failed: list[str] = ["no answer"]

        async def main() -> None:
            engine = ClientEngine(
                PATH,
                patience_seconds=60.0,
                clock=process.clock,
                random_bytes=world.random(process.name).randbytes,
            )
            try:
                await work(engine)
                failed.clear()
            except HoldfastError as error:
                failed[:] = [str(error)]
            await engine.close()
            process.exit()

        process.run(main)
        self._advance(120.0, lambda: not process.alive, 0.1)
        self._expect(not failed, f"the owner fails without faults: {failed[:1]}")


async def _lift_policies(engine: ClientEngine) -> None:
    for queue in await engine.policies():
        if queue in projected.QUEUES:
            continue  # a rebuild pauses it, and lets it go on
        await engine.set_policy(queue, None, OPERATION)
    for outage in await engine.outages():
        await engine.set_outage(outage.dependency, OPERATION, on=False)


async def _enqueue(engine: ClientEngine, jobs: list[NewJob]) -> None:
    await engine.enqueue(jobs)


@contextmanager
def _isolated(world: World) -> Iterator[None]:
    """Seed the global random state, check the log for errors, and clean up at the end."""
    random_state = random.getstate()
    random.seed(f"{world.scenario.seed}/jitter")
    logger, handler = logging.getLogger("holdfast"), _LoggedErrorHandler(world.trace)
    before = logger.propagate, logger.level
    logger.propagate = False
    logger.setLevel(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        world.trace.close()
        for process in world.processes:
            process.alive = False
        for process in world.processes:
            process.close_tasks()
        world.loop.close()
        random.setstate(random_state)
        logger.removeHandler(handler)
        logger.propagate = before[0]
        logger.setLevel(before[1])


class _LoggedErrorHandler(logging.Handler):
    """Records a logged exception as a broken promise."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(logging.WARNING)
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        words = str(record.msg).split()
        self._trace.note("logged", "log", words[0] if words else "")
        if record.exc_info and record.exc_info[1] is not None:
            self._trace.broken(f"{record.getMessage()}: {record.exc_info[1]!r}")
