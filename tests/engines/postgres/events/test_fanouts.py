"""Subscribing while transactions are open: no event is lost, and the end of them is known."""

import psycopg
import pytest

from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.model.event_search import EventFilter
from holdfast.model.subscription import Subscription

from .appending import append, new_event, subscribe

LEVELS = pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])


async def without_jobs(engine: PostgresEngine, subscription: Subscription) -> list[str]:
    """Return the events that a fill for this subscription has to take."""
    wanted = EventFilter(fanout_before=subscription.since_version)
    return [event.id for event in (await engine.find_events(wanted)).events]


async def with_jobs(engine: PostgresEngine, subscription: Subscription) -> list[str]:
    """Return the events that have a job of this subscription."""
    jobs = (await engine.find()).jobs
    return [job.id.split(":")[1] for job in jobs if job.queue == subscription.queue]


@LEVELS
async def test_an_event_of_an_open_transaction_has_a_job_or_is_filled(opened, url, level):
    async with opened() as engine:
        with psycopg.connect(url) as before, psycopg.connect(url) as between:
            before.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
            [first] = append(before, new_event("a"))
            # It has a snapshot, and no transaction id yet.
            between.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            between.execute("SELECT 1")
            made = await subscribe(engine)
            [second] = append(between, new_event("b"))
            [third] = await engine.append([new_event("c")])
            assert await engine.open_fanouts(made.since_version)
        assert await engine.open_fanouts(made.since_version) == []
        assert set(await without_jobs(engine, made)) == {first.id, second.id}
        assert await with_jobs(engine, made) == [third.id]
        assert (await engine.missing_jobs()).missing == []


async def test_control_without_the_version_an_open_event_is_lost(opened, url):
    """A fill of what was there at the time of the subscription, and jobs from then on."""
    async with opened() as engine:
        [known] = await engine.append([new_event("k")])
        with psycopg.connect(url) as connection:
            [open_event] = append(connection, new_event("a"))
            made = await subscribe(engine)
            filled = {event.id for event in (await engine.find_events()).events}
        seen = filled | set(await with_jobs(engine, made))
        assert known.id in seen
        assert open_event.id not in seen


def describe(sentences: list[str]) -> str:
    return "; ".join(sentences)


async def test_a_transaction_that_has_appended_is_waited_for(opened, url):
    async with opened() as engine:
        with psycopg.connect(url, application_name="shop") as connection:
            append(connection, new_event("a"))
            made = await subscribe(engine)
            said = describe(await engine.open_fanouts(made.since_version))
            assert f"process {connection.info.backend_pid} (shop) has a transaction" in said
        assert await engine.open_fanouts(made.since_version) == []


async def test_a_snapshot_without_a_transaction_id_is_waited_for(opened, url):
    """What it appends later has an id that is higher than that of the subscription."""
    async with opened() as engine:
        with psycopg.connect(url, application_name="shop") as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.execute("SELECT 1")
            made = await subscribe(engine)
            said = describe(await engine.open_fanouts(made.since_version))
            assert f"process {connection.info.backend_pid} (shop) has a snapshot" in said
            append(connection, new_event("a"))
            assert await engine.open_fanouts(made.since_version)
        assert await engine.open_fanouts(made.since_version) == []
        assert len(await without_jobs(engine, made)) == 1


async def test_a_transaction_that_got_its_id_after_the_first_look_is_waited_for(opened, url):
    """Its snapshot is gone when the statement ends: only its id tells that it is old."""
    async with opened() as engine:
        with psycopg.connect(url) as connection:
            connection.execute("BEGIN")
            connection.execute("DECLARE c CURSOR FOR SELECT 1")  # keeps its snapshot
            made = await subscribe(engine)
            assert await engine.open_fanouts(made.since_version)
            append(connection, new_event("a"))  # reads the new version, and has a late id
            connection.execute("CLOSE c")
            assert await engine.open_fanouts(made.since_version)
        assert await engine.open_fanouts(made.since_version) == []


async def test_a_prepared_transaction_is_waited_for(opened, url):
    async with opened() as engine:
        with psycopg.connect(url, autocommit=True) as connection:
            if connection.execute("SHOW max_prepared_transactions").fetchone() == ("0",):
                pytest.skip("the server prepares no transactions")
            connection.execute("BEGIN")
            append(connection, new_event("a"))
            connection.execute("PREPARE TRANSACTION 'later'")
            made = await subscribe(engine)
            said = describe(await engine.open_fanouts(made.since_version))
            assert "transaction 'later' is prepared" in said
            await engine.append([new_event("b")])  # and blocks no other key meanwhile
            connection.execute("COMMIT PREPARED 'later'")
        assert await engine.open_fanouts(made.since_version) == []
        assert len(await without_jobs(engine, made)) == 1


async def test_transactions_of_other_databases_are_not_waited_for(opened, server18):
    async with opened() as engine:
        with server18.fresh() as elsewhere, psycopg.connect(elsewhere) as connection:
            connection.execute("CREATE TABLE other (one int)")  # has an id, and a snapshot
            connection.execute("DECLARE c CURSOR FOR SELECT 1")
            made = await subscribe(engine)
            assert await engine.open_fanouts(made.since_version) == []


async def test_transactions_after_the_first_look_are_not_waited_for(opened, url):
    async with opened() as engine:
        with psycopg.connect(url) as old, psycopg.connect(url) as later:
            append(old, new_event("a"))
            made = await subscribe(engine)
            assert await engine.open_fanouts(made.since_version)
            append(later, new_event("b"))
            old.commit()
            assert await engine.open_fanouts(made.since_version) == []
        assert await engine.open_fanouts(made.since_version + 1) == []
