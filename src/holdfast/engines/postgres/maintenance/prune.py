"""Prune: makes partitions ahead, drops old ones of history, and forgets what belonged to them.

Each step is a short transaction of its own that may be repeated or skipped: what could not be done
because of a lock is done another time.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.database import Database
from holdfast.engines.postgres.connection.sansio import (
    Row,
    SansIO,
    Statement,
    execute,
    execute_all,
    execute_and_commit,
)
from holdfast.engines.structured_log import StructuredLog
from holdfast.model.fleet import REMEMBERED_SECONDS
from holdfast.model.job import MICROSECONDS

from .periodic_lock import PeriodicLock

DAYS_AHEAD = 3
MONTHS_AHEAD = 3
CHUNK = 2_000
"""How many rows are deleted at once."""
_MIN_CHUNKS = 5
"""How many chunks of attempts or notes are checked each time; more only while much is deleted."""
CHANGES_AT_ONCE = 10_000
"""How many changes of dead letters one transaction adds up."""
_LISTENER_SECONDS = REMEMBERED_SECONDS
_SAMPLE_BLOCKS = 4_000
"""How many blocks of history are measured, of 8 KiB each."""
_BLOCKS_AT_ONCE = 1_000
"""How many blocks one statement goes through to delete what finished first."""

_choose_seed = random.random
"""Chooses which blocks are measured: others each time."""

log = StructuredLog("holdfast.postgres")

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
        for name in ("forget_listeners", "forget_workers", "forget_commands"):
            await self._execute(name, context, after_us=after_us)
        await self._forget_records(context)
        await self._execute("fold_operation_outcomes", context)
        await self._execute("sum_group_deaths", context)
        await self.fold_dead_changes()
        made = await self._change_days("make_day", "days", range(DAYS_AHEAD + 1), context)
        await self._change_days("make_month", "months", range(MONTHS_AHEAD + 1), context)
        before_us = await self._bound(context.options.max_history_bytes)
        old = await self._database.read(
            lambda: execute("find_old_days", **_times(context), before_us=before_us)
        )
        dropped = await self._change_days("drop_day", "day", [day for (day,) in old], context)
        if before_us is not None:
            forgotten = await self._forget_before(before_us, context)
            max_bytes = context.options.max_history_bytes
            log.emit("history.bounded", jobs=forgotten, max_bytes=max_bytes)
            jobs += forgotten
        return PruneResult(made, dropped, jobs, attempts, notes)

    async def _forget_records(self, context: CallContext) -> None:
        """Delete the records that have expired, some at a time."""

        def some() -> SansIO[int]:
            [[[now_us]]] = yield from execute_all(context.now())
            found = yield from execute("forget_expired", now_us=now_us, limit=CHUNK)
            return len(found)

        while await self._database.perform(some, idempotent=True) == CHUNK:
            pass

    async def fold_dead_changes(self) -> None:
        """Add the changes of dead letters to the counts of their groups, some at a time."""
        while await self._database.perform(_fold_some, idempotent=True) == CHANGES_AT_ONCE:
            pass

    async def _bound(self, max_bytes: int) -> int | None:
        """Return before when jobs finished that have to go, so that the others fit; None if all do.

        A sample of the blocks is measured: all of them while history is small.
        """
        [(_largest, blocks)] = await self._database.read(lambda: execute("count_history_blocks"))
        percent = min(100.0, 100.0 * _SAMPLE_BLOCKS / max(blocks, 1))
        kept_bytes = (max_bytes - max_bytes // 16) * percent / 100
        [(size_bytes, before_us)] = await self._database.read(
            lambda: execute(
                "measure_history", percent=percent, seed=_choose_seed(), kept_bytes=kept_bytes
            )
        )
        return before_us if size_bytes * 100 / percent > max_bytes else None

    async def _forget_before(self, before_us: int, context: CallContext) -> int:
        """Delete the jobs that finished before this, some blocks at a time; return how many."""
        [(largest, _blocks)] = await self._database.read(lambda: execute("count_history_blocks"))
        total: int = 0
        for block in range(0, largest, _BLOCKS_AT_ONCE):
            [(count,)] = await self._execute(
                "forget_history_blocks",
                context,
                before_us=before_us,
                block=block,
                next_block=block + _BLOCKS_AT_ONCE,
            )
            total += count
        return total

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


def _fold_some() -> SansIO[int]:
    # Two at once would count from the same. What is left is added up when groups are listed.
    if (yield from execute("try_lock_keys", names=["dead_changes"])):
        return 0
    [[count]] = yield from execute("fold_dead_changes", limit=CHANGES_AT_ONCE)
    yield from execute("drop_empty_groups")
    return int(count)


def _nothing() -> SansIO[bool]:
    yield from ()
    return True
