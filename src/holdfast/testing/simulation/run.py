"""One run: a storm, then calm, and a look at whether everything is as it must be."""

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

from .faults import FaultInjector
from .observed_runs import Name
from .owner import PATH, SimulatedJournal
from .scenario import Scenario, draw
from .trace import BrokenPromise, Trace
from .world import World

CALM_SECONDS = 240.0
"""Within this time after the last fault everything must have come to its end."""
_LOOK_SECONDS = 1.0
_FULL_SECONDS = 5.0
OPERATION = Attribution("checker", "the storm is over")


class SimulationReport(msgspec.Struct, frozen=True):
    """What a run was like."""

    seed: int
    hash: str
    counts: dict[str, int]
    virtual_seconds: float
    jobs: int


def simulate(
    seed: int,
    *,
    journal: type[JournalEngine] = SimulatedJournal,
    say: Callable[[str], None] | None = None,
    scenario: Scenario | None = None,
) -> SimulationReport:
    """Run the simulation of this seed; raise ``BrokenPromise`` if a promise is broken."""
    world = World(scenario or draw(seed), journal, say)
    with _alone(world):
        Simulation(world).run()
    if world.trace.failure is not None:
        raise BrokenPromise(told(seed, world.trace))
    return SimulationReport(
        seed,
        world.trace.hash,
        dict(world.trace.counts),
        world.loop.time(),
        len(world.watch.jobs),
    )


def told(seed: int, trace: Trace) -> str:
    """Return what to say of a run that broke a promise."""
    return "\n".join(
        [
            f"seed {seed}: {trace.failure}",
            "the last that happened:",
            *(f"  {line}" for line in trace.last_lines),
            f"again, by itself: python -m holdfast.testing.simulation --seed {seed} --trace",
        ]
    )


