"""Batches of jobs: without keys, of 1,000 keys, and of one hot key, on both stores."""

import asyncio
import time
from pathlib import Path

from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.model.job import NewJob
from holdfast.model.outcome import Outcome, completed

from . import ours, postgres

JOBS = 20_000
BATCH = 500
BULK = 1_000
KEYS = {"no_keys": 0, "1000_keys": 1_000, "one_key": 1}


async def _flow(engine: JournalEngine | PostgresEngine, keys: int) -> float:
    """Claim and complete everything in batches; return jobs per second."""
    for first in range(0, JOBS, BULK):
        await engine.enqueue(
            [
                NewJob(task="t", payload=b'{"n":1}', key=f"k{number % keys}" if keys else None)
                for number in range(first, first + BULK)
            ]
        )
    began = time.perf_counter()
    outcomes: list[Outcome] = []
    while True:
        claim = await engine.claim(
            queues=["default"], worker="w", limit=BATCH, chain=BATCH, settle=outcomes
        )
        if any(claim.settled):
            raise RuntimeError("an outcome was refused")
        outcomes = [completed(job) for job in claim.jobs]
        if not outcomes:
            return JOBS / (time.perf_counter() - began)


async def _journal(directory: Path, keys: int) -> float:
    engine = await JournalEngine.open(directory, options=ours.OPTIONS)
    rate = await _flow(engine, keys)
    await engine.close()
    return rate


async def _postgres(url: str, keys: int) -> float:
    engine = await PostgresEngine.open(url)
    rate = await _flow(engine, keys)
    await engine.close()
    return rate


def measure(root: Path, server: postgres.server.Durable) -> dict[str, float]:
    """Measure one round on both stores."""
    found: dict[str, float] = {}
    for name, keys in KEYS.items():
        found[f"journal_batches_{name}_per_second"] = asyncio.run(_journal(root / name, keys))
        with server.with_our_tables() as url:
            found[f"postgres_batches_{name}_per_second"] = asyncio.run(_postgres(url, keys))
    return found
