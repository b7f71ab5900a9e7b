"""Stores to be dumped and loaded."""

from collections.abc import AsyncIterator, Iterable

import psycopg
from psycopg import sql

from holdfast.engines.dump.format import DumpRecord
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.testing import VirtualClock
from tests.engines.dump.test_dumps import OPTIONS, live

from .test_conformance import postgres_options


async def connected(url: str, clock: VirtualClock) -> PostgresEngine:
    return await PostgresEngine.open(url, clock=clock, options=postgres_options(OPTIONS))


async def stream(records: Iterable[DumpRecord], most: int = 7) -> AsyncIterator[list[DumpRecord]]:
    """Pass records on, a few at a time."""
    listed = list(records)
    for start in range(0, len(listed), most):
        yield listed[start : start + most]


async def filled(clock: VirtualClock) -> MemoryEngine:
    engine = MemoryEngine(clock=clock, options=OPTIONS)
    await live(engine, clock)
    return engine


def rows_in(url: str) -> dict[str, int]:
    """Return how many rows each table has."""
    tables = (
        *("jobs", "dead", "history", "attempts", "notes"),
        *("audit", "policies", "flags", "schedules", "loading"),
        *("chronicle_events", "subscriptions"),
    )
    with psycopg.connect(url) as connection:
        return {
            table: len(
                connection.execute(
                    sql.SQL("TABLE {}").format(sql.Identifier("holdfast", table))
                ).fetchall()
            )
            for table in tables
        }
