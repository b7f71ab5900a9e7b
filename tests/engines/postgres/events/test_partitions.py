"""Events are in a partition for each month, which are made ahead."""

from datetime import UTC, datetime

import psycopg

from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.model.ids import uuid7s
from holdfast.testing import VirtualClock

from .appending import new_event


def partition_of(url: str, event_id: str) -> str:
    with psycopg.connect(url) as connection:
        query = "SELECT tableoid::regclass::text FROM holdfast.chronicle_events WHERE event_id = %s"
        [[name]] = connection.execute(query, [event_id]).fetchall()
        return str(name).removeprefix("holdfast.")


def partitions(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        query = (
            "SELECT inhrelid::regclass::text FROM pg_inherits"
            " WHERE inhparent = 'holdfast.chronicle_events'::regclass ORDER BY 1"
        )
        return [name.removeprefix("holdfast.") for (name,) in connection.execute(query).fetchall()]


async def test_a_migration_makes_the_partitions_of_the_next_months(opened, url):
    month = datetime.now(UTC).strftime("chronicle_events_%Y%m")
    async with opened() as engine:
        [one, other] = await engine.append(
            [new_event(), new_event(event_id="f47ac10b-58cc-4372-a567-0e02b2c3d479")]
        )
    assert len(partitions(url)) == 5
    assert partition_of(url, one.id) == month
    assert partition_of(url, other.id) == "chronicle_events_rest"


async def test_prune_makes_partitions_ahead_and_leaves_what_is_in_the_rest(url):
    clock = VirtualClock()
    start_us = int(datetime(2041, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()) * 1_000_000
    clock.advance((start_us - clock.now_us()) / 1_000_000)
    engine = await PostgresEngine.open(url, clock=clock)
    try:
        [rest] = await engine.append([new_event()])
        before = partitions(url)
        await engine.prune()
        made = sorted({*partitions(url)} - {*before})
        assert made == [f"chronicle_events_2042{month:02}" for month in (1, 2, 3)]
        await engine.prune()
        clock.advance(1)
        [first] = await engine.append([new_event()])
        last_us = start_us + 1_000_000 - 1_000
        [last] = await engine.append([new_event(event_id=uuid7s(last_us, b"\xff" * 10)[0])])
    finally:
        await engine.close()
    assert partition_of(url, rest.id) == partition_of(url, last.id) == "chronicle_events_rest"
    assert partition_of(url, first.id) == "chronicle_events_204201"
