"""The journal, sync=always, 200-byte payloads."""

import asyncio
import time
from pathlib import Path

from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.model.job import NewJob
from holdfast.model.outcome import Outcome, completed

PAYLOAD = b'{"x":"' + b"y" * 192 + b'"}'
# No compaction in the middle of a short measurement: it is measured separately.
OPTIONS = JournalOptions(compact_bytes=1 << 40)


def new_jobs(count: int) -> list[NewJob]:
    """Return this many new jobs."""
    return [NewJob(task="t", payload=PAYLOAD) for _ in range(count)]


async def one_by_one(engine: JournalEngine, seconds: float) -> dict[str, float]:
    """One caller, one job per call."""
    taken: list[float] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        start = time.perf_counter()
        await engine.enqueue([NewJob(task="t", payload=PAYLOAD)])
        taken.append(time.perf_counter() - start)
    taken.sort()
    return {
        "enqueue_one_by_one_per_second": len(taken) / sum(taken),
        "enqueue_p50_us": taken[len(taken) // 2] * 1e6,
        "enqueue_p99_us": taken[len(taken) * 99 // 100] * 1e6,
    }


async def producers(engine: JournalEngine, count: int, seconds: float) -> float:
    """Many callers at once, one job per call; return jobs per second."""
    done = 0
    until = time.perf_counter() + seconds

    async def produce() -> None:
        nonlocal done
        while time.perf_counter() < until:
            await engine.enqueue([NewJob(task="t", payload=PAYLOAD)])
            done += 1

    start = time.perf_counter()
    await asyncio.gather(*(produce() for _ in range(count)))
    return done / (time.perf_counter() - start)


async def bulk(engine: JournalEngine, seconds: float, chunk: int = 1_000) -> float:
    """One caller, many jobs per call; return jobs per second."""
    done, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        await engine.enqueue(new_jobs(chunk))
        done += chunk
    return done / (time.perf_counter() - start)


async def process(engine: JournalEngine, most: int, batch: int = 100) -> float:
    """Claim, and settle the last batch in the same call; return jobs per second."""
    done = 0
    outcomes: list[Outcome] = []
    start = time.perf_counter()
    while done < most:
        claim = await engine.claim(
            queues=["default"], tasks=["t"], worker="w", limit=batch, settle=outcomes
        )
        outcomes = [completed(job) for job in claim.jobs]
        done += len(outcomes)
        if not outcomes:
            break
    await engine.settle(outcomes)
    return done / (time.perf_counter() - start)


async def _measure(directory: Path, seconds: float) -> dict[str, float]:
    engine = await JournalEngine.open(directory / "one", options=OPTIONS)
    found = await one_by_one(engine, seconds)
    await engine.close()
    engine = await JournalEngine.open(directory / "many", options=OPTIONS)
    found["enqueue_100_producers_per_second"] = await producers(engine, 100, seconds)
    await engine.close()
    engine = await JournalEngine.open(directory / "bulk", options=OPTIONS)
    found["enqueue_bulk_per_second"] = await bulk(engine, seconds)
    await engine.close()
    engine = await JournalEngine.open(directory / "process", options=OPTIONS)
    for _chunk in range(40):
        await engine.enqueue(new_jobs(1_000))
    found["claim_and_settle_per_second"] = await process(engine, 40_000)
    await engine.close()
    return found


def measure(directory: Path, seconds: float) -> dict[str, float]:
    """Measure one round."""
    return asyncio.run(_measure(directory, seconds))
