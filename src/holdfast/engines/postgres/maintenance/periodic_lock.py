"""Periodic work that one process of the cluster does in each interval.

There is no leader: a process for which it is time takes a lock, checks again, does the work and
records when, all in one transaction. If it dies, nothing was done and nothing stays locked, and
the next process does the work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.database import Database
from holdfast.engines.postgres.connection.sansio import Row, SansIO, Statement, execute, execute_all
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
        if not await database.read(lambda: self._is_time(context)):
            return None
        return await database.perform(lambda: self._run_locked(make, context), idempotent=True)

    def _is_time(self, context: CallContext) -> SansIO[bool]:
        [[row]] = yield from execute_all(self._last_run(context))
        return self._due(row)

    def _run_locked(self, make: Callable[[], SansIO[T]], context: CallContext) -> SansIO[T | None]:
        # Two statements: the second sees what the previous holder of the lock wrote.
        [[[taken]], [row]] = yield from execute_all(
            Statement("try_periodic_lock", {"name": self.name}), self._last_run(context)
        )
        if not taken or not self._due(row):
            return None
        result = yield from make()
        yield from execute("record_run", name=self.name, at_us=row[0])
        return result

    def _last_run(self, context: CallContext) -> Statement:
        return Statement("read_last_run", {"name": self.name, "now_us": context.now_us})

    def _due(self, row: Row) -> bool:
        now_us, ran_at_us = row
        if ran_at_us is None or ran_at_us > now_us:  # never; or the clock was set back
            return True
        least_us = (1 - _EARLY) * self.interval_seconds * MICROSECONDS
        return bool(now_us - ran_at_us >= least_us)
