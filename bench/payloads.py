"""What it costs that finished jobs keep their payload: pairs of runs, kept and dropped.

    python -m bench --only payloads

A pair is measured back to back on the same machine, and its ratio says what keeping costs.
"""

import asyncio
import time
from pathlib import Path

from msgspec.structs import replace

from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.model.outcome import Outcome, completed

from . import ours, postgres

JOBS = 20_000
BATCH = 500
BULK = 1_000


async def _flow(engine: JournalEngine | PostgresEngine) -> float:
    """Enqueue in bulk, claim and complete everything; return jobs per second."""
    began = time.perf_counter()
    for _chunk in range(JOBS // BULK):
        await engine.enqueue(ours.new_jobs(BULK))
    outcomes: list[Outcome] = []
    while True:
        claim = await engine.claim(queues=["default"], worker="w", limit=BATCH, settle=outcomes)
        outcomes = [completed(job) for job in claim.jobs]
        if not outcomes:
            break
    await engine.counts()
    return JOBS / (time.perf_counter() - began)


async def _journal(directory: Path, *, keep: bool) -> float:
    engine = await JournalEngine.open(directory, options=replace(ours.OPTIONS, keep_payload=keep))
    rate = await _flow(engine)
    await engine.close()
    return rate


async def _postgres(url: str, *, keep: bool) -> float:
    engine = await PostgresEngine.open(url, options=PostgresOptions(keep_payload=keep))
    rate = await _flow(engine)
    await engine.close()
    return rate


def measure(
    root: Path, server: postgres.server.Durable, order: tuple[bool, bool]
) -> dict[str, float]:
    """Measure one pair on each store, in this order, which should alternate."""
    found: dict[str, float] = {}
    for keep in order:
        word = "kept" if keep else "dropped"
        found[f"journal_payload_{word}_per_second"] = asyncio.run(
            _journal(root / f"payload-{word}", keep=keep)
        )
        with server.with_our_tables() as url:
            found[f"postgres_payload_{word}_per_second"] = asyncio.run(_postgres(url, keep=keep))
    for store in ("journal", "postgres"):
        dropped = found[f"{store}_payload_dropped_per_second"]
        kept = found[f"{store}_payload_kept_per_second"]
        found[f"{store}_payload_cost_percent"] = 100 * (1 - kept / dropped)
    return found
