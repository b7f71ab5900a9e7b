"""A workload that keeps its own ledger of what it was told, to hold against what survives."""

import asyncio
import contextlib
import random
from dataclasses import dataclass, field

from holdfast.engines.contract import Counts
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.engines.journal.wal.disk import Disk
from holdfast.model.errors import HoldfastError, LeaseLost, StorageError, StorageFull
from holdfast.model.failure import Failure
from holdfast.model.job import NewJob, State
from holdfast.model.outcome import Outcome, completed, dead, release, retry
from holdfast.testing import SimDisk, VirtualClock

FAILURE = Failure.of("upstream_5xx", "503")
OPTIONS = JournalOptions(inline=True, segment_bytes=4096, remember_seconds=1e6)


@dataclass
class Ledger:
    """What an engine acknowledged, across all its lives."""

    enqueued: set[str] = field(default_factory=set)
    completed: dict[str, int] = field(default_factory=dict)
    dead: set[str] = field(default_factory=set)
    tokens: dict[str, int] = field(default_factory=dict)
    refused_for_space: int = 0

    def note_completion(self, job_id: str) -> None:
        self.completed[job_id] = self.completed.get(job_id, 0) + 1

    def note_token(self, job_id: str, token: int) -> None:
        assert token > self.tokens.get(job_id, 0), f"token {token} of {job_id} was issued before"
        self.tokens[job_id] = token

    async def check(self, engine: JournalEngine) -> None:
        """Everything acknowledged is there, and nothing was completed twice."""
        assert await engine.validate() == []
        ids = sorted(self.enqueued | set(self.completed) | self.dead)
        found = dict(zip(ids, await engine.get(ids), strict=True))
        lost = [job_id for job_id, job in found.items() if job is None]
        assert not lost, f"acknowledged and lost: {lost}"
        for job_id in self.completed:
            job = found[job_id]
            assert job is not None
            assert job.state is State.COMPLETED, f"{job_id} was completed and is {job.state}"
        for job_id in self.dead:
            job = found[job_id]
            assert job is not None
            assert job.state is State.DEAD
        twice = [job_id for job_id, count in self.completed.items() if count > 1]
        assert not twice, f"completed twice: {twice}"


async def work(
    engine: JournalEngine,
    clock: VirtualClock,
    ledger: Ledger,
    *,
    steps: int = 24,
    seed: int = 1,
    settles: int = 1,
    compaction_may_fail: bool = False,
) -> None:
    """Enqueue, claim, settle, rotate, snapshot and compact; note what is acknowledged.

    ``settles`` is how often a settle is tried while there is no room for it, as a worker does.
    """
    rng = random.Random(seed)
    for step in range(steps):
        clock.advance(1)
        jobs = [
            NewJob(task="t", id=f"{seed}-{step}-{n}", payload={"x": "y" * rng.randrange(120)})
            for n in range(rng.randrange(1, 5))
        ]
        try:
            ledger.enqueued.update(receipt.id for receipt in await engine.enqueue(jobs))
        except StorageFull:
            ledger.refused_for_space += 1
        claim = await engine.claim(queues=["default"], worker="w", limit=3)
        outcomes = []
        for job in claim.jobs:
            ledger.note_token(job.id, job.token)
            roll = rng.random()
            if roll < 0.6:
                outcomes.append(completed(job))
            elif roll < 0.75:
                outcomes.append(retry(job, FAILURE))
            elif roll < 0.85:
                outcomes.append(dead(job, FAILURE))
            elif roll < 0.95:
                outcomes.append(release(job))
        answers = await _settle(engine, outcomes, settles)
        for outcome, answer in zip(outcomes, answers, strict=True):
            if answer is None and outcome.kind == "completed":
                ledger.note_completion(outcome.id)
            elif answer is None and outcome.kind == "dead":
                ledger.dead.add(outcome.id)
        if step % 5 == 4:
            with contextlib.suppress(*[StorageError] if compaction_may_fail else []):
                await engine.compact()
        await engine.reclaim()


async def _settle(
    engine: JournalEngine, outcomes: list[Outcome], tries: int
) -> list[LeaseLost | None]:
    try:
        return await engine.settle(outcomes)
    except StorageFull:
        if tries == 1:
            raise
        return await _settle(engine, outcomes, tries - 1)


async def drain(engine: JournalEngine, clock: VirtualClock, ledger: Ledger) -> None:
    """Finish everything that is left, counting completions."""
    for _round in range(500):
        clock.advance(60)
        await engine.reclaim()
        claim = await engine.claim(queues=["default"], worker="d", limit=100)
        if not claim.jobs:
            break
        for job in claim.jobs:
            ledger.note_token(job.id, job.token)
        answers = await engine.settle([completed(job) for job in claim.jobs])
        for job, answer in zip(claim.jobs, answers, strict=True):
            if answer is None:
                ledger.note_completion(job.id)
    counts = (await engine.counts()).get("default", Counts())
    assert (counts.pending, counts.in_flight) == (0, 0)


def run_until_fault(disk: Disk, ledger: Ledger, clock: VirtualClock, *, seed: int = 1) -> bool:
    """Run the workload on this disk; return whether it got to the end."""

    async def run() -> bool:
        try:
            engine = await JournalEngine.open(disk, clock=clock, options=OPTIONS)
        except HoldfastError:
            return False
        try:
            await work(engine, clock, ledger, seed=seed)
            await engine.close()
        except HoldfastError:
            return False
        return True

    return asyncio.run(run())


def check_after(disk: SimDisk, ledger: Ledger, clock: VirtualClock) -> None:
    """Open the disk, hold it against the ledger, finish the work, and do so once more."""

    async def run() -> None:
        for _life in range(2):
            engine = await JournalEngine.open(disk, clock=clock, options=OPTIONS)
            await ledger.check(engine)
            await drain(engine, clock, ledger)
            await ledger.check(engine)
            await engine.close()

    asyncio.run(run())
