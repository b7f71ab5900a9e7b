"""Prune: makes the partitions of history ahead, drops old ones, and forgets what belonged to them.

Each step is a short transaction of its own that may be repeated or skipped: what could not be done
because of a lock is done another time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.database import Database
from holdfast.engines.postgres.connection.sansio import (
    Row,
    SansIO,
    Statement,
    execute,
    execute_and_commit,
)
from holdfast.model.job import MICROSECONDS

from .periodic_lock import PeriodicLock

DAYS_AHEAD = 3
CHUNK = 2_000
"""How many rows are deleted at once."""
_MIN_CHUNKS = 5
"""How many chunks of attempts or notes are checked each time; more only while much is deleted."""
_LISTENER_SECONDS = 3_600.0

Place = tuple[str, str, int]
"""A tenant, a job's id and a number: a place among attempts or notes."""
_START: Place = ("", "", 0)


class PruneResult(NamedTuple):
    """What was pruned."""

    days_made: int = 0
    days_dropped: int = 0
    jobs: int = 0
    """Finished jobs that were deleted one by one; not those of a partition that was dropped."""
    attempts: int = 0
    notes: int = 0


class Pruner:
    """Forgets what need not be kept, a bit at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._places: dict[str, Place] = {}

    async def prune(self, context: CallContext, every_seconds: float) -> PruneResult:
        """Do all that is due now; with an interval, only if no process has done so within it."""
        # The lock only records the run. If a step fails, the next interval repeats it.
        lock = PeriodicLock("prune", every_seconds)
        if every_seconds and not await lock.run(self._database, _nothing, context):
            return PruneResult()
        jobs = await self._forget_undated(context)
        attempts = await self._forget("forget_attempts", context)
        notes = await self._forget("forget_notes", context)
        after_us = int(_LISTENER_SECONDS * MICROSECONDS)
        await self._execute("forget_listeners", context, after_us=after_us)
        made = await self._change_days("make_day", "days", range(DAYS_AHEAD + 1), context)
        old = await self._database.read(lambda: execute("find_old_days", **_times(context)))
        dropped = await self._change_days("drop_day", "day", [day for (day,) in old], context)
        return PruneResult(made, dropped, jobs, attempts, notes)

    async def _change_days(
        self, name: str, field: str, days: Iterable[int], context: CallContext
    ) -> int:
        """Make or drop these partitions until a lock is in the way; return how many."""
        count = 0
        for day in days:
            [(done,)] = await self._execute(name, context, **{field: day})
            if done is None:
                break  # each try delays others a little: leave the rest for another time
            count += done
        return count

    async def _forget_undated(self, context: CallContext) -> int:
        total: int = 0
        while True:
            [(count,)] = await self._execute("forget_undated_history", context, limit=CHUNK)
            total += count
            if count < CHUNK:
                return total

    async def _forget(self, name: str, context: CallContext) -> int:
        """Check attempts or notes, from where it ended last time."""
        total: int = 0
        chunks = 0
        while True:
            tenant, job_id, number = self._places.get(name, _START)
            [row] = await self._execute(
                name, context, tenant=tenant, id=job_id, number=number, limit=CHUNK
            )
            checked, deleted, *place = row
            total += deleted
            chunks += 1
            if checked < CHUNK:
                self._places.pop(name, None)  # next time from the start
                return total
            self._places[name] = place[0], place[1], place[2]
            if chunks >= _MIN_CHUNKS and deleted < CHUNK / 2:
                return total

    async def _execute(self, name: str, context: CallContext, **parameters: object) -> list[Row]:
        """Execute one statement in a transaction of its own; return its rows."""
        statement = Statement(name, {**_times(context), **parameters})
        [rows] = await self._database.perform(
            lambda: execute_and_commit(statement), idempotent=True
        )
        return rows


def _times(context: CallContext) -> dict[str, object]:
    return {"now_us": context.now_us, "remember_us": context.remember_us}


def _nothing() -> SansIO[bool]:
    yield from ()
    return True
