"""The registry on PostgreSQL: a renewal that crosses with an entry of the same name."""

from __future__ import annotations

import psycopg
import pytest

from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.model.errors import WorkerIdInUse
from holdfast.testing import VirtualClock
from holdfast.testing.conformance.fleet import TTL_SECONDS, worker_process


@pytest.mark.parametrize("late", ["life-1", "life-2"])
@pytest.mark.parametrize("first", ["life-1", "life-2"])
async def test_of_two_that_are_live_under_one_name_one_stays(server18, late, first):
    """Whichever was late, and whichever announces itself first: one is refused, not both."""
    clock = VirtualClock()
    [entering] = {"life-1", "life-2"} - {late}
    [second] = {"life-1", "life-2"} - {first}
    with server18.fresh() as url:
        engine = await PostgresEngine.open(url, clock=clock)
        try:
            await engine.announce(worker_process(late), ttl_seconds=TTL_SECONDS)
            clock.advance(TTL_SECONDS)
            await engine.announce(worker_process(entering), ttl_seconds=TTL_SECONDS)
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(  # a renewal that began before the entry does this after it
                    "UPDATE holdfast.workers SET live_until_us = %s WHERE id = %s",
                    [clock.now_us() + 4_000_000, late],
                )
            assert len(await engine.workers()) == 2
            refused = set()
            for _beat in range(6):
                clock.advance(1)
                for life in (first, second):
                    try:
                        await engine.announce(worker_process(life), ttl_seconds=TTL_SECONDS)
                    except WorkerIdInUse:
                        refused.add(life)
            assert len(refused) == 1
            assert refused.isdisjoint(entry.process.id for entry in await engine.workers())
        finally:
            await engine.close()
