"""Connections come back, whatever becomes of who had them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.engines.postgres.connection.pipeline import BoundStatement
from holdfast.engines.postgres.connection.pool import ConnectionPool
from holdfast.engines.postgres.connection.statements import NumberedStatement
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.model.errors import EngineClosed, Unavailable

ONE = [BoundStatement(NumberedStatement(b"SELECT 1", ()), {}, b"one")]
MOST = 2


@contextlib.asynccontextmanager
async def lending(server: Any) -> AsyncIterator[ConnectionPool]:
    with server.fresh() as url:
        connections = ConnectionPool(
            url, PostgresOptions(max_connections=MOST, patience_seconds=1.0)
        )
        await connections.open({"autocommit": True})
        try:
            yield connections
        finally:
            await connections.close()


async def test_the_one_that_was_used_last_is_lent_again(server18):
    async with lending(server18) as connections:
        await connections.give_back(await connections.take())
        first = await connections.take()
        await connections.give_back(first)
        assert await connections.take() is first
        await connections.give_back(first)


async def test_whoever_waits_gets_it_before_it_is_kept(server18):
    async with lending(server18) as connections:
        lent = [await connections.take() for _number in range(MOST)]
        waiting = asyncio.ensure_future(connections.take())
        await asyncio.sleep(0)
        assert not waiting.done()
        await connections.give_back(lent[0])
        assert await waiting is lent[0]
        for connection in lent:
            await connections.give_back(connection)


async def test_no_more_are_lent_than_there_may_be(server18):
    async with lending(server18) as connections:
        lent = [await connections.take() for _number in range(MOST)]
        with pytest.raises(Unavailable, match="no connection within 1 s"):
            await connections.take()
        for connection in lent:
            await connections.give_back(connection)


@pytest.mark.parametrize("state", ["in a transaction", "closed", "in the middle of something"])
async def test_one_that_comes_back_in_a_bad_state_is_lent_to_nobody(server18, state):
    async with lending(server18) as connections:
        for _time in range(2 * MOST):
            connection = await connections.take()
            assert await connection.execute_batch(ONE, 60.0) == [[(1,)]]
            if state == "in a transaction":
                await connection.execute("BEGIN")
            elif state == "closed":
                await connection.close()
            else:
                connection.pgconn.send_query_params(b"SELECT 1", None)
            await connections.give_back(connection)


async def test_one_that_is_given_back_by_somebody_cancelled_is_not_missing(server18):
    async with lending(server18) as connections:
        pool = connections._opened()
        for _time in range(2 * MOST):
            connections._keep_until = 0.0  # not beside the pool
            connection = await connections.take()
            async with pool._lock:
                giving = asyncio.ensure_future(connections.give_back(connection))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                assert not giving.done()
                giving.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await giving
        lent = [await connections.take() for _number in range(MOST)]
        for connection in lent:
            await connections.give_back(connection)


async def test_after_the_end_nothing_is_lent_and_what_comes_back_is_closed(server18):
    async with lending(server18) as connections:
        await connections.give_back(await connections.take())
        at_hand, lent = await connections.take(), await connections.take()
        await connections.give_back(at_hand)
        await connections.close()
        assert at_hand.closed
        with pytest.raises(EngineClosed):
            await connections.take()
        await connections.give_back(lent)
        assert lent.closed
