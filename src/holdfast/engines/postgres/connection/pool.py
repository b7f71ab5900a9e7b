"""The connection pool, and beside it the connection that was used last."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from holdfast.engines.clock import monotonic
from holdfast.engines.postgres.errors import place
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.model.errors import EngineClosed, Unavailable

from .pipeline import PipelineConnection

_KEEP_SECONDS = 1.0
"""How long a connection may bypass the pool, which replaces old ones."""


class ConnectionPool:
    """Lends connections, each to one call at a time."""

    def __init__(self, url: str, options: PostgresOptions) -> None:
        self._url = url
        self._patience_seconds = options.patience_seconds
        self._max_connections = options.max_connections
        self._pool: AsyncConnectionPool[PipelineConnection] | None = None
        self._last_used: PipelineConnection | None = None
        self._keep_until = 0.0
        self._waiting = 0
        self._returning: set[asyncio.Task[None]] = set()
        self._closed = False

    async def open(self, settings: Mapping[str, Any]) -> None:
        """Connect with these settings when connections are needed."""
        self._pool = AsyncConnectionPool(
            self._url,
            connection_class=PipelineConnection,
            kwargs=dict(settings),
            min_size=1,
            max_size=self._max_connections,
            timeout=self._patience_seconds,
            # Then the next call starts again: pauses between tries would grow to minutes.
            reconnect_timeout=self._patience_seconds,
            open=False,
        )
        await self._pool.open()

    async def close(self) -> None:
        """Close every connection; those that are lent, when they are given back."""
        self._closed = True
        if self._pool is None:
            return
        connection, self._last_used = self._last_used, None
        if connection is not None:
            await self._return(connection)
        await self._pool.close(timeout=self._patience_seconds)

    async def take(self) -> PipelineConnection:
        """Lend a connection; raise ``Unavailable`` if there is none within ``patience_seconds``."""
        if self._last_used is not None:
            connection, self._last_used = self._last_used, None
            return connection
        pool = self._opened()
        self._waiting += 1
        try:
            return await pool.getconn()
        except PoolClosed:
            raise EngineClosed("this engine was closed: open another one") from None
        except PoolTimeout as error:
            raise Unavailable(
                f"{place(self._url)} gave no connection within {self._patience_seconds:g} s: "
                "check that it is up and has connections left"
            ) from error
        finally:
            self._waiting -= 1

    async def give_back(self, connection: PipelineConnection) -> None:
        """Take a connection back, in any state."""
        if connection.pgconn.transaction_status != TransactionStatus.IDLE:
            # It is in the middle of something: no other call may get it.
            await connection.close()
        elif self._last_used is None and not (self._waiting or self._closed):
            if monotonic() < self._keep_until:
                self._last_used = connection
                return
            self._keep_until = monotonic() + _KEEP_SECONDS
        await self._return(connection)

    async def _return(self, connection: PipelineConnection) -> None:
        """Put it into the pool, even if the caller is cancelled: it would be missing for ever."""
        returning = asyncio.ensure_future(self._opened().putconn(connection))
        self._returning.add(returning)
        returning.add_done_callback(self._returning.discard)
        await asyncio.shield(returning)

    def _opened(self) -> AsyncConnectionPool[PipelineConnection]:
        if self._pool is None:
            raise EngineClosed("this engine was not opened")
        return self._pool
