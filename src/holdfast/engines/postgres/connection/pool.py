"""The connections that calls share: a pool, and beside it the one that was used last."""

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
"""How long a connection is passed on past the pool, which replaces those that are old."""


class ConnectionPool:
    """Lends connections, each to one call at a time."""

    def __init__(self, url: str, options: PostgresOptions) -> None:
        self._url = url
        self._patience_seconds = options.patience_seconds
        self._most = options.max_connections
        self._pool: AsyncConnectionPool[PipelineConnection] | None = None
        self._at_hand: PipelineConnection | None = None
        self._keep_until = 0.0
        self._asking = 0
        self._returning: set[asyncio.Task[None]] = set()
        self._closed = False

    async def open(self, settings: Mapping[str, Any]) -> None:
        """Make connections with these settings as they are needed."""
        self._pool = AsyncConnectionPool(
            self._url,
            connection_class=PipelineConnection,
            kwargs=dict(settings),
            min_size=1,
            max_size=self._most,
            timeout=self._patience_seconds,
            # Then whoever asks next begins anew: pauses between tries would grow to minutes.
            reconnect_timeout=self._patience_seconds,
            open=False,
        )
        await self._pool.open()

    async def close(self) -> None:
        """Let go of every connection; of those that are lent, when they come back."""
        self._closed = True
        if self._pool is None:
            return
        connection, self._at_hand = self._at_hand, None
        if connection is not None:
            await self._return(connection)
        await self._pool.close(timeout=self._patience_seconds)

    async def take(self) -> PipelineConnection:
        """Lend one; raise ``Unavailable`` if there is none for as long as patience lasts."""
        if self._at_hand is not None:
            connection, self._at_hand = self._at_hand, None
            return connection
        pool = self._opened()
        self._asking += 1
        try:
            return await pool.getconn()
        except PoolClosed:
            raise EngineClosed("this engine was closed: open another one") from None
        except PoolTimeout as error:
            raise Unavailable(
                f"{place(self._url)} gave no connection within {self._patience_seconds:g} s: see "
                "that it is up and has connections left"
            ) from error
        finally:
            self._asking -= 1

    async def give_back(self, connection: PipelineConnection) -> None:
        """Take it back, in whatever state it is."""
        if connection.pgconn.transaction_status != TransactionStatus.IDLE:
            # Whatever it was in the middle of, nobody else must get it like this.
            await connection.close()
        elif self._at_hand is None and not (self._asking or self._closed):
            if monotonic() < self._keep_until:
                self._at_hand = connection
                return
            self._keep_until = monotonic() + _KEEP_SECONDS
        await self._return(connection)

    async def _return(self, connection: PipelineConnection) -> None:
        """Put it into the pool, even if nobody waits for that: it would be missing for ever."""
        returning = asyncio.ensure_future(self._opened().putconn(connection))
        self._returning.add(returning)
        returning.add_done_callback(self._returning.discard)
        await asyncio.shield(returning)

    def _opened(self) -> AsyncConnectionPool[PipelineConnection]:
        if self._pool is None:
            raise EngineClosed("this engine was not opened")
        return self._pool
