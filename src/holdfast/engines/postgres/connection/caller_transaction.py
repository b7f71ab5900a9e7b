"""Enqueue in the caller's own transaction: its changes and the jobs are committed together.

Nothing here begins or ends that transaction. A savepoint keeps it usable when a job is refused or
when another transaction conflicts.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Generator, Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from psycopg import errors as pg
from psycopg.pq import Format
from psycopg.rows import tuple_row

from holdfast.engines.argument_checks import check_all
from holdfast.engines.clock import SystemClock
from holdfast.engines.contract import OnDuplicate, Receipt
from holdfast.engines.entropy import random_bytes
from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.errors import TRY_AGAIN, first_line, translated
from holdfast.engines.postgres.jobs import enqueue_statements as enqueue_verbs
from holdfast.engines.postgres.jobs.enqueue_statements import EnqueueRequest
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.errors import InvalidInput, Unavailable
from holdfast.model.ids import RANDOM_BYTES, uuid7s
from holdfast.model.job import NewJob

from .arrays import with_arrays
from .driver_adapters import Async, Sync, check_usable, driver_of, driver_of_async, url_of
from .sansio import Row, Statement, StatementBatch
from .statements import statement

T = TypeVar("T")
_MAX_TRIES = 20
"""How often an enqueue is tried when it conflicts with other transactions."""
_PREPARE = False
"""Not on the caller's connection: after an error in a pipeline the driver believes that statements
are prepared which are not."""


class DriverStatement(NamedTuple):
    """A statement as the driver takes it."""

    text: bytes
    parameters: Mapping[str, object] | None = None


Steps: TypeAlias = Generator[list[DriverStatement], list[list[Row]], T]
"""Yields statements that are sent together, is sent their rows; their error is thrown in."""

_BEGIN = DriverStatement(b"SAVEPOINT holdfast")
_KEEP = DriverStatement(b"RELEASE SAVEPOINT holdfast")
_UNDO = DriverStatement(b"ROLLBACK TO SAVEPOINT holdfast")
_LEVEL = DriverStatement(b"SHOW transaction_isolation")


async def enqueue(
    connection: object,
    jobs: Sequence[NewJob],
    *,
    options: PostgresOptions,
    caller: Caller = SYSTEM,
    on_duplicate: OnDuplicate = "refuse",
) -> list[Receipt]:
    """Do what ``Engine.enqueue`` does, in the transaction of an asynchronous connection."""
    request = _request(jobs, caller, on_duplicate)
    driver = await driver_of_async(connection)
    async with _lock_async(driver):
        check_usable(driver)
        return await _run_async(driver, _steps(request, options, url_of(driver)))


def enqueue_sync(
    connection: object,
    jobs: Sequence[NewJob],
    *,
    options: PostgresOptions,
    caller: Caller = SYSTEM,
    on_duplicate: OnDuplicate = "refuse",
) -> list[Receipt]:
    """Do what ``Engine.enqueue`` does, in the transaction of a connection."""
    request = _request(jobs, caller, on_duplicate)
    driver = driver_of(connection)
    with _lock(driver):
        check_usable(driver)
        return _run(driver, _steps(request, options, url_of(driver)))


def _request(jobs: Sequence[NewJob], caller: Caller, on_duplicate: OnDuplicate) -> EnqueueRequest:
    jobs = check_all("jobs", jobs, NewJob)
    if on_duplicate not in ("refuse", "skip"):
        raise InvalidInput("on_duplicate", f"{on_duplicate!r} is not refuse or skip")
    ids = uuid7s(SystemClock().now_us(), random_bytes(RANDOM_BYTES * len(jobs)))
    return EnqueueRequest(jobs, caller, on_duplicate, ids)


# --- the steps ----------------------------------------------------------------------------------


def _steps(request: EnqueueRequest, options: PostgresOptions, url: str) -> Steps[list[Receipt]]:
    """Enqueue, again after a conflict; raise the errors of the contract."""
    try:
        for _try in range(_MAX_TRIES):
            try:
                return (yield from _try_once(request, options))
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


def _try_once(request: EnqueueRequest, options: PostgresOptions) -> Steps[list[Receipt]]:
    """Enqueue within a savepoint; undo it unless it runs to its end."""
    verb = enqueue_verbs.enqueue([request], CallContext(options, options.schema))
    begun = kept = False
    rows: list[list[Row]] | None = None
    try:
        while True:
            try:
                batch = next(verb) if rows is None else verb.send(rows)
            except StopIteration:
                return request.receipts()
            statements = [_statement(one, options) for one in batch.statements]
            before, after = [] if begun else [_BEGIN], _ending(request, batch, options)
            begun = True
            results = yield [*before, *statements, *after]
            kept = batch.last
            rows = results[len(before) :][: len(statements)]
    finally:
        if begun and not kept:
            # Also when this is cancelled: the caller must be able to go on or to roll back.
            with contextlib.suppress(psycopg.Error, OSError):
                yield [_UNDO, _KEEP]


def _ending(
    request: EnqueueRequest, batch: StatementBatch, options: PostgresOptions
) -> list[DriverStatement]:
    if not batch.last:
        return []
    queues = sorted({new.queue for new in request.kinds})
    notify = Statement("notify_at_commit", {"channel": options.schema, "queues": queues})
    return [_statement(notify, options), _KEEP]


def _statement(one: Statement, options: PostgresOptions) -> DriverStatement:
    return DriverStatement(statement(one.name, options.schema), with_arrays(one.parameters))


def _conflict(how: str) -> Unavailable:
    return Unavailable(
        f"conflict with other transactions ({how}), and nothing was enqueued: roll your "
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
