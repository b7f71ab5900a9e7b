"""Transactions in threads: a projection's code is synchronous, and may take its time.

The connections are beside those of the pool, few, and used again.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from holdfast.engines.clock import monotonic
from holdfast.engines.postgres.connection.arrays import with_arrays
from holdfast.engines.postgres.connection.conflicts import Conflicts
from holdfast.engines.postgres.connection.database import Database
from holdfast.engines.postgres.connection.sansio import Row, SansIO, StatementBatch
from holdfast.engines.postgres.connection.statements import in_schema, statement
from holdfast.engines.postgres.errors import (
    TRY_AGAIN,
    CommitUnknown,
    is_connection_lost,
    translated,
)
from holdfast.model.errors import EngineClosed

T = TypeVar("T")
MAX_SESSIONS = 4
"""How many connections read models use at most, besides those of the pool."""
_FIRST_PAUSE_SECONDS = 0.002
_MAX_PAUSE_SECONDS = 0.5


class Conflict(Exception):
    """Another transaction has changed what this one has read: it is to be tried again."""


class Session:
    """A transaction on one connection."""

    def __init__(self, connection: psycopg.Connection[Row], schema: str) -> None:
        self.connection = connection
        self._schema = schema

    def run(self, name: str, /, **parameters: object) -> list[Row]:
        """Execute a statement of ``sql/``; return its rows."""
        cursor = self.connection.execute(statement(name, self._schema), with_arrays(parameters))
        return cursor.fetchall() if cursor.description else []

    def execute(self, text: str, values: Any = None) -> psycopg.Cursor[Row]:  # noqa: ANN401
        """Execute this SQL; ``holdfast.`` stands for the schema of the engine in it."""
        return self.connection.execute(in_schema(text, self._schema).encode(), values)

    def perform(self, verb: SansIO[T]) -> T:
        """Perform a verb in this transaction; after an error there is nothing left to do in it."""
        try:
            batch = next(verb)
            while True:
                batch = verb.send(self._send(batch))
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _send(self, batch: StatementBatch) -> list[list[Row]]:
        """Send statements together; return the rows of each, or raise the first error."""
        cursors: list[psycopg.Cursor[Row]] = []
        with self.connection.pipeline():
            for name, parameters in batch.statements:
                cursor = self.connection.cursor(binary=True)
                text = statement(name, self._schema)
                # Planned once: to plan the large ones takes as long as to execute them.
                cursors.append(cursor.execute(text, with_arrays(parameters), prepare=True))
        return [cursor.fetchall() if cursor.description else [] for cursor in cursors]

    def lock(self, *names: str) -> None:
        """Hold these locks until the end of the transaction."""
        self.run("lock_keys", names=list(names))


class Sessions:
    """Runs transactions, each in a thread, with a connection that no other uses meanwhile."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._options = database.options
        self._guard = threading.Lock()
        self._idle: dict[bool, list[psycopg.Connection[Row]]] = {True: [], False: []}
        self._threads: ThreadPoolExecutor | None = None
        self._closing = threading.Event()

    async def run(
        self, work: Callable[[Session], T], *, pinned: bool = False, idempotent: bool = True
    ) -> T:
        """Run this in a transaction; again after a conflict, or when the connection was lost.

        ``pinned``: it finds few rows by indexes, as the pool's statements do. Raise
        ``CommitUnknown`` if the connection ended at the commit, unless it is ``idempotent``.
        """
        self._database.check_open()
        with self._guard:
            if self._threads is None:
                most = min(MAX_SESSIONS, self._options.max_connections)
                self._threads = ThreadPoolExecutor(most, "holdfast-read-models")
            threads = self._threads
        return await asyncio.get_running_loop().run_in_executor(
            threads, lambda: self._perform(work, pinned=pinned, idempotent=idempotent)
        )

    def close(self) -> None:
        """Close the connections; one that is in use, when it is given back."""
        self._closing.set()
        with self._guard:
            for connections in self._idle.values():
                while connections:
                    connections.pop().close()
            if self._threads is not None:
                self._threads.shutdown(wait=False, cancel_futures=True)

    def _perform(self, work: Callable[[Session], T], *, pinned: bool, idempotent: bool) -> T:
        give_up = monotonic() + self._options.patience_seconds
        pause_seconds = _FIRST_PAUSE_SECONDS
        conflicts = Conflicts(self._database.url, self._options)
        while True:
            try:
                with self._connection(pinned=pinned) as connection:
                    return self._transaction(connection, work)
            except CommitUnknown as error:
                if not idempotent:
                    raise
                cause: BaseException = error.__cause__ or error
                if monotonic() >= give_up:
                    raise self._translated(cause) from cause
            except (*TRY_AGAIN, Conflict) as error:
                conflicts.add(error)
            except (psycopg.Error, OSError) as error:
                if not is_connection_lost(error) or monotonic() >= give_up:
                    raise self._translated(error) from error
            if self._closing.wait(pause_seconds * random.uniform(0.5, 1.0)):
                raise EngineClosed("this engine was closed: open another one")
            pause_seconds = min(2 * pause_seconds, _MAX_PAUSE_SECONDS)

    def _transaction(self, connection: psycopg.Connection[Row], work: Callable[[Session], T]) -> T:
        connection.execute(b"BEGIN ISOLATION LEVEL READ COMMITTED")
        try:
            for text in self._database.local_settings:
                connection.execute(text)
            result = work(Session(connection, self._options.schema))
        except psycopg.Error:
            connection.close()  # the driver may believe that statements are prepared which are not
            raise
        except BaseException:
            with contextlib.suppress(psycopg.Error, OSError):
                connection.execute(b"ROLLBACK")
            raise
        try:
            connection.execute(b"COMMIT")
        except (psycopg.Error, OSError) as error:
            if is_connection_lost(error):
                raise CommitUnknown(error) from error
            raise
        return result

    @contextlib.contextmanager
    def _connection(self, *, pinned: bool) -> Iterator[psycopg.Connection[Row]]:
        with self._guard:
            idle = self._idle[pinned]
            connection = idle.pop() if idle else None
        if connection is None:
            settings = self._database.session_settings(pinned=pinned)
            connection = psycopg.Connection.connect(
                self._database.url, row_factory=tuple_row, **settings
            )
        try:
            yield connection
        finally:
            status = connection.pgconn.transaction_status
            with self._guard:
                keep = status == TransactionStatus.IDLE and not self._closing.is_set()
                if keep:
                    self._idle[pinned].append(connection)
            if not keep:
                connection.close()

    def _translated(self, error: BaseException) -> Exception:
        return translated(error, self._database.url, self._options.schema)
