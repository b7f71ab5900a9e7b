"""What an application may do in its own transaction, without an engine."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.engines.argument_checks import check_all, check_events
from holdfast.engines.clock import SystemClock
from holdfast.engines.contract import OnDuplicate, Receipt
from holdfast.engines.entropy import random_bytes
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.errors import InvalidInput
from holdfast.model.event import EventReceipt, NewEvent
from holdfast.model.ids import RANDOM_BYTES, uuid7s
from holdfast.model.job import NewJob

from .call_context import CallContext
from .connection.caller_transaction import Verb, join, join_sync
from .connection.sansio import SansIO
from .events.append import AppendRequest
from .events.append import append as append_verb
from .jobs import enqueue_statements
from .jobs.enqueue_statements import EnqueueRequest
from .options import PostgresOptions


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
    return await join(connection, _enqueue(request), options, queues=_queues(request))


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
    return join_sync(connection, _enqueue(request), options, queues=_queues(request))


async def append(
    connection: object,
    events: Sequence[NewEvent],
    *,
    options: PostgresOptions,
    caller: Caller = SYSTEM,
) -> list[EventReceipt]:
    """Do what ``Engine.append`` does, in the transaction of an asynchronous connection."""
    return await join(connection, _append(events, caller), options)


def append_sync(
    connection: object,
    events: Sequence[NewEvent],
    *,
    options: PostgresOptions,
    caller: Caller = SYSTEM,
) -> list[EventReceipt]:
    """Do what ``Engine.append`` does, in the transaction of a connection."""
    return join_sync(connection, _append(events, caller), options)


def _request(jobs: Sequence[NewJob], caller: Caller, on_duplicate: OnDuplicate) -> EnqueueRequest:
    jobs = check_all("jobs", jobs, NewJob)
    if on_duplicate not in ("refuse", "skip"):
        raise InvalidInput("on_duplicate", f"{on_duplicate!r} is not refuse or skip")
    return EnqueueRequest(jobs, caller, on_duplicate, _ids(len(jobs)))


def _enqueue(request: EnqueueRequest) -> Verb[list[Receipt]]:
    def verb(context: CallContext) -> SansIO[list[Receipt]]:
        yield from enqueue_statements.enqueue([request], context)
        return request.receipts()

    return verb


def _queues(request: EnqueueRequest) -> list[str]:
    return [new.queue for new in request.kinds]


def _append(events: Sequence[NewEvent], caller: Caller) -> Verb[list[EventReceipt]]:
    news = check_events(events)
    request = AppendRequest(news, caller, _ids(len(news)), SystemClock().now_us())

    def verb(context: CallContext) -> SansIO[list[EventReceipt]]:
        return (yield from append_verb(request, context)).receipts

    return verb


def _ids(count: int) -> list[str]:
    return uuid7s(SystemClock().now_us(), random_bytes(RANDOM_BYTES * count))
