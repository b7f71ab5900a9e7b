"""Periodic work that one process of the cluster does in each interval.

There is no leader: a process for which it is time locks the row of the work, checks again, does
the work and records when, all in one transaction. If it dies, nothing was done and nothing stays
locked, and the next process does the work. Only roles with rights in the schema can lock a row, so
nobody else can hold the work up; and a short transaction needs no session of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

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
from holdfast.model.job import MICROSECONDS

T = TypeVar("T")

_EARLY = 0.1
"""The part of an interval that may be missing: ticks of a process are not exactly one interval
apart, and work that is a millisecond early would wait for the next tick."""


class PeriodicLock(NamedTuple):
    """Work of this name, once per interval."""

    name: str
    interval_seconds: float

    async def run(
        self, database: Database, make: Callable[[], SansIO[T]], context: CallContext
    ) -> T | None:
        """Do the work if it is time and no other process does it; return its result, or None."""
        # Most calls end here, after one statement.
        [[row]] = await database.read(lambda: execute_all(self._last_run(context)))
        if not self._due(row):
            return None
        if row[1] is None:
            await self.enter(database)
        return await database.perform(lambda: self._run_locked(make, context), idempotent=True)

    async def enter(self, database: Database) -> None:
        """Make the row that is locked, if there is none."""
        entry = Statement("add_loop", {"name": self.name})
        await database.perform(lambda: execute_and_commit(entry), idempotent=True)

    def _run_locked(self, make: Callable[[], SansIO[T]], context: CallContext) -> SansIO[T | None]:
        # Two statements: the second sees what the previous holder of the lock wrote.
        [locked, [row]] = yield from execute_all(
            Statement("try_periodic_lock", {"name": self.name}), self._last_run(context)
        )
        if not locked or not self._due(row):
            return None
        result = yield from make()
        yield from execute("record_run", name=self.name, at_us=row[0])
        return result

    def _last_run(self, context: CallContext) -> Statement:
        return Statement("read_last_run", {"name": self.name, "now_us": context.now_us})

    def _due(self, row: Row) -> bool:
        now_us, ran_at_us = row
        if not ran_at_us or ran_at_us > now_us:  # never; or the clock was set back
            return True
        least_us = (1 - _EARLY) * self.interval_seconds * MICROSECONDS
        return bool(now_us - ran_at_us >= least_us)
