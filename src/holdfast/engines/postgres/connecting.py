"""Connections to the server, and how verbs use them: each in a transaction, again if it must be.

Nothing is left to a session: statements name their schema, locks end with their transaction. So a
pooler in transaction mode may stand in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from holdfast.engines.clock import monotonic
from holdfast.model.errors import EngineClosed, Unavailable

from .asking import Ask, Asks, Row, Verb
from .failures import TRY_AGAIN, Doubt, is_gone, place, translated
from .options import PostgresOptions
from .statements import statement

T = TypeVar("T")
_TRIES = 20
"""How often a verb begins anew because somebody else was first."""
_FIRST_PAUSE_SECONDS = 0.002
_LONGEST_PAUSE_SECONDS = 0.5
_SLACK_SECONDS = 5.0
"""How much longer than a statement may take its answer is waited for."""
_UNPREPARED = frozenset({"find", "find_newest", "groups", "held_behind", "counts"})
"""What is planned anew each time: conditions that are not asked for cost nothing then."""


class Database:
    """A server, a schema on it, and some connections."""

    def __init__(self, url: str, options: PostgresOptions) -> None:
        self.url = url
        self.options = options
        self._closed = False
        self._pool: AsyncConnectionPool[AsyncConnection[Row]] = AsyncConnectionPool(
            url,
            kwargs=self._settings(),
            min_size=1,
            max_size=options.max_connections,
            timeout=options.patience_seconds,
            # Then whoever asks next begins anew: pauses between tries would grow to minutes.
            reconnect_timeout=options.patience_seconds,
            open=False,
        )

    def _settings(self) -> dict[str, Any]:
        timeout_ms = int(self.options.statement_timeout_seconds * 1_000)
        return {
            "autocommit": True,
            "application_name": "holdfast",
            "connect_timeout": max(1, int(self.options.patience_seconds)),
            "options": f"-c statement_timeout={timeout_ms}",
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": timeout_ms,
        }

    async def open(self) -> None:
        """Connect, or raise ``Unavailable`` with what is wrong."""
        connection = await self.connect()
        await connection.close()
        await self._pool.open()

    async def connect(self) -> AsyncConnection[Row]:
        """Return a connection of one's own."""
        try:
            return await AsyncConnection.connect(self.url, **self._settings())
        except (psycopg.Error, OSError) as error:
            raise translated(error, self.url, self.options.schema) from error

    async def close(self) -> None:
        """Let go of every connection."""
        self._closed = True
        await self._pool.close(timeout=self.options.patience_seconds)

    def check_open(self) -> None:
        """Raise ``EngineClosed`` once it is closed."""
        if self._closed:
            raise EngineClosed("this engine was closed: open another one")

    async def read(self, make: Callable[[], Verb[T]]) -> T:
        """Perform a verb that changes nothing: each of its statements by itself."""
        return await self._insist(make, reading=True, harmless=True)

    async def perform(self, make: Callable[[], Verb[T]], *, harmless: bool = False) -> T:
        """Perform a verb in a transaction, from its beginning as often as it takes.

        Raise ``Doubt`` if the connection ended at a commit, unless it is ``harmless`` to do it
        twice; ``Unavailable`` when the server could not be reached for as long as patience lasts.
        """
        return await self._insist(make, reading=False, harmless=harmless)

    async def _insist(self, make: Callable[[], Verb[T]], *, reading: bool, harmless: bool) -> T:
        give_up = monotonic() + self.options.patience_seconds
        pause_seconds = _FIRST_PAUSE_SECONDS
        tries = 0
        while True:
            try:
                async with self._connection() as connection:
                    return await self._converse(connection, make(), reading=reading)
            except Doubt as doubt:
                if not harmless:
                    raise
                cause: BaseException = doubt.__cause__ or doubt
                if monotonic() >= give_up:
                    raise translated(cause, self.url, self.options.schema) from cause
            except TRY_AGAIN as error:
                tries += 1
                if tries >= _TRIES:
                    raise Unavailable(f"others were first {tries} times: try again") from error
            except (psycopg.Error, OSError, TimeoutError) as error:
                if not is_gone(error) or monotonic() >= give_up:
                    raise translated(error, self.url, self.options.schema) from error
            await asyncio.sleep(pause_seconds * random.uniform(0.5, 1.0))
            pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[AsyncConnection[Row]]:
        self.check_open()
        try:
            connection = await self._pool.getconn()
        except PoolClosed:
            raise EngineClosed("this engine was closed: open another one") from None
        except PoolTimeout as error:
            seconds = self.options.patience_seconds
            raise Unavailable(
                f"{place(self.url)} gave no connection within {seconds:g} s: see that it is up and "
                "has connections left"
            ) from error
        try:
            yield connection
        except BaseException:
            # Whatever it was in the middle of, nobody else must get it like this.
            if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                await connection.close()
            raise
        finally:
            await self._pool.putconn(connection)

    async def _converse(
        self, connection: AsyncConnection[Row], verb: Verb[T], *, reading: bool
    ) -> T:
        begun = False
        try:
            batch = next(verb)
            while True:
                begins = not (begun or batch.last or reading)
                commits = reading or batch.last
                try:
                    told = await self._tell(connection, batch, begins=begins, begun=begun)
                except BaseException as error:
                    if commits and not reading and _may_have_been_done(error):
                        raise Doubt(error) from error
                    raise
                begun = (begun or begins) and not commits
                batch = verb.send(told)
        except StopIteration as stop:
            if begun:
                await self._commit(connection)
            answer: T = stop.value
            return answer
        except BaseException:
            if begun and not connection.closed:
                with contextlib.suppress(psycopg.Error, OSError, TimeoutError):
                    async with self._in_time():
                        await connection.execute("ROLLBACK")
            raise

    async def _commit(self, connection: AsyncConnection[Row]) -> None:
        try:
            async with self._in_time():
                await connection.execute("COMMIT")
        except BaseException as error:
            if _may_have_been_done(error):
                raise Doubt(error) from error
            raise

    def _in_time(self) -> asyncio.Timeout:
        """Give up what takes longer than the server allows: the wire is dead, and nobody says so.

        By then the kernel has dropped what it could not deliver (``tcp_user_timeout``).
        """
        seconds = self.options.statement_timeout_seconds
        return asyncio.timeout(seconds + min(seconds, _SLACK_SECONDS))

    async def _tell(
        self, connection: AsyncConnection[Row], batch: Asks, *, begins: bool, begun: bool
    ) -> list[list[Row]]:
        """Send statements together; return the rows of each."""
        async with self._in_time():
            if len(batch.asks) == 1 and not begins and not (begun and batch.last):
                cursor = await self._execute(connection, batch.asks[0])
                return [await _rows(cursor)]
            async with connection.pipeline():
                if begins:
                    await connection.execute("BEGIN")
                cursors = [await self._execute(connection, ask) for ask in batch.asks]
                if begun and batch.last:
                    await connection.execute("COMMIT")
            return [await _rows(cursor) for cursor in cursors]

    async def _execute(
        self, connection: AsyncConnection[Row], ask: Ask
    ) -> psycopg.AsyncCursor[Row]:
        cursor = connection.cursor(binary=True)
        prepare = False if ask.name in _UNPREPARED else None
        await cursor.execute(
            statement(ask.name, self.options.schema), ask.parameters, prepare=prepare
        )
        return cursor


async def _rows(cursor: psycopg.AsyncCursor[Row]) -> list[Row]:
    return await cursor.fetchall() if cursor.description is not None else []


def _may_have_been_done(error: BaseException) -> bool:
    """Whether a statement that commits may have been carried out though it failed here."""
    return is_gone(error) and not isinstance(error, asyncio.CancelledError)
