"""Connections to the server, and how verbs use them: each in a transaction, again if it must be.

Nothing is left to a session: statements name their schema, locks end with their transaction. So a
pooler in transaction mode may stand in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine
from itertools import chain
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from holdfast.engines.clock import monotonic
from holdfast.engines.postgres.errors import TRY_AGAIN, CommitUnknown, is_gone, place, translated
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.engines.postgres.schema.check import check_usable
from holdfast.model.errors import EngineClosed, Unavailable

from .pipeline import BoundStatement, PipelineConnection, StatementNotBuilt
from .pool import ConnectionPool
from .sansio import Row, SansIO, Statement, StatementBatch
from .statements import NumberedStatement, numbered

T = TypeVar("T")
_TRIES = 20
"""How often a verb begins anew because somebody else was first."""
_FIRST_PAUSE_SECONDS = 0.002
_LONGEST_PAUSE_SECONDS = 0.5
_SLACK_SECONDS = 5.0
"""How much longer than a statement may take its answer is waited for."""
_IDLE_SECONDS = 10.0
"""How long a transaction may wait for its process, which was stopped or is gone. Others wait for
its locks meanwhile; usually that is a round trip."""
_PINNED = (
    "plan_cache_mode=force_generic_plan",
    "enable_seqscan=off",
    "enable_hashjoin=off",
    "enable_mergejoin=off",
    "jit=off",
)
"""For statements that find few rows by an index: planned once, and never for a table that was small
when it was planned. Planning them takes longer than doing them."""
_PLANNED_ANEW = frozenset(
    {
        *(
            "find",
            "find_newest",
            "group_dead",
            "count_held_behind",
            "count_jobs",
            "read_queue_stats",
            "find_problems",
        ),
        *(
            "change_lines",
            "find_old_days",
            "read_schema_state",
            "find_missing_rights",
            "read_server_settings",
        ),
        *("forget_attempts", "forget_notes", "forget_undated_history", "forget_listeners"),
    }
)
"""What is planned each time: conditions that are not asked for cost nothing then."""

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
        self._settings = _settings(url, options)
        # Longer than the server allows: then the wire is dead, and nobody says so. By then the
        # kernel has dropped what it could not deliver (``tcp_user_timeout``).
        timeout_seconds = options.statement_timeout_seconds
        self._longest_seconds = timeout_seconds + min(timeout_seconds, _SLACK_SECONDS)
        self._connections = ConnectionPool(url, options)

    async def open(self) -> None:
        """Connect, or raise ``Unavailable`` with what is wrong: with the server, or the schema."""
        schema = self.options.schema
        connection = await self.connect()
        try:
            usable = check_usable(schema, place(self.url))
            await self._converse(connection, usable, reading=True)
        except (psycopg.Error, OSError, TimeoutError) as error:
            raise translated(error, self.url, schema) from error
        finally:
            await connection.close()
        settings = dict(self._settings)
        if "options" in settings:
            settings["options"] += "".join(f" -c {pin}" for pin in _PINNED)
        await self._connections.open(settings)

    async def connect(self, url: str | None = None) -> PipelineConnection:
        """Return a connection of one's own, to this place if it is another."""
        url = url or self.url
        while True:
            try:
                return await PipelineConnection.connect(url, **self._settings)
            except (psycopg.Error, OSError) as error:
                if "startup parameter" not in str(error) or "options" not in self._settings:
                    raise translated(error, url, self.options.schema) from error
            # A pooler that knows no options, and maybe no prepared statements: without both.
            del self._settings["options"]
            self._settings["prepare_threshold"] = None

    def refuse(self) -> None:
        """Take no more calls."""
        self._closed = True

    async def close(self) -> None:
        """Let go of every connection."""
        self.refuse()
        await self._connections.close()

    def check_open(self) -> None:
        """Raise ``EngineClosed`` once it is closed."""
        if self._closed:
            raise EngineClosed("this engine was closed: open another one")

    def read(self, make: Callable[[], SansIO[T]]) -> Coroutine[object, object, T]:
        """Perform a verb that changes nothing: each of its statements by itself."""
        return self._insist(make, reading=True, harmless=True)

    def perform(
        self, make: Callable[[], SansIO[T]], *, harmless: bool = False
    ) -> Coroutine[object, object, T]:
        """Perform a verb in a transaction, from its beginning as often as it takes.

        Raise ``CommitUnknown`` if the connection ended at a commit, unless it is ``harmless`` to do
        it twice; ``Unavailable`` if the server could not be reached in time.
        """
        return self._insist(make, reading=False, harmless=harmless)

    async def _insist(self, make: Callable[[], SansIO[T]], *, reading: bool, harmless: bool) -> T:
        self.check_open()
        give_up = monotonic() + self.options.patience_seconds
        pause_seconds = _FIRST_PAUSE_SECONDS
        tries = 0
        cancellations = _cancellations()
        while True:
            try:
                connection = await self._connections.take()
                try:
                    if _cancellations() > cancellations:
                        # Asked to end just when there was one: the pool tells of that alone.
                        raise asyncio.CancelledError
                    return await self._converse(connection, make(), reading=reading)
                finally:
                    await self._connections.give_back(connection)
            except StatementNotBuilt as unmade:
                raise unmade.cause from unmade.cause.__cause__
            except CommitUnknown as doubt:
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
                if _cancellations() > cancellations:
                    # Asked to end just when the connection did: the driver tells of that alone.
                    raise asyncio.CancelledError from error
            await asyncio.sleep(pause_seconds * random.uniform(0.5, 1.0))
            pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)

    async def _converse(
        self, connection: PipelineConnection, verb: SansIO[T], *, reading: bool
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
                        raise CommitUnknown(error) from error
                    raise
                begun = (begun or begins) and not commits
                batch = verb.send(told)
        except StopIteration as stop:
            if begun:
                await self._commit(connection)
            answer: T = stop.value
            return answer
        except BaseException:
            if connection.info.transaction_status in _IN_TRANSACTION:
                with contextlib.suppress(psycopg.Error, OSError, TimeoutError):
                    await connection.tell([_ROLLBACK], self._longest_seconds)
            raise

    async def _commit(self, connection: PipelineConnection) -> None:
        try:
            await connection.tell([_COMMIT], self._longest_seconds)
        except BaseException as error:
            if _may_have_been_done(error):
                raise CommitUnknown(error) from error
            raise

    async def _tell(
        self, connection: PipelineConnection, batch: StatementBatch, *, begins: bool, begun: bool
    ) -> list[list[Row]]:
        """Send statements together; return the rows of each."""
        asks = batch.asks
        streamed = not isinstance(asks, list | tuple)
        anew = not streamed and not _PLANNED_ANEW.isdisjoint([ask.name for ask in asks])
        alone = anew and not begun and not begins
        before = [_BEGIN] if begins or alone else []
        if anew:
            before.append(self._saying(Statement("use_custom_plans", {})))
        after = [_COMMIT] if (begun and batch.last) or alone else []
        sayings = map(self._saying, asks)
        told = await connection.tell(
            chain(before, sayings, after) if streamed else [*before, *sayings, *after],
            self._longest_seconds,
        )
        return told[len(before) : len(told) - len(after)]

    def _saying(self, ask: Statement) -> BoundStatement:
        name = None if ask.name in _PLANNED_ANEW else ask.name.encode()
        return BoundStatement(numbered(ask.name, self.options.schema), ask.parameters, name)


def _settings(url: str, options: PostgresOptions) -> dict[str, Any]:
    timeout_ms = int(options.statement_timeout_seconds * 1_000)
    idle_ms = min(timeout_ms, int(_IDLE_SECONDS * 1_000))
    theirs = conninfo_to_dict(url).get("options") or ""
    return {
        "autocommit": True,
        "client_encoding": "UTF8",  # packed lists are
        "application_name": "holdfast",
        "connect_timeout": max(1, int(options.patience_seconds)),
        "options": (
            f"{theirs} -c statement_timeout={timeout_ms}"
            f" -c idle_in_transaction_session_timeout={idle_ms}"
        ).strip(),
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": timeout_ms,
    }


def _cancellations() -> int:
    """Return how often this task was asked to end."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def _may_have_been_done(error: BaseException) -> bool:
    """Whether a statement that commits may have been carried out though it failed here."""
    return is_gone(error) and not isinstance(error, asyncio.CancelledError)
