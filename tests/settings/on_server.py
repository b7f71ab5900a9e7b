"""What settings of a server do, seen from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import psycopg

from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.engines.postgres.schema.migrate import migrate
from holdfast.model.errors import EngineClosed
from holdfast.model.job import NewJob
from holdfast.projections.chronicle import ENTRIES
from holdfast.settings import Settings
from holdfast.stores.opening import connect_for_looking, connect_postgres
from tests.engines.postgres.servers import Databases

from .observing import PATIENCE_SECONDS, settings_of, until

CALLS = 20
POLLS = 100


def schemas_with_work(server: Databases, **said: object) -> list[str]:
    """In which schemas a job is found that was enqueued with these settings."""

    async def put(url: str) -> None:
        engine = await connect_postgres(settings_of(store=url, **said))
        await engine.enqueue([NewJob(task="t")])
        await engine.close()

    with server.fresh() as conninfo:
        url = server.store(conninfo)
        for schema in ("holdfast", "work"):
            migrate(url, schema)
        asyncio.run(put(url))
        with psycopg.connect(url) as connection:
            return [
                schema
                for schema in ("holdfast", "work")
                if connection.execute(f"SELECT count(*) FROM {schema}.jobs").fetchone() == (1,)  # noqa: S608
            ]


def schemas_with_tables(server: Databases, **said: object) -> list[str]:
    """In which schemas the table of a projection is that was made with these settings."""

    async def make(url: str) -> None:
        engine = await connect_postgres(settings_of(store=url, **said))
        await engine.read_models.create(ENTRIES, 1)
        await engine.close()

    with server.fresh() as conninfo:
        url = server.store(conninfo)
        asyncio.run(make(url))
        with psycopg.connect(url) as connection:
            found = connection.execute(
                "SELECT schemaname::text FROM pg_tables WHERE tablename = 'chronicle_entries__g1'"
            ).fetchall()
        return [schema for (schema,) in found]


def connections_at_once(server: Databases, **said: object) -> int:
    """How many connections are open when many calls wait for a lock."""

    async def look(url: str) -> int:
        engine = await connect_postgres(settings_of(store=url, **said))
        with psycopg.connect(url) as holder:
            holder.execute("LOCK holdfast.jobs")
            calls = [asyncio.ensure_future(engine.counts()) for _ in range(CALLS)]
            seen = await _steady(url)
            holder.rollback()
        await asyncio.gather(*calls)
        await engine.close()
        return seen

    with server.fresh() as conninfo:
        return asyncio.run(look(server.store(conninfo)))


async def _steady(url: str) -> int:
    """Count the calls that wait for the lock, until their number has been the same for long."""
    seen: list[int] = []

    async def look() -> bool:
        with psycopg.connect(url) as connection:
            found = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holdfast'"
                " AND wait_event_type = 'Lock' AND datname = current_database()"
            ).fetchone()
        assert found is not None
        seen.append(found[0])
        return len(seen) > CALLS and min(seen[-CALLS:]) == max(seen[-CALLS:]) > 0

    await until(look, "as many connections as there will be")
    return seen[-1]


def statement_timeout(server: Databases, **said: object) -> str:
    """After how long the server gives a statement up."""
    return _timeout_with(server, connect_postgres, said)


def looking_timeout(server: Databases, **said: object) -> str:
    """After how long the server gives a statement of a GET up."""
    return _timeout_with(server, connect_for_looking, said)


def _timeout_with(
    server: Databases,
    connect: Callable[[Settings], Awaitable[PostgresEngine]],
    said: dict[str, object],
) -> str:
    async def look(url: str) -> str:
        engine = await connect(settings_of(store=url, **said))
        connection = await engine._database.connect()
        found = await (await connection.execute("SHOW statement_timeout")).fetchone()
        await connection.close()
        await engine.close()
        assert found is not None
        return str(found[0])

    with server.fresh() as conninfo:
        return asyncio.run(look(server.store(conninfo)))


def listens(server: Databases, **said: object) -> str:
    """Where somebody listens while a claim waits: in the store's database, or another, or not."""

    async def look(url: str, other: str) -> str:
        if "listen_url" in said:
            said["listen_url"] = other
        engine = await connect_postgres(
            settings_of(store=url, poll_interval_seconds="10ms", **said)
        )
        waiting = asyncio.ensure_future(engine.claim(queues=["q"], worker="w", wait_seconds=60))
        polls_only = said.get("wake") == "poll"
        found = await _ears(url, POLLS * 0.01 if polls_only else PATIENCE_SECONDS)
        await engine.close()
        await asyncio.wait([waiting])
        assert isinstance(waiting.exception(), EngineClosed)
        return " and ".join(sorted(found)) or "nowhere"

    with server.fresh() as conninfo, server.fresh() as other:
        return asyncio.run(look(server.store(conninfo), server.store(other)))


async def _ears(url: str, patience_seconds: float) -> list[str]:
    """Look who listens, until somebody does or this time is over."""
    found: list[str] = []
    give_up = asyncio.get_running_loop().time() + patience_seconds

    async def look() -> bool:
        with psycopg.connect(url) as connection:
            rows = connection.execute(
                "SELECT CASE datname WHEN current_database() THEN 'here' ELSE 'elsewhere' END"
                " FROM pg_stat_activity"
                " WHERE query ILIKE 'LISTEN%' AND application_name = 'holdfast'"
            ).fetchall()
        found[:] = [where for (where,) in rows]
        return bool(found) or asyncio.get_running_loop().time() > give_up

    await until(look, "somebody who listens")
    return found
