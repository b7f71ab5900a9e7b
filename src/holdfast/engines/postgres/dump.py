"""Dump: all tables as records, as of one moment."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping

import msgspec
import psycopg
from psycopg import AsyncConnection

from holdfast.engines.dump.format import (
    DumpedAttempt,
    DumpedAudit,
    DumpedEvent,
    DumpedFlag,
    DumpedGroup,
    DumpedJob,
    DumpedNote,
    DumpedOperation,
    DumpedOutage,
    DumpedPolicy,
    DumpedProjection,
    DumpedRecord,
    DumpedSchedule,
    DumpedSubscription,
    DumpHead,
    DumpRecord,
)
from holdfast.model.projection import ProjectionState, without_tables
from holdfast.model.record import Record

from . import rows
from .admin.groups import lives_of
from .admin.operations import with_outcomes
from .call_context import CallContext
from .connection.database import SET_SEARCH_PATH, Database
from .connection.sansio import Row
from .connection.statements import statement
from .errors import translated
from .events import rows as event_rows

_PAGE = 250
"""How many rows are in memory at a time: each may have a payload of the largest size."""


async def records(
    database: Database, context: CallContext, engine: str
) -> AsyncIterator[list[DumpRecord]]:
    """Yield everything that is stored, on a connection of its own, in bounded memory.

    Changes made meanwhile are not seen, and no other transaction has to wait.
    """
    connection = await database.connect()
    try:
        async for batch in _TableDump(connection, database.options.schema).everything(
            context, engine
        ):
            yield batch
    except (psycopg.Error, OSError) as error:
        raise translated(error, database.url, database.options.schema) from error
    finally:
        await connection.close()


class _TableDump:
    def __init__(self, connection: AsyncConnection[Row], schema: str) -> None:
        self._connection = connection
        self._schema = schema

    async def everything(
        self, context: CallContext, engine: str
    ) -> AsyncIterator[list[DumpRecord]]:
        """Yield the head with settings; jobs; their history; the audit; events."""
        await self._connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        await self._connection.execute(SET_SEARCH_PATH)
        # The consumer may be slow, and so may a sort.
        await self._connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        await self._connection.execute("SET LOCAL statement_timeout = 0")
        [[now_us]] = await self._all("now", {"now_us": context.now_us})
        [[last_seq, last_token]] = await self._all("read_last_numbers")
        first: list[DumpRecord] = [DumpHead(engine, now_us, last_seq, last_token)]
        for queue, policy in await self._all("list_policies"):
            first.append(DumpedPolicy(queue, rows.POLICY.decode(policy)))
        first += [DumpedFlag(name, on_) for name, on_ in await self._all("list_flags")]
        for name, schedule in await self._all("list_schedules"):
            first.append(DumpedSchedule(name, rows.SCHEDULE.decode(schedule)))
        for [outage] in await self._all("list_outages", {"ended": True}):
            first.append(DumpedOutage(rows.OUTAGE.decode(outage)))
        everything = {"ids": None, "running": False, "limit": None}
        for record, counts in await self._all("list_operations", everything):
            first.append(DumpedOperation(with_outcomes(record, counts)))
        lives = lives_of(await self._all("list_group_lives"))
        first += [DumpedGroup(*one) for one in lives.items()]
        for subscription in await self._all("list_subscriptions"):
            first.append(DumpedSubscription(event_rows.subscription_of(subscription)))
        first += [DumpedRecord(Record(*row)) for row in await self._all("list_lasting_records")]
        for _name, state in await self._all("list_projections"):
            stored = msgspec.json.decode(state, type=ProjectionState)
            first.append(DumpedProjection(without_tables(stored)))
        yield first
        since = {"since_us": now_us - context.remember_us}
        for name, parameters, make in (
            ("dump_jobs", {}, _job),
            ("dump_history", since, _job),
            ("dump_dead", {}, _job),
            ("dump_attempts", since, _attempt),
            ("dump_notes", since, _note),
            ("dump_audit", {}, _audit),
            ("dump_events", {}, _event),
        ):
            async for batch in self._pages(name, parameters, make):
                yield batch

    async def _all(self, name: str, parameters: Mapping[str, object] | None = None) -> list[Row]:
        cursor = self._connection.cursor(binary=True)
        await cursor.execute(statement(name, self._schema), parameters)
        return await cursor.fetchall()

    async def _pages(
        self, name: str, parameters: Mapping[str, object], make: Callable[[Row], DumpRecord]
    ) -> AsyncIterator[list[DumpRecord]]:
        async with self._connection.cursor(name=name) as cursor:
            await cursor.execute(statement(name, self._schema), parameters, binary=True)
            while page := await cursor.fetchmany(_PAGE):
                yield [make(row) for row in page]


def _job(row: Row) -> DumpRecord:
    return DumpedJob(rows.job_of(row))


def _attempt(row: Row) -> DumpRecord:
    tenant, job_id, made_us, attempt = row
    return DumpedAttempt(tenant, job_id, made_us, rows.ATTEMPT.decode(attempt))


def _note(row: Row) -> DumpRecord:
    tenant, job_id, made_us, note = row
    return DumpedNote(tenant, job_id, made_us, rows.NOTE.decode(note))


def _event(row: Row) -> DumpRecord:
    return DumpedEvent(event_rows.event_of(row))


def _audit(row: Row) -> DumpRecord:
    number, record = row
    return DumpedAudit(rows.audit_record(number, record))
