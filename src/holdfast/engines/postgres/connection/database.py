"""The server: runs verbs on pooled connections, each in a transaction, with retries.

No state is kept in a session: statements name their schema, and locks end with their transaction.
So a pooler in transaction mode may be in between. What a session must have (a search_path in which
nobody else can put functions or operators, a time-out of locks) comes with the connection; where a
pooler drops that, it is set in every transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import random
from collections.abc import Callable, Coroutine
from itertools import chain
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from holdfast.engines.clock import monotonic
from holdfast.engines.postgres.errors import (
    TRY_AGAIN,
    CommitUnknown,
    is_connection_lost,
    place,
    translated,
)
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.engines.postgres.schema.check import check_usable
from holdfast.model.errors import EngineClosed

from .conflicts import Conflicts
from .pipeline import BoundStatement, PipelineConnection, StatementNotBuilt
from .pool import ConnectionPool
from .sansio import Row, SansIO, Statement, StatementBatch, execute
from .statements import NumberedStatement, numbered

T = TypeVar("T")
_FIRST_PAUSE_SECONDS = 0.002
_MAX_PAUSE_SECONDS = 0.5
_SLACK_SECONDS = 5.0
"""How much longer than the statement timeout a reply is waited for."""
_IDLE_SECONDS = 10.0
"""How long a transaction may be idle, usually a round trip: its process may be stopped or gone, and
others wait for its locks."""
_SESSION_IDLE_SECONDS = 60.0
"""The same for a transaction in which a projection's code runs."""
SEARCH_PATH = "pg_catalog,pg_temp"
"""Where names without a schema are looked up: pg_temp is last, and no other schema is there."""
SET_SEARCH_PATH = b"SET LOCAL search_path = pg_catalog, pg_temp"
_LOCK_SECONDS = 5.0
"""How long a statement waits for a lock; then the transaction is tried again from its start, and
holds nothing in between. Anybody who may connect can take an advisory lock."""
_PINNED = (
    "plan_cache_mode=force_generic_plan",
    "enable_seqscan=off",
    "enable_hashjoin=off",
    "enable_mergejoin=off",
    "jit=off",
)
"""For statements that find few rows by an index: planned once, and always to use the index, even if
the table is small at that time. To plan them takes longer than to execute them."""
_CUSTOM_PLANNED = frozenset(
    {
        *("find_audit", "find_audit_newest"),
        *("find", "count_matching", "count_held_behind", "count_jobs"),
        *("group_dead", "group_dead_by_hour", "group_tallies", "group_tallies_by_hour"),
        *("read_queue_stats", "find_problems", "find_wrong_tallies"),
        *("change_lines", "find_old_days"),
        *("read_schema_state", "find_missing_rights", "find_roles_with", "read_server_settings"),
        "read_access",
        *("forget_attempts", "forget_notes", "forget_undated_history", "forget_listeners"),
        "forget_expired",
        *("find_events", "count_events", "find_missing_jobs"),
        *("measure_history", "count_history_blocks", "forget_history_blocks"),
    }
)
"""Planned at each call, for its parameters: conditions that are not used cost nothing then."""

_BEGIN, _COMMIT, _ROLLBACK = (
    BoundStatement(NumberedStatement(text, ()), {}, text)
    for text in (b"BEGIN ISOLATION LEVEL READ COMMITTED", b"COMMIT", b"ROLLBACK")
)
_IN_TRANSACTION = (TransactionStatus.INTRANS, TransactionStatus.INERROR)


