"""Periodic work that many processes are ready to do, and one of them does, each time.

There is no leader: whoever finds that it is time takes a lock, looks whether it still is, does the
work and writes down when, all in one transaction. If it dies there, nothing was done and nothing is
locked, and the next one to come does it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.database import Database
from holdfast.engines.postgres.connection.sansio import Row, SansIO, Statement, execute_all
from holdfast.model.job import MICROSECONDS

T = TypeVar("T")

_EARLY = 0.1
"""The part of an interval that may be missing: the ticks of a process are not exactly one apart,
and what is put off for a millisecond is put off until the next."""


class PeriodicLock(NamedTuple):
    """Work of this name, every so often."""

    name: str
    interval_seconds: float

    async def go(
        self, database: Database, make: Callable[[], SansIO[T]], on: CallContext
    ) -> T | None:
        """Do the work if it is time and nobody else does it; return what came of it, or None."""
        # Most who ask are told here that it is not, for one statement.
        if not await database.read(lambda: self._is_time(on)):
            return None
        return await database.perform(lambda: self._alone(make, on), harmless=True)

    def _is_time(self, on: CallContext) -> SansIO[bool]:
        [[row]] = yield from execute_all(self._ran_at(on))
        return self._due(row)

    def _alone(self, make: Callable[[], SansIO[T]], on: CallContext) -> SansIO[T | None]:
        # Two statements: the second one sees what was written by whoever had the lock before.
        [[[taken]], [row]] = yield from execute_all(
            Statement("try_periodic_lock", {"name": self.name}), self._ran_at(on)
        )
        if not taken or not self._due(row):
            return None
        answer = yield from make()
        yield from execute_all(Statement("record_run", {"name": self.name, "at_us": row[0]}))
        return answer

    def _ran_at(self, on: CallContext) -> Statement:
        return Statement("read_last_run", {"name": self.name, "now_us": on.now_us})

    def _due(self, row: Row) -> bool:
        now_us, ran_at_us = row
        if ran_at_us is None or ran_at_us > now_us:  # never; or the clock was set back
            return True
        apart_us = (1 - _EARLY) * self.interval_seconds * MICROSECONDS
        return bool(now_us - ran_at_us >= apart_us)
