"""What keeping history costs the journal, in pairs of runs, and how fair a queue is.

python -m bench.history_cost DIRECTORY
"""

import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from holdfast.engines.journal.engine import JournalEngine
from holdfast.model.audit import Attribution
from holdfast.model.job import Job, NewJob
from holdfast.model.outcome import completed
from holdfast.model.policy import QueuePolicy

from . import ours

BATCH = 1_000
PAIRS, WORK = 5, 100_000
WHY = Attribution("bench", "to measure the speed")


async def fairness(directory: Path) -> float:
    """Return how many claims come before a lone job of another tenant."""
    engine = await JournalEngine.open(directory, options=ours.OPTIONS)
    await engine.set_policy("default", QueuePolicy(fair=True), WHY)
    for _chunk in range(100):
        await engine.enqueue([NewJob(task="t", tenant="large") for _ in range(1_000)])
    await engine.claim(queues=["default"], worker="w")
    await engine.enqueue([NewJob(task="t", tenant="small")])
    turns = 0.0
    while (await engine.claim(queues=["default"], worker="w")).jobs[0].tenant != "small":
        turns += 1
    await engine.close()
    return turns


async def work(directory: Path, count: int, *, with_history: bool) -> float:
    """Enqueue and complete jobs, with or without history; return the rate."""
    engine = await JournalEngine.open(directory, options=ours.OPTIONS)
    if not with_history:
        engine._state.record = None  # noqa: SLF001 - what keeping history costs
    start, done = time.perf_counter(), 0
    held: list[Job] = []
    while done < count:
        await engine.enqueue([NewJob(task="t", payload={"x": "y" * 192}) for _ in range(100)])
        claim = await engine.claim(
            queues=["default"], worker="w", limit=100, settle=[completed(job) for job in held]
        )
        held = claim.jobs
        done += 100
    rate = done / (time.perf_counter() - start)
    await engine.close()
    return rate


async def process_backlog(directory: Path, count: int, *, with_history: bool) -> float:
    """Claim and complete a backlog, with or without history; return the rate."""
    engine = await JournalEngine.open(directory, options=ours.OPTIONS)
    for _chunk in range(count // BATCH):
        await engine.enqueue(ours.new_jobs(BATCH))
    if not with_history:
        engine._state.record = None  # noqa: SLF001 - what keeping history costs
    rate = await ours.process(engine, count)
    await engine.close()
    return rate


async def history_cost(directory: Path) -> dict[str, float]:
    """Measure the same work with and without history, in pairs."""
    found: dict[str, float] = {}
    for name, job in (("work", work), ("settle", process_backlog)):
        rates, ratios = [], []
        for turn in range(PAIRS):
            with tempfile.TemporaryDirectory(dir=directory) as inner:
                with_it = await job(Path(inner) / "with", WORK, with_history=True)
                without = await job(Path(inner) / "without", WORK, with_history=False)
            rates.append(with_it)
            ratios.append(with_it / without)
            print(f"{name} {turn}: {with_it:,.0f}/s, {without:,.0f}/s", file=sys.stderr)
        found[f"{name}_with_history_per_second"] = statistics.median(rates)
        found[f"{name}_with_history_share"] = statistics.median(ratios)
        found[f"{name}_with_history_share_lowest"] = min(ratios)
        found[f"{name}_with_history_share_highest"] = max(ratios)
    return found


async def measure(directory: Path) -> dict[str, float]:
    """Measure everything."""
    found = await history_cost(directory)
    found["turns_before_another_tenant"] = await fairness(directory / "fair")
    return found


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    print(json.dumps(asyncio.run(measure(Path(sys.argv[1])))))
