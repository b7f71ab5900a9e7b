"""Functions and operators that somebody puts in the way are never called with our rights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psycopg
import pytest

from holdfast.engines.postgres import joined_verbs
from holdfast.engines.postgres.connection import caller_transaction, database
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.model.failure import Failure
from holdfast.model.job import NewJob
from holdfast.model.outcome import completed, dead
from holdfast.testing import VirtualClock

from .roles import as_user, execute

TRAP = """
    CREATE TABLE public.sprung (who text, what text);
    GRANT INSERT ON public.sprung TO PUBLIC;
    CREATE FUNCTION public.spring(what text) RETURNS void LANGUAGE sql
        AS 'INSERT INTO public.sprung VALUES (current_user, what)';
    CREATE FUNCTION public.hashtextextended(t text, n integer) RETURNS bigint LANGUAGE sql
        AS $$ SELECT public.spring('hashtextextended');
              SELECT pg_catalog.hashtextextended(t, n::bigint) $$;
    CREATE FUNCTION public.unnest(a text[]) RETURNS SETOF text LANGUAGE sql
        AS $$ SELECT public.spring('unnest'); SELECT pg_catalog.unnest(a) $$;
    CREATE FUNCTION public.array_length(a text[], n integer) RETURNS integer LANGUAGE sql
        AS $$ SELECT public.spring('array_length'); SELECT pg_catalog.array_length(a, n) $$;
    CREATE FUNCTION public.times(a numeric, b integer) RETURNS numeric LANGUAGE sql
        AS $$ SELECT public.spring('*'); SELECT a OPERATOR(pg_catalog.*) b::numeric $$;
    CREATE OPERATOR public.* (FUNCTION = public.times, LEFTARG = numeric, RIGHTARG = integer);
    CREATE FUNCTION public.more(a numeric, b integer) RETURNS numeric LANGUAGE sql
        AS $$ SELECT public.spring('+'); SELECT a OPERATOR(pg_catalog.+) b::numeric $$;
    CREATE OPERATOR public.+ (FUNCTION = public.more, LEFTARG = numeric, RIGHTARG = integer);
"""
"""Each is a better match than PostgreSQL's own where a statement mixes types."""


@pytest.fixture
def trapped(roles18) -> Iterator[str]:
    """A database in which a stranger may create in ``public``, and has."""
    with roles18.fresh() as url:
        execute(url, "GRANT CREATE ON SCHEMA public TO stranger")
        execute(as_user(url, "stranger"), TRAP)
        yield url


def sprung(url: str) -> set[tuple[object, ...]]:
    return set(execute(url, "SELECT DISTINCT who, what FROM public.sprung"))


async def a_life(url: str) -> None:
    """Do what an application, a worker and a reader do."""
    clock = VirtualClock()
    engine = await PostgresEngine.open(url, clock=clock, options=PostgresOptions(listen=False))
    try:
        await engine.enqueue([NewJob(task="t", id=f"j{n}", key=f"k{n % 2}") for n in range(6)])
        with psycopg.connect(url) as connection:
            new = NewJob(task="t", id="joined", key="k3")
            joined_verbs.enqueue_sync(connection, [new], options=engine.options)
        held = (await engine.claim(queues=["default"], worker="w", limit=2)).jobs
        await engine.settle([completed(held[0]), dead(held[1], Failure.of("timeout", "slow"))])
        await engine.claim(queues=["default"], worker="w", limit=1)
        clock.advance(3_600)
        await engine.reclaim(every_seconds=1.0)
        await engine.prune()
        await engine.groups()
        await engine.explain([job.id for job in held])
        await engine.refresh_stats()
        assert await engine.validate() == []
    finally:
        await engine.close()
    execute(url, "SELECT * FROM holdfast.work")


async def test_control_functions_as_they_were_call_them(trapped):
    body = "LANGUAGE sql AS $$ SELECT hashtextextended('holdfast.' || what, 0) $$"
    execute(
        trapped, f"CREATE OR REPLACE FUNCTION holdfast.lock_number(what text) RETURNS bigint {body}"
    )
    execute(trapped, "ALTER FUNCTION holdfast.unpacked_number(bytea, int, int) RESET search_path")
    runner = as_user(trapped, "runner")
    execute(runner, "SELECT holdfast.lock_number('audit')")
    execute(runner, "SELECT holdfast.unpacked_number('\\x0102', 0, 2)")
    assert sprung(trapped) >= {("runner", "hashtextextended"), ("runner", "*")}


async def test_shadows_in_public_are_not_called(trapped):
    await a_life(as_user(trapped, "runner"))
    assert sprung(trapped) == set()


async def test_shadows_are_not_called_through_a_pooler_that_drops_options(trapped, monkeypatch):
    usual = database._settings
    monkeypatch.setattr(
        database, "_settings", lambda *given: {**usual(*given), "options": "-c jit=off"}
    )
    await a_life(as_user(trapped, "runner"))
    assert sprung(trapped) == set()


async def test_control_with_the_search_path_of_the_user_they_are(trapped, monkeypatch):
    path = '"$user",public'
    monkeypatch.setattr(database, "SEARCH_PATH", path)
    with contextlib.suppress(AssertionError):
        await a_life(as_user(trapped, "runner"))
    assert "runner" in {who for who, _what in sprung(trapped)}


async def test_control_in_a_transaction_of_the_caller_too(trapped, monkeypatch):
    keeps = lambda _options: [caller_transaction._BEGIN]
    monkeypatch.setattr(caller_transaction, "_beginning", keeps)
    monkeypatch.setattr(
        caller_transaction, "_ending", lambda _queues, _options: [caller_transaction._KEEP]
    )
    with psycopg.connect(as_user(trapped, "runner")) as connection:
        joined_verbs.enqueue_sync(
            connection, [NewJob(task="t", key="k")], options=PostgresOptions()
        )
    assert ("runner", "unnest") in sprung(trapped)


def test_the_caller_keeps_its_settings(trapped):
    with psycopg.connect(as_user(trapped, "runner")) as connection:
        connection.execute("SET search_path = public, holdfast")
        connection.execute("SET lock_timeout = '7s'")
        joined_verbs.enqueue_sync(
            connection, [NewJob(task="t", key="k")], options=PostgresOptions()
        )
        shown = connection.execute(
            "SELECT current_setting('search_path'), current_setting('lock_timeout')"
        ).fetchall()
        assert shown == [("public, holdfast", "7s")]
        connection.commit()
        assert connection.execute("SHOW search_path").fetchall() == [("public, holdfast",)]


def test_every_function_is_parsed_already_or_has_its_own_search_path(trapped):
    found = execute(
        trapped,
        "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace"
        " AND prosqlbody IS NULL"
        " AND NOT coalesce(proconfig, '{}') @> ARRAY['search_path=pg_catalog, pg_temp']",
    )
    assert found == []
