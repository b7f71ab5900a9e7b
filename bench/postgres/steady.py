"""``python -m bench.postgres.steady DIRECTORY SECONDS PIN_SECONDS``: an even load for a while.

One process enqueues in bulk so that about 10,000 jobs are always waiting, one works them off.
Then a forgotten transaction keeps the server from removing dead rows.
"""

import asyncio
import contextlib
import dataclasses
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import psycopg

from bench.brokers import progress
from bench.brokers.driver import Worker

from .answering import answer
from .holdfast_side import SIDE
from .measuring import working
from .side import BULK, url

WAITING = 10_000
EVERY_SECONDS = 1.0
LAST = 10
"""Rates are medians of so many samples: the last ones, when what piles up has piled up."""
_LOOK = b"""
SELECT
    coalesce(max(s.n_dead_tup), 0)::int8, pg_total_relation_size('holdfast.jobs'),
    coalesce(max(s.autovacuum_count), 0)::int8
FROM pg_stat_user_tables AS s
WHERE s.relid = 'holdfast.jobs'::regclass
"""


@dataclasses.dataclass(frozen=True)
class Sample:
    """One look: the rate since the look before, and what the table of jobs has come to."""

    per_second: float
    dead_rows: int
    table_bytes: int
    vacuums: int


@contextlib.asynccontextmanager
async def feeding(worker: Worker) -> AsyncIterator[None]:
    """Keep jobs waiting."""

    async def feed() -> None:
        put = 0
        while True:
            if put - progress.read(worker.progress).count < WAITING:
                await SIDE.put_many()
                put += BULK
            else:
                await asyncio.sleep(0.005)

    task = asyncio.create_task(feed())
    try:
        yield
        if task.done():
            task.result()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def look(worker: Worker, seconds: float) -> list[Sample]:
    """Look every second for so long."""
    found: list[Sample] = []
    async with await psycopg.AsyncConnection.connect(url(), autocommit=True) as connection:
        until = time.monotonic() + seconds
        before = progress.read(worker.progress)
        while time.monotonic() < until:
            await asyncio.sleep(EVERY_SECONDS)
            now = progress.read(worker.progress)
            row = await (await connection.execute(_LOOK)).fetchone()
            assert row is not None
            rate = (now.count - before.count) / max(now.last - before.last, EVERY_SECONDS / 10)
            found.append(Sample(rate, *row))
            before = now
    return found


@contextlib.asynccontextmanager
async def pinned() -> AsyncIterator[None]:
    """Have a transaction open that may still want to see what there was when it began."""
    async with await psycopg.AsyncConnection.connect(url()) as connection:
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await connection.execute("SELECT count(*) FROM holdfast.policies")
        yield
        await connection.rollback()


def _rate(samples: Sequence[Sample]) -> float:
    return statistics.median(sample.per_second for sample in samples[-LAST:])


async def measure(root: Path, seconds: str, pin_seconds: str) -> dict[str, float]:
    """Measure without and with the forgotten transaction."""
    await SIDE.open()
    try:
        async with working(SIDE, root) as [worker], feeding(worker):
            await worker.some(BULK)
            free = await look(worker, float(seconds))
            async with pinned():
                held = await look(worker, float(pin_seconds))
    finally:
        await SIDE.close()
    third = free[len(free) // 3]
    return {
        "steady_seconds": float(seconds),
        "steady_per_second": _rate(free),
        "pinned_seconds": float(pin_seconds),
        "pinned_per_second": _rate(held),
        "dead_rows_most": max(sample.dead_rows for sample in free),
        "dead_rows_last": free[-1].dead_rows,
        "dead_rows_pinned": held[-1].dead_rows,
        "vacuums": free[-1].vacuums,
        "table_mib_third": third.table_bytes / 2**20,
        "table_mib_last": free[-1].table_bytes / 2**20,
        "table_mib_pinned": held[-1].table_bytes / 2**20,
    }


if __name__ == "__main__":
    answer(measure)
