"""What is said arrives, what is answered comes back, and after a failure the line is as it was."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any
from unittest.mock import AsyncMock

import psycopg
import pytest
import uvloop
from psycopg import errors
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.waiting import Ready

from holdfast.engines.postgres.connection import pipeline as module
from holdfast.engines.postgres.connection.pipeline import BoundStatement, PipelineConnection
from holdfast.engines.postgres.connection.sansio import Row
from holdfast.engines.postgres.connection.statements import NumberedStatement, numbered, statement
from holdfast.model.job import State
from tests.engines.postgres.jobs.test_notifier import until


@contextlib.asynccontextmanager
async def connected(server: Any, **settings: Any) -> AsyncIterator[PipelineConnection]:
    with server.fresh() as url:
        wire = await PipelineConnection.connect(
            url, autocommit=True, client_encoding="UTF8", **settings
        )
        async with wire:
            yield wire


def bound(text: str, name: str | None = None, **parameters: object) -> BoundStatement:
    return BoundStatement(
        NumberedStatement(text.encode(), tuple(parameters)),
        parameters,
        None if name is None else name.encode(),
    )


async def send(wire: PipelineConnection, *statements: BoundStatement) -> list[list[Row]]:
    return await wire.execute_batch(list(statements), 60.0)


def is_idle(wire: PipelineConnection) -> bool:
    return (
        wire.pgconn.transaction_status == TransactionStatus.IDLE
        and wire.pgconn.pipeline_status == PipelineStatus.OFF
    )


@pytest.mark.parametrize(
    ("kind", "value", "comes"),
    [
        ("text", 'm\u00fc\n"', 'm\u00fc\n"'),
        ("text", "", ""),
        ("bytea", b"\0\xff", b"\0\xff"),
        ("bytea", b"", b""),
        ("bigint", -(2**63), -(2**63)),
        ("text", State.PENDING, "pending"),
        ("boolean", True, True),
        ("boolean", False, False),
        ("float8", 0.1, 0.1),
        ("float8", float("inf"), float("inf")),
        ("text", None, None),
    ],
)
async def test_a_value_arrives(server18, kind, value, comes):
    async with connected(server18) as wire:
        assert await send(wire, bound(f"SELECT $1::{kind}", v=value)) == [[(comes,)]]


async def test_several_are_told_together_and_are_one_transaction(server18):
    async with connected(server18) as wire:
        await send(wire, bound("CREATE TABLE t (n int PRIMARY KEY)"))
        put = bound("INSERT INTO t VALUES ($1::int)", "put", n=1)
        assert await send(wire, put, bound("SELECT n FROM t", "all")) == [[], [(1,)]]
        other = bound("INSERT INTO t VALUES ($1::int)", "put", n=2)
        with pytest.raises(errors.UniqueViolation):
            await send(wire, other, put, bound("SELECT 1"))
        assert is_idle(wire)
        assert await send(wire, bound("SELECT n FROM t", "all")) == [[(1,)]]


async def test_a_statement_is_prepared_once(server18):
    async with connected(server18) as wire:
        await send(wire, bound("SELECT 1", "one"), bound("SELECT 2", "two"))
        await send(wire, bound("SELECT 1", "one"))
        await send(wire, bound("SELECT 3"))
        listed = "SELECT name FROM pg_prepared_statements ORDER BY name"
        assert await send(wire, bound(listed)) == [[("one",), ("two",)]]


async def test_what_failed_to_be_prepared_is_prepared_the_next_time(server18):
    async with connected(server18) as wire:
        first, second = bound("SELECT n FROM later", "all"), bound("SELECT 2", "two")
        with pytest.raises(errors.UndefinedTable):
            await send(wire, first, second)
        await send(wire, bound("CREATE TABLE later AS SELECT 1 AS n"))
        assert await send(wire, first, second) == [[(1,)], [(2,)]]


async def test_behind_a_pooler_nothing_is_prepared(server18):
    async with connected(server18, prepare_threshold=None) as wire:
        for _time in range(2):
            assert await send(wire, bound("SELECT 1", "one")) == [[(1,)]]
        assert await send(wire, bound("SELECT name FROM pg_prepared_statements")) == [[]]


@pytest.mark.parametrize(
    ("bad", "error"), [("a\0b", psycopg.DataError), ({"a": 1}, TypeError), ({1}, TypeError)]
)
async def test_what_cannot_be_said_is_refused_and_nothing_is_sent(server18, bad, error):
    async with connected(server18) as wire:
        await send(wire, bound("CREATE TABLE t (v text)"))
        good = bound("INSERT INTO t VALUES ($1::text)", v="good")
        with pytest.raises(error):
            await send(wire, good, bound("INSERT INTO t VALUES ($1::text)", v=bad))
        assert is_idle(wire)
        assert await send(wire, bound("SELECT v FROM t")) == [[]]


async def test_much_is_sent_while_much_is_answered(server18):
    """More than the buffers between hold, in both directions at once."""

    async with connected(server18) as wire:
        echo = [bound("SELECT $1::bytea", "echo", v=bytes(1_000_000)) for _ in range(30)]
        replies = await send(wire, *echo)
        assert [len(rows[0][0]) for rows in replies] == [1_000_000] * 30


async def test_a_cancelled_call_leaves_the_line_as_it_was(server18):
    async with connected(server18) as wire, connected(server18) as other:
        pid = wire.info.backend_pid
        task = asyncio.ensure_future(send(wire, bound("SELECT pg_sleep(600)", "sleep")))
        while not await _is_active(other, pid):
            pass
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert is_idle(wire)
        assert await send(wire, bound("SELECT 1")) == [[(1,)]]


@pytest.mark.parametrize("end", ["cancelled", "too late"])
async def test_a_statement_whose_first_use_was_given_up_is_used_again(server18, end):
    async with connected(server18) as wire, connected(server18) as other:
        sleep = bound("SELECT pg_sleep($1::float8)", "sleep", seconds=600.0)
        task = asyncio.ensure_future(
            wire.execute_batch([sleep], 0.2 if end == "too late" else 60.0)
        )
        while not await _is_active(other, wire.info.backend_pid):
            pass
        if end == "cancelled":
            task.cancel()
        with pytest.raises((asyncio.CancelledError, TimeoutError)):
            await task
        for _time in range(2):
            await send(wire, bound("SELECT pg_sleep($1::float8)", "sleep", seconds=0.0))


async def test_whoever_is_cancelled_when_the_answer_has_come_ends_no_other_statement(server18):
    async with connected(server18) as wire:
        wire.cancel_safe = AsyncMock()  # type: ignore[method-assign]
        await send(wire, bound("SELECT 1", "one"))
        task = asyncio.ensure_future(send(wire, bound("SELECT 2", "two")))
        await asyncio.sleep(0)
        assert wire._reply is not None
        answered = asyncio.get_running_loop().create_future()
        advance = wire._advance

        def cancelling(ready: Ready | None) -> None:
            advance(ready)
            if wire._reply is None:
                task.cancel()
                answered.set_result(None)

        wire._unwatch()
        wire._watched = wire.pgconn.socket
        asyncio.get_running_loop().add_reader(wire._watched, cancelling, Ready.R)
        await answered
        with pytest.raises(asyncio.CancelledError):
            await task
        wire.cancel_safe.assert_not_awaited()
        assert is_idle(wire)
        assert await send(wire, bound("SELECT 2", "two")) == [[(2,)]]


async def test_a_call_whose_connection_is_closed_by_us_ends(server18):
    async with connected(server18) as wire:
        task = asyncio.ensure_future(wire.execute_batch([bound("SELECT pg_sleep(600)")], 3_600.0))
        await asyncio.sleep(0)
        await wire.close()
        with pytest.raises(psycopg.OperationalError):
            await task


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("size", [100, 20_000, 5_000_000])
def test_a_connection_that_ends_before_all_was_read_is_told_of_at_once(server18, loop, size):
    """Also by an event loop that tells of it once."""

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, what: said.append(what))
        async with connected(server18) as wire, connected(server18) as other:
            pid = wire.info.backend_pid
            late = bound("SELECT length($1::bytea)", v=bytes(size))
            sleep = bound("SELECT pg_sleep(600)")
            task = asyncio.ensure_future(wire.execute_batch([sleep, late], 3_600.0))
            while not await _is_active(other, pid):
                pass
            await send(other, bound("SELECT pg_terminate_backend($1::int)", pid=pid))
            with pytest.raises(psycopg.OperationalError):
                await task
            assert wire.closed

    said: list[object] = []
    (uvloop.run if loop == "uvloop" else asyncio.run)(run())
    assert said == []


async def test_what_the_server_says_at_the_end_is_told(server18):
    async with connected(server18) as wire:
        with pytest.raises(errors.AdminShutdown):
            await send(wire, bound("SELECT pg_terminate_backend(pg_backend_pid())"))


async def test_a_call_that_takes_too_long_is_given_up(server18):
    async with connected(server18) as wire:
        with pytest.raises(TimeoutError):
            await wire.execute_batch([bound("SELECT pg_sleep(600)")], 0.1)
        assert is_idle(wire)
        assert await send(wire, bound("SELECT 1")) == [[(1,)]]


async def test_a_server_that_does_not_even_end_it_is_hung_up_on(server18, monkeypatch):
    monkeypatch.setattr(module, "_CANCEL_SECONDS", 0.1)
    async with connected(server18) as wire:
        monkeypatch.setattr(wire, "cancel_safe", AsyncMock())
        with pytest.raises(TimeoutError):
            await wire.execute_batch([bound("SELECT pg_sleep(600)")], 0.1)
        assert wire.closed


async def test_the_driver_may_use_the_connection_in_between(server18):
    async with connected(server18) as wire:
        for _time in range(3):
            assert await send(wire, bound("SELECT 1")) == [[(1,)]]
            cursor = await wire.execute("SELECT 2")
            assert await cursor.fetchall() == [(2,)]


async def test_what_comes_unasked_for_does_no_harm(server18):
    async with connected(server18) as wire:
        await send(wire, bound("LISTEN gossip"))
        await send(wire, bound("SELECT pg_notify('gossip', 'hear')"))
        async with await psycopg.AsyncConnection.connect(
            wire.info.dsn, password="", autocommit=True
        ) as other:
            await other.execute("NOTIFY gossip")
        await until(lambda: wire._watched is None)
        assert await send(wire, bound("SELECT 1")) == [[(1,)]]


async def test_the_numbers_of_sockets_that_were_closed_are_used_again(server18):
    """The event loop must have forgotten the one when the other comes."""

    with server18.fresh() as url:
        numbers = set()
        for end in ("close", "terminate") * 5:
            wire = await PipelineConnection.connect(url, autocommit=True)
            numbers.add(wire.pgconn.socket)
            assert await send(wire, bound("SELECT 1")) == [[(1,)]]
            if end == "terminate":
                with pytest.raises(psycopg.OperationalError):
                    await send(wire, bound("SELECT pg_terminate_backend(pg_backend_pid())"))
            else:
                await wire.close()
        assert len(numbers) < 5


async def _is_active(wire: PipelineConnection, pid: int) -> bool:
    look = "SELECT state = 'active' AND query LIKE '%sleep%' FROM pg_stat_activity WHERE pid = $1"
    [[(active,)]] = await send(wire, bound(look, pid=pid))
    return bool(active)


async def test_a_connection_that_ends_is_told_of(server18):
    async with connected(server18) as wire:
        with pytest.raises(psycopg.OperationalError):
            await send(
                wire,
                bound("SELECT pg_terminate_backend(pg_backend_pid())"),
                bound("SELECT 1"),
                bound("SELECT 2"),
            )
        assert wire.closed
        with pytest.raises(psycopg.OperationalError):
            await send(wire, bound("SELECT 1"))


def test_parameters_are_numbered_in_the_order_in_which_they_come():
    text, names = numbered("enqueue", "shop")
    assert b"%(" not in text
    assert b'"shop".jobs' in text
    assert [f"%({name})s" in statement("enqueue").decode() for name in names] == [True] * len(names)
    assert text.index(b"$1") < text.index(b"$2") < text.index(b"$3")


def test_a_per_cent_sign_is_one():
    assert b"format('job %s of tenant" in numbered("find_problems").text


async def test_time_that_making_takes_is_not_the_servers(server18):
    async with connected(server18) as wire:
        loop = asyncio.get_running_loop()
        real, passed = loop.time, [0.0]
        loop.time = lambda: real() + passed[0]  # type: ignore[method-assign]

        def slowly() -> Iterator[BoundStatement]:
            passed[0] += 100.0
            yield bound("SELECT 1 FROM pg_sleep(0.3)")  # is looked at meanwhile

        assert await wire.execute_batch(slowly(), 60.0) == [[(1,)]]
