"""Enqueueing in a transaction of the caller's own: what they commit and the job come together.

Nothing here begins or ends their transaction. A savepoint is around what is done in it, so that it
goes on as if nothing had been when a job is refused, and when somebody else was first.
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
from holdfast.engines.postgres.errors import TRY_AGAIN, said, translated
from holdfast.engines.postgres.jobs import enqueue as enqueue_verbs
from holdfast.engines.postgres.jobs.enqueue import EnqueueRequest
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
_TRIES = 20
"""How often an enqueue begins anew because somebody else was first."""
_PREPARE = False
"""Not on their connection: the driver takes what follows an error in a pipeline for prepared."""


class DriverStatement(NamedTuple):
    """What goes to the server."""

    text: bytes
    parameters: Mapping[str, object] | None = None


Steps: TypeAlias = Generator[list[DriverStatement], list[list[Row]], T]
"""Statements that go out together, again and again; an error of theirs is thrown in."""

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
    """Do what ``Engine.enqueue`` does in the transaction of this asynchronous connection."""
    request = _request(jobs, caller, on_duplicate)
    driver = await driver_of_async(connection)
    async with _alone_async(driver):
        check_usable(driver)
        return await _converse_async(driver, _steps(request, options, url_of(driver)))


def enqueue_sync(
    connection: object,
    jobs: Sequence[NewJob],
    *,
    options: PostgresOptions,
    caller: Caller = SYSTEM,
    on_duplicate: OnDuplicate = "refuse",
) -> list[Receipt]:
    """Do what ``Engine.enqueue`` does in the transaction of this connection."""
    request = _request(jobs, caller, on_duplicate)
    driver = driver_of(connection)
    with _alone(driver):
        check_usable(driver)
        return _converse(driver, _steps(request, options, url_of(driver)))


def _request(jobs: Sequence[NewJob], caller: Caller, on_duplicate: OnDuplicate) -> EnqueueRequest:
    jobs = check_all("jobs", jobs, NewJob)
    if on_duplicate not in ("refuse", "skip"):
        raise InvalidInput("on_duplicate", f"{on_duplicate!r} is not refuse or skip")
    ids = uuid7s(SystemClock().now_us(), random_bytes(RANDOM_BYTES * len(jobs)))
    return EnqueueRequest(jobs, caller, on_duplicate, ids)


# --- what is done -------------------------------------------------------------------------------


def _steps(request: EnqueueRequest, options: PostgresOptions, url: str) -> Steps[list[Receipt]]:
    """Enqueue, from the beginning if somebody else was first; raise what the contract knows."""
    try:
        for _try in range(_TRIES):
            try:
                return (yield from _try_once(request, options))
            except pg.UniqueViolation as error:
                [[[level]]] = yield [_LEVEL]
                if level != "read committed":
                    # What they did is not to be seen from here, however often one looks.
                    raise _others_were_first(f"unseen by a {level} transaction") from error
        raise _others_were_first(f"{_TRIES} times")
    except TRY_AGAIN as error:
        raise _others_were_first(said(error)) from error
    except pg.ReadOnlySqlTransaction as error:
        problem = "its transaction, or its server, is read-only: give one that may write"
        raise InvalidInput("connection", problem) from error
    except (psycopg.Error, OSError) as error:
        raise translated(error, url, options.schema) from error


def _try_once(request: EnqueueRequest, options: PostgresOptions) -> Steps[list[Receipt]]:
    """Enqueue within a savepoint; leave nothing behind unless it is done to its end."""
    verb = enqueue_verbs.enqueue([request], CallContext(options, options.schema))
    begun = kept = False
    told: list[list[Row]] | None = None
    try:
        while True:
            try:
                batch = next(verb) if told is None else verb.send(told)
            except StopIteration:
                return request.receipts()
            asked = [_statement(ask, options) for ask in batch.asks]
            before, after = [] if begun else [_BEGIN], _ending(request, batch, options)
            begun = True
            answers = yield [*before, *asked, *after]
            kept = batch.last
            told = answers[len(before) :][: len(asked)]
    finally:
        if begun and not kept:
            # Also when this is cancelled: they must be able to go on, or to roll back themselves.
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


def _statement(ask: Statement, options: PostgresOptions) -> DriverStatement:
    return DriverStatement(statement(ask.name, options.schema), with_arrays(ask.parameters))


def _others_were_first(how: str) -> Unavailable:
    return Unavailable(
        f"others were first ({how}), and nothing was enqueued: roll your transaction back and "
        "begin it anew"
    )


# --- how it gets there --------------------------------------------------------------------------


def _converse(connection: Sync, steps: Steps[T]) -> T:
    try:
        batch = next(steps)
        while True:
            try:
                told = _tell(connection, batch)
            except BaseException as error:  # noqa: BLE001 - they decide, and raise it
                batch = steps.throw(error)
            else:
                batch = steps.send(told)
    except StopIteration as stop:
        answer: T = stop.value
        return answer


def _tell(connection: Sync, batch: list[DriverStatement]) -> list[list[Row]]:
    """Send statements together; return the rows of each. The first error is the one that counts."""
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


async def _converse_async(connection: Async, steps: Steps[T]) -> T:
    try:
        batch = next(steps)
        while True:
            try:
                told = await _tell_async(connection, batch)
            except BaseException as error:  # noqa: BLE001 - they decide, and raise it
                batch = steps.throw(error)
            else:
                batch = steps.send(told)
    except StopIteration as stop:
        answer: T = stop.value
        return answer


async def _tell_async(connection: Async, batch: list[DriverStatement]) -> list[list[Row]]:
    """Send statements together; return the rows of each. The first error is the one that counts."""
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


def _alone(driver: Sync) -> threading.Lock:
    """Return what keeps savepoints of two threads on one connection apart."""
    with _GUARD:
        return _LOCKS.setdefault(driver, threading.Lock())


def _alone_async(driver: Async) -> asyncio.Lock:
    """Return what keeps savepoints of two tasks on one connection apart."""
    with _GUARD:
        return _ASYNC_LOCKS.setdefault(driver, asyncio.Lock())