class Database:
    """A server, a schema on it, and some connections."""

    def __init__(self, url: str, options: PostgresOptions) -> None:
        self.url = url
        self.options = options
        self._closed = False
        self.may_write = True
        """Whether the user has the rights to change something, as far as is known."""
        self.unencrypted_host = ""
        """The host that is reached over a network without TLS; empty if none is."""
        self._settings = _settings(url, options)
        # Longer than the server allows: then the connection is dead without notice. By then the
        # kernel has dropped what it could not deliver (``tcp_user_timeout``).
        statement_seconds = options.statement_timeout_seconds
        self._timeout_seconds = statement_seconds + min(statement_seconds, _SLACK_SECONDS)
        self._connections = ConnectionPool(url, options)

    async def open(self, *, reading: bool = False) -> None:
        """Connect, or raise ``Unavailable`` with what is wrong with the server or the schema.

        ``reading``: the user need not have the right to change anything.
        """
        schema = self.options.schema
        connection = await self.connect()
        if not (connection.pgconn.ssl_in_use or _is_local(connection.info.hostaddr)):
            self.unencrypted_host = connection.info.host
        try:
            usable = check_usable(schema, place(self.url), reading=reading)
            self.may_write = await self._run(connection, usable, reading=True)
            [[path]] = await self._run(connection, execute("show_search_path"), reading=True)
            if "options" in self._settings and path.replace(" ", "") != SEARCH_PATH:
                del self._settings["options"]  # a pooler ignores them
        except (psycopg.Error, OSError, TimeoutError) as error:
            raise translated(error, self.url, schema) from error
        finally:
            await connection.close()
        await self._connections.open(self._pinned(dict(self._settings)))

    @property
    def local_settings(self) -> list[bytes]:
        """The SQL that sets in a transaction what did not come with the connection."""
        if "options" in self._settings:
            return []
        timeout_ms = lock_timeout_ms(self.options)
        return [SET_SEARCH_PATH, f"SET LOCAL lock_timeout = {timeout_ms}".encode()]

    def session_settings(self, *, pinned: bool) -> dict[str, Any]:
        """Return the settings of a synchronous connection; ``pinned``: to find rows by indexes."""
        settings = dict(self._settings)
        if "options" in settings:
            idle_ms = int(_SESSION_IDLE_SECONDS * 1_000)
            settings["options"] += f" -c idle_in_transaction_session_timeout={idle_ms}"
        return self._pinned(settings) if pinned else settings

    def _pinned(self, settings: dict[str, Any]) -> dict[str, Any]:
        if "options" in settings:
            settings["options"] += "".join(f" -c {pin}" for pin in _PINNED)
        return settings

    async def connect(self, url: str | None = None) -> PipelineConnection:
        """Return a new connection outside the pool, to ``url`` if it is given."""
        url = url or self.url
        while True:
            try:
                return await PipelineConnection.connect(url, **self._settings)
            except (psycopg.Error, OSError) as error:
                if "startup parameter" not in str(error) or "options" not in self._settings:
                    raise translated(error, url, self.options.schema) from error
            # A pooler without support for options, and maybe for prepared statements: use neither.
            del self._settings["options"]
            self._settings["prepare_threshold"] = None

    def refuse_calls(self) -> None:
        """Accept no more calls."""
        self._closed = True

    async def close(self) -> None:
        """Close every connection."""
        self.refuse_calls()
        await self._connections.close()

    def check_open(self) -> None:
        """Raise ``EngineClosed`` once it is closed."""
        if self._closed:
            raise EngineClosed("this engine was closed: open another one")

    def read(self, make: Callable[[], SansIO[T]]) -> Coroutine[object, object, T]:
        """Perform a verb that changes nothing: each of its statements by itself."""
        return self._perform(make, reading=True, idempotent=True)

    def perform(
        self, make: Callable[[], SansIO[T]], *, idempotent: bool = False
    ) -> Coroutine[object, object, T]:
        """Perform a verb in a transaction; repeat it from its start after a conflict.

        Raise ``CommitUnknown`` if the connection ended at a commit, unless it is ``idempotent``:
        then it is repeated. Raise ``Unavailable`` if the server could not be reached in time.
        """
        return self._perform(make, reading=False, idempotent=idempotent)

    async def _perform(
        self, make: Callable[[], SansIO[T]], *, reading: bool, idempotent: bool
    ) -> T:
        self.check_open()
        give_up = monotonic() + self.options.patience_seconds
        pause_seconds = _FIRST_PAUSE_SECONDS
        conflicts = Conflicts(self.url, self.options)
        cancellations = _cancellations()
        while True:
            try:
                connection = await self._connections.take()
                try:
                    if _cancellations() > cancellations:
                        # Cancelled just when it got a connection: the pool swallows that.
                        raise asyncio.CancelledError
                    return await self._run(connection, make(), reading=reading)
                finally:
                    await self._connections.give_back(connection)
            except StatementNotBuilt as error:
                raise error.cause from error.cause.__cause__
            except CommitUnknown as error:
                if not idempotent:
                    raise
                cause: BaseException = error.__cause__ or error
                if monotonic() >= give_up:
                    raise translated(cause, self.url, self.options.schema) from cause
            except TRY_AGAIN as error:
                conflicts.add(error)
            except (psycopg.Error, OSError, TimeoutError) as error:
                if not is_connection_lost(error) or monotonic() >= give_up:
                    raise translated(error, self.url, self.options.schema) from error
                if _cancellations() > cancellations:
                    # Cancelled just when the connection was lost: the driver swallows that.
                    raise asyncio.CancelledError from error
            await asyncio.sleep(pause_seconds * random.uniform(0.5, 1.0))
            pause_seconds = min(2 * pause_seconds, _MAX_PAUSE_SECONDS)

    async def _run(self, connection: PipelineConnection, verb: SansIO[T], *, reading: bool) -> T:
        """Drive a verb to its end, in a transaction unless it is ``reading``."""
        begun = False
        try:
            batch = next(verb)
            while True:
                begins = not (begun or batch.last or reading)
                commits = reading or batch.last
                try:
                    rows = await self._send(connection, batch, begins=begins, begun=begun)
                except BaseException as error:
                    if commits and not reading and _may_have_committed(error):
                        raise CommitUnknown(error) from error
                    raise
                begun = (begun or begins) and not commits
                batch = verb.send(rows)
        except StopIteration as stop:
            if begun:
                await self._commit(connection)
            result: T = stop.value
            return result
        except BaseException:
            if connection.info.transaction_status in _IN_TRANSACTION:
                with contextlib.suppress(psycopg.Error, OSError, TimeoutError):
                    await connection.execute_batch([_ROLLBACK], self._timeout_seconds)
            raise

    async def _commit(self, connection: PipelineConnection) -> None:
        try:
            await connection.execute_batch([_COMMIT], self._timeout_seconds)
        except BaseException as error:
            if _may_have_committed(error):
                raise CommitUnknown(error) from error
            raise

    async def _send(
        self, connection: PipelineConnection, batch: StatementBatch, *, begins: bool, begun: bool
    ) -> list[list[Row]]:
        """Send statements together; return the rows of each."""
        statements = batch.statements
        streamed = not isinstance(statements, list | tuple)
        replans = not streamed and any(map(_is_custom_planned, statements))
        local = [] if begun else self.local_settings
        alone = bool(replans or local) and not begun and not begins
        before = [_BEGIN] if begins or alone else []
        before += [BoundStatement(NumberedStatement(text, ()), {}) for text in local]
        if replans:
            before.append(self._bind(Statement("use_custom_plans", {})))
        after = [_COMMIT] if (begun and batch.last) or alone else []
        bound = map(self._bind, statements)
        rows = await connection.execute_batch(
            chain(before, bound, after) if streamed else [*before, *bound, *after],
            self._timeout_seconds,
        )
        return rows[len(before) : len(rows) - len(after)]

    def _bind(self, statement: Statement) -> BoundStatement:
        name = None if _is_custom_planned(statement) else statement.name.encode()
        text = numbered(statement.name, self.options.schema)
        return BoundStatement(text, statement.parameters, name)