class Simulation:
    """Drives a world through its storm and the calm after it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._weather = FaultInjector(world)

    def run(self) -> None:
        """Do everything; what is broken is in the trace."""
        world = self._world
        world.start()
        self._weather.brew()
        self._advance(world.scenario.storm_seconds)
        if world.trace.failure is None:
            self._weather.clear_up()
            self._come_to_an_end()
        if world.trace.failure is None:
            self._fill_every_slot()
        if world.trace.failure is None:
            self._close()

    def _advance(
        self, seconds: float, until: Callable[[], bool] = lambda: False, look: float = _LOOK_SECONDS
    ) -> bool:
        """Let time pass until this holds, or a promise is broken; return whether it does."""
        world = self._world
        end = world.loop.time() + seconds
        while (
            not (held := until()) and world.trace.failure is None and end - world.loop.time() > 1e-5
        ):
            world.loop.advance(min(look, end - world.loop.time()))
        return held

    def _come_to_an_end(self) -> None:
        """Wait until every job has come to its end, as it must."""
        world = self._world
        left = self._advance(
            CALM_SECONDS, lambda: not any(client.alive for client in world.clients.values())
        )
        self._expect(left, "a client waits for ever")
        self._ask(_lift_policies)
        if not self._advance(CALM_SECONDS, lambda: not self._unfinished()):
            waiting = [f"{job.id} ({job.state})" for job in self._unfinished()]
            self._expect(
                not waiting, f"{CALM_SECONDS:g} s after the last fault these wait: {waiting[:10]}"
            )
        # A worker hears at its next heartbeat that a lease was taken from it.
        self._advance(_LOOK_SECONDS + world.scenario.settings.lease_seconds)
        if world.trace.failure is None:
            world.ledger.check()
            for run in world.runs.living():
                if run.wanted:
                    world.trace.broken(f"{run.attempt.id} is finished and still runs")

    def _unfinished(self) -> list[Job]:
        """Return the jobs that are still to come to their end, without anybody's help."""
        held = self._held()
        now_us = self._world.watch.last_at_us
        return [
            job
            for name, job in self._world.watch.jobs.items()
            if not job.state.finished
            and name not in held
            # A schedule makes another one every few seconds, for ever.
            and not (job.id.startswith("cron/") and job.created_at_us > now_us - 15 * MICROSECONDS)
        ]

    def _held(self) -> set[Name]:
        """Return the jobs that only a person can bring on, and all that wait for them."""
        jobs = self._world.watch.jobs
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
        """Every slot of every worker must be there to work: as many jobs as slots, all at once."""
        world = self._world
        slots = sum(sum(worker.slots.values()) for worker in self._workers())
        world.runs.most_at_once = len(world.runs.living())
        jobs = [
            NewJob(task="mail", queue="mail", id=f"final-{number}", payload={"ms": 800})
            for number in range(slots)
        ]
        self._ask(lambda engine: _enqueue(engine, jobs))
        full = self._advance(_FULL_SECONDS, lambda: world.runs.most_at_once >= slots, 0.1)
        self._expect(full, f"{slots} slots, but only {world.runs.most_at_once} jobs ran at once")
        done = self._advance(15.0, lambda: not self._unfinished())
        self._expect(done, f"these took too long: {[job.id for job in self._unfinished()]}")

    def _workers(self) -> list[Worker]:
        world = self._world
        found = [remote.worker for process, remote in world.remotes.values() if process.alive]
        if world.daemon is not None:
            found.append(world.daemon.worker)
        return [worker for worker in found if worker is not None]

    def _close(self) -> None:
        """End everything in order; what is on the disk must be whole."""
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
            world.trace.broken("the owner has not come back")
            return
        owner.call_soon(daemon.ask_to_stop)
        self._expect(self._advance(20.0, lambda: not owner.alive, 0.1), "the owner does not stop")
        world.verify_disk()

    def _expect(self, kept: bool, promise: str) -> None:  # noqa: FBT001 - a plain condition
        if not kept and self._world.trace.failure is None:
            self._world.trace.broken(promise)

    def _ask(self, work: Callable[[ClientEngine], Coroutine[object, object, None]]) -> None:
        """Have a process of our own ask something of the owner, and wait for the answer."""
        world = self._world
        process = world.process(f"checker-{len(world.processes)}")
        failed: list[str] = ["it was not answered"]

        async def live() -> None:
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
            process.leave()

        process.run(live)
        self._advance(120.0, lambda: not process.alive, 0.1)
        self._expect(not failed, f"in calm weather the owner does not do its work: {failed[:1]}")


async def _lift_policies(engine: ClientEngine) -> None:
    for queue in await engine.policies():
        await engine.set_policy(queue, None, OPERATION)


async def _enqueue(engine: ClientEngine, jobs: list[NewJob]) -> None:
    await engine.enqueue(jobs)


@contextmanager
def _alone(world: World) -> Iterator[None]:
    """Have all chance come from the seed, hear what is logged, and leave nothing behind."""
    chance = random.getstate()
    random.seed(f"{world.scenario.seed}/jitter")
    logger, complaints = logging.getLogger("holdfast"), _Complaints(world.trace)
    before = logger.propagate, logger.level
    logger.propagate = False
    logger.setLevel(logging.WARNING)
    logger.addHandler(complaints)
    try:
        yield
    finally:
        world.trace.close()
        for process in world.processes:
            process.alive = False
        for process in world.processes:
            process.bury()
        world.loop.close()
        random.setstate(chance)
        logger.removeHandler(complaints)
        logger.propagate = before[0]
        logger.setLevel(before[1])


class _Complaints(logging.Handler):
    """Takes a logged exception for what it is: a bug that was caught just in time."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(logging.WARNING)
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        words = str(record.msg).split()
        self._trace.note("said", "log", words[0] if words else "")
        if record.exc_info and record.exc_info[1] is not None:
            self._trace.broken(f"{record.getMessage()}: {record.exc_info[1]!r}")
