"""Verbs in the caller's own transaction: its changes and those of the verb are committed together.

Nothing here begins or ends that transaction. A savepoint keeps it usable when something is refused
or when another transaction conflicts. Meanwhile the search_path is ours, as on our own connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from psycopg import errors as pg
from psycopg.pq import Format
from psycopg.rows import tuple_row

from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.errors import TRY_AGAIN, first_line, translated
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.model.errors import InvalidInput, Unavailable

from .arrays import with_arrays
from .database import lock_timeout_ms
from .driver_adapters import Async, Sync, check_usable, driver_of, driver_of_async, url_of
from .sansio import Row, SansIO, Statement
from .statements import statement

T = TypeVar("T")
_MAX_TRIES = 20
"""How often a verb is tried when it conflicts with other transactions."""
_PREPARE = False
"""Not on the caller's connection: after an error in a pipeline the driver believes that statements
are prepared which are not."""


class DriverStatement(NamedTuple):
    """A statement as the driver takes it."""

    text: bytes
    parameters: Mapping[str, object] | None = None


Verb: TypeAlias = Callable[[CallContext], SansIO[T]]
"""Begins a verb; called for each try."""
Steps: TypeAlias = Generator[list[DriverStatement], list[list[Row]], T]
"""Yields statements that are sent together, is sent their rows; their error is thrown in."""

_BEGIN = DriverStatement(b"SAVEPOINT holdfast")
_KEEP = DriverStatement(b"RELEASE SAVEPOINT holdfast")
_UNDO = DriverStatement(b"ROLLBACK TO SAVEPOINT holdfast")
_LEVEL = DriverStatement(b"SHOW transaction_isolation")


async def join(
    connection: object, verb: Verb[T], options: PostgresOptions, *, queues: Sequence[str] = ()
) -> T:
    """Perform a verb in the transaction of an asynchronous connection; return its result.

    Listeners of ``queues`` are notified at the commit, in addition to those that the verb notifies.
    """
    driver = await driver_of_async(connection)
    async with _lock_async(driver):
        check_usable(driver)
        return await _run_async(driver, _steps(verb, options, url_of(driver), queues))


def join_sync(
    connection: object, verb: Verb[T], options: PostgresOptions, *, queues: Sequence[str] = ()
) -> T:
    """See ``join``; for a synchronous connection."""
    driver = driver_of(connection)
    with _lock(driver):
        check_usable(driver)
        return _run(driver, _steps(verb, options, url_of(driver), queues))


# --- the steps ----------------------------------------------------------------------------------


def _steps(verb: Verb[T], options: PostgresOptions, url: str, queues: Sequence[str]) -> Steps[T]:
    """Perform the verb, again after a conflict; raise the errors of the contract."""
    try:
        for _try in range(_MAX_TRIES):
            try:
                return (yield from _try_once(verb, options, queues))
            except pg.UniqueViolation as error:
                [[[level]]] = yield [_LEVEL]
                if level != "read committed":
                    # What the other committed stays invisible in this transaction.
                    raise _conflict(f"unseen by a {level} transaction") from error
        raise _conflict(f"{_MAX_TRIES} times")
    except TRY_AGAIN as error:
        raise _conflict(first_line(error)) from error
    except pg.ReadOnlySqlTransaction as error:
        problem = "its transaction, or its server, is read-only: pass one that may write"
        raise InvalidInput("connection", problem) from error
    except (psycopg.Error, OSError) as error:
        raise translated(error, url, options.schema) from error


def _try_once(verb: Verb[T], options: PostgresOptions, queues: Sequence[str]) -> Steps[T]:
    """Perform the verb within a savepoint; undo it unless it runs to its end."""
    running = verb(CallContext(options, options.schema, joined=True))
    begun = kept = False
    rows: list[list[Row]] | None = None
    try:
        while True:
            try:
                batch = next(running) if rows is None else running.send(rows)
            except StopIteration as stop:
                if begun and not kept:
                    yield _ending(queues, options)
                    kept = True
                result: T = stop.value
                return result
            statements = [_statement(one, options) for one in batch.statements]
            before = [] if begun else _beginning(options)
            after = _ending(queues, options) if batch.last else []
            begun = True
            results = yield [*before, *statements, *after]
            kept = batch.last
            rows = results[len(before) :][: len(statements)]
    finally:
        if begun and not kept:
            # Also when this is cancelled: the caller must be able to go on or to roll back.
            with contextlib.suppress(psycopg.Error, OSError):
                yield [_UNDO, _KEEP]


def _beginning(options: PostgresOptions) -> list[DriverStatement]:
    """Return the statements before those of the verb; what they set is set back after it."""
    parameters = {"lock_timeout": str(lock_timeout_ms(options))}
    return [_BEGIN, _statement(Statement("replace_settings", parameters), options)]


def _ending(queues: Sequence[str], options: PostgresOptions) -> list[DriverStatement]:
    """Return the statements after those of the verb."""
    ending = [_statement(Statement("restore_settings", {}), options), _KEEP]
    if not queues:
        return ending
    parameters = {"channel": options.schema, "queues": sorted(set(queues))}
    return [_statement(Statement("notify_at_commit", parameters), options), *ending]


def _statement(one: Statement, options: PostgresOptions) -> DriverStatement:
    return DriverStatement(statement(one.name, options.schema), with_arrays(one.parameters))


def _conflict(how: str) -> Unavailable:
    return Unavailable(
        f"conflict with other transactions ({how}), and nothing was stored: roll your "
        "transaction back and begin it again"
    )


# --- both kinds of driver -----------------------------------------------------------------------


def _run(connection: Sync, steps: Steps[T]) -> T:
    try:
        batch = next(steps)
        while True:
            try:
                rows = _send(connection, batch)
            except BaseException as error:  # noqa: BLE001 - the steps handle or raise it
                batch = steps.throw(error)
            else:
                batch = steps.send(rows)
    except StopIteration as stop:
        result: T = stop.value
        return result


def _send(connection: Sync, batch: list[DriverStatement]) -> list[list[Row]]:
    """Send statements together; return the rows of each, or raise the first error."""
    cursors: list[psycopg.Cursor[Row]] = []
    first: psycopg.Error | None = None
    try:
        with connection.pipeline():
            try:
                for one in batch:
                    cursor = psycopg.Cursor(connection, row_factory=tuple_row)
                    cursor.format = Format.BINARY
                    cursors.append(cursor.execute(one.text, one.parameters, prepare=_PREPARE))
            except psycopg.Error as error:
                first = error
    except psycopg.Error as error:
        raise (first or error) from None
    if first is not None:
        raise first
    return [cursor.fetchall() if cursor.description else [] for cursor in cursors]


async def _run_async(connection: Async, steps: Steps[T]) -> T:
    try:
        batch = next(steps)
        while True:
            try:
                rows = await _send_async(connection, batch)
            except BaseException as error:  # noqa: BLE001 - the steps handle or raise it
                batch = steps.throw(error)
            else:
                batch = steps.send(rows)
    except StopIteration as stop:
        result: T = stop.value
        return result


async def _send_async(connection: Async, batch: list[DriverStatement]) -> list[list[Row]]:
    """Send statements together; return the rows of each, or raise the first error."""
    cursors: list[psycopg.AsyncCursor[Row]] = []
    first: psycopg.Error | None = None
    try:
        async with connection.pipeline():
            try:
                for one in batch:
                    cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
                    cursor.format = Format.BINARY
                    cursors.append(await cursor.execute(one.text, one.parameters, prepare=_PREPARE))
            except psycopg.Error as error:
                first = error
    except psycopg.Error as error:
        raise (first or error) from None
    if first is not None:
        raise first
    return [await cursor.fetchall() if cursor.description else [] for cursor in cursors]


# --- one at a time ------------------------------------------------------------------------------

_GUARD = threading.Lock()
_LOCKS: WeakKeyDictionary[Sync, threading.Lock] = WeakKeyDictionary()
_ASYNC_LOCKS: WeakKeyDictionary[Async, asyncio.Lock] = WeakKeyDictionary()


def _lock(driver: Sync) -> threading.Lock:
    """Return the lock that keeps savepoints of two threads on one connection apart."""
    with _GUARD:
        return _LOCKS.setdefault(driver, threading.Lock())


def _lock_async(driver: Async) -> asyncio.Lock:
    """Return the lock that keeps savepoints of two tasks on one connection apart."""
    with _GUARD:
        return _ASYNC_LOCKS.setdefault(driver, asyncio.Lock())