def _is_custom_planned(statement: Statement) -> bool:
    return statement.name.partition(" ")[0] in _CUSTOM_PLANNED


def _settings(url: str, options: PostgresOptions) -> dict[str, Any]:
    timeout_ms = int(options.statement_timeout_seconds * 1_000)
    idle_ms = min(timeout_ms, int(_IDLE_SECONDS * 1_000))
    given = conninfo_to_dict(url).get("options") or ""
    return {
        "autocommit": True,
        "client_encoding": "UTF8",  # of binary arrays too
        "application_name": "holdfast",
        "connect_timeout": max(1, int(options.patience_seconds)),
        "options": (
            f"-c lock_timeout={lock_timeout_ms(options)} {given} -c statement_timeout={timeout_ms}"
            f" -c idle_in_transaction_session_timeout={idle_ms} -c search_path={SEARCH_PATH}"
        ).strip(),
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": timeout_ms,
    }


def _is_local(address: str) -> bool:
    """Whether this address, empty for a Unix socket, is on this machine."""
    return not address or ipaddress.ip_address(address.partition("%")[0]).is_loopback


def lock_timeout_ms(options: PostgresOptions) -> int:
    """Return how long a statement waits for a lock."""
    return int(min(options.statement_timeout_seconds / 2, _LOCK_SECONDS) * 1_000)


def _cancellations() -> int:
    """Return how often this task was cancelled."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def _may_have_committed(error: BaseException) -> bool:
    """Whether a commit that failed here may have reached the server."""
    return is_connection_lost(error) and not isinstance(error, asyncio.CancelledError)
