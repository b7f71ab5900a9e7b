"""Many dead letters in a working engine: ``python -m bench.letters DIRECTORY COUNT``.

Also the cost of keeping history: the same work with and without it.
"""

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from holdfast.engines.journal.engine import JournalEngine
from holdfast.model.actions import ReplayJobs
from holdfast.model.audit import Attribution
from holdfast.model.failure import Failure, FailureClass
from holdfast.model.job import Job, NewJob, State
from holdfast.model.outcome import completed, dead
from holdfast.model.policy import QueuePolicy
from holdfast.model.search import Filter

from . import ours
from .large import resident_bytes

BATCH = 1_000
PAIRS, WORK = 5, 100_000
REASONS = ["upstream_5xx", "timeout", "connection", "business_error", "parse_error"]
TENANTS = 50
WHY = Attribution("bench", "to measure the speed")


def new_jobs(start: int) -> list[NewJob]:
    """Return a batch of jobs of several tenants and queues."""
    return [
        NewJob(
            task="t",
            payload={"x": "y" * 192},
            tenant=f"tenant-{number % TENANTS}",
            scope=f"library:{number % 997}",
            queue=f"queue-{number % 5}",
        )
        for number in range(start, start + BATCH)
    ]


def failure(number: int) -> Failure:
    """Return a failure whose message varies with the number."""
    reason = REASONS[number % len(REASONS)]
    message = f"HTTPError: order {number} answered 503 after {number % 31} s"
    return Failure(reason, Failure.of(reason, "").failure_class, message, "Traceback …\n" * 20)


async def add_dead_letters(engine: JournalEngine, count: int) -> float:
    """Let this many jobs die; return the rate until all are in the history."""
    queues = [f"queue-{number}" for number in range(5)]
    start, number = time.perf_counter(), 0
    for chunk in range(0, count, BATCH):
        await engine.enqueue(new_jobs(chunk))
        claim = await engine.claim(queues=queues, worker="w", limit=BATCH)
        outcomes = []
        for job in claim.jobs:
            outcomes.append(dead(job, failure(number)))
            number += 1
        await engine.settle(outcomes)
    await engine.groups(Filter(ids=("nobody",)))  # returns after the history has everything
    return count / (time.perf_counter() - start)


async def milliseconds(call: Callable[[], Awaitable[object]], times: int = 5) -> float:
    """Return the median duration of a few calls, after a first one."""
    await call()
    taken = []
    for _time in range(times):
        start = time.perf_counter()
        await call()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken) * 1e3


async def query(engine: JournalEngine) -> dict[str, float]:
    """Measure groups, pages and text search."""
    dead_only = (State.DEAD,)
    pages = {
        "queue": Filter(queues=("queue-2",), states=dead_only),
        "reason": Filter(error_reasons=("timeout",), states=dead_only),
        "class": Filter(classes=(FailureClass.DETERMINISTIC,), states=dead_only),
        "tenant": Filter(tenant="tenant-7", states=dead_only),
        "reason and queue": Filter(error_reasons=("timeout",), queues=("queue-1",)),
    }
    found = [await milliseconds(lambda: engine.find(wanted)) for wanted in pages.values()]  # noqa: B023
    text = Filter(text="order 123456 answered", states=dead_only)
    return {
        "groups_ms": await milliseconds(engine.groups),
        "slowest_page_ms": max(found),
        "text_search_ms": await milliseconds(lambda: engine.find(text), times=2),
    }


async def replay(engine: JournalEngine, count: int) -> float:
    """Replay ``count`` jobs, oldest first; return the rate."""
    start, done = time.perf_counter(), 0
    wanted = Filter(classes=(FailureClass.TRANSIENT,))
    while done < count:
        answer = await engine.operate(ReplayJobs(), wanted, WHY, limit=10_000)
        done += len(answer.jobs)
        if not answer.more:
            break
    return done / (time.perf_counter() - start)


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


async def measure(directory: Path, count: int) -> dict[str, float]:
    """Measure everything."""
    found = await history_cost(directory)
    found["turns_before_another_tenant"] = await fairness(directory / "fair")
    engine = await JournalEngine.open(directory / "letters", options=ours.OPTIONS)
    await add_dead_letters(engine, 10_000)
    before = resident_bytes()
    found["deaths_per_second"] = await add_dead_letters(engine, count)
    found["dead_letters_memory_mib"] = (resident_bytes() - before) / 2**20
    found |= await query(engine)
    found["replay_per_second"] = await replay(engine, min(count // 4, 100_000))
    await engine.close()
    return found


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    print(json.dumps(asyncio.run(measure(Path(sys.argv[1]), int(sys.argv[2])))))
