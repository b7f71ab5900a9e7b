"""Forgetting: days of history are made ahead and dropped whole, and what hangs on them goes too.

Each step is a short transaction of its own, harmless when it is done twice or not at all: whatever
could not be done because others were busy is done another time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.database import Database
from holdfast.engines.postgres.connection.sansio import Row, Statement, execute_all, execute_last
from holdfast.model.job import MICROSECONDS

DAYS_AHEAD = 3
CHUNK = 2_000
"""How many rows go at once."""
_LEAST_CHUNKS = 5
"""How much of the past is looked through each time; more only while there is much to forget."""
_WAITED_SECONDS = 3_600.0

Place = tuple[str, str, int]
"""A tenant, a job's id and a number: where among attempts or notes."""
_START: Place = ("", "", 0)


class PruneResult(NamedTuple):
    """What a pruning did."""

    days_made: int = 0
    days_dropped: int = 0
    jobs: int = 0
    """Finished jobs forgotten one by one; those of a day that was dropped are not counted."""
    attempts: int = 0
    notes: int = 0


class Pruner:
    """Forgets what nobody has to remember, a bit at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._places: dict[str, Place] = {}

    async def prune(self, on: CallContext) -> PruneResult:
        """Do all that there is to do now."""
        jobs = await self._forget_rest(on)
        attempts = await self._forget_past("forget_attempts", on)
        notes = await self._forget_past("forget_notes", on)
        await self._once("forget_listeners", on, after_us=int(_WAITED_SECONDS * MICROSECONDS))
        made = await self._change_days("make_day", "days", range(DAYS_AHEAD + 1), on)
        [old] = await self._database.read(
            lambda: execute_all(Statement("find_old_days", _forgotten(on)))
        )
        dropped = await self._change_days("drop_day", "day", [day for (day,) in old], on)
        return PruneResult(made, dropped, jobs, attempts, notes)

    async def _change_days(
        self, name: str, field: str, days: Iterable[int], on: CallContext
    ) -> int:
        """Make or drop these days until somebody is in the way; return how many."""
        count = 0
        for day in days:
            [(done,)] = await self._once(name, on, **{field: day})
            if done is None:
                break  # each try holds others up a little: the next one is another time
            count += done
        return count

    async def _forget_rest(self, on: CallContext) -> int:
        total: int = 0
        while True:
            [(count,)] = await self._once("forget_undated_history", on, limit=CHUNK)
            total += count
            if count < CHUNK:
                return total

    async def _forget_past(self, name: str, on: CallContext) -> int:
        """Look through attempts or notes, from where it ended last time."""
        total: int = 0
        chunks = 0
        while True:
            tenant, job_id, number = self._places.get(name, _START)
            [row] = await self._once(name, on, tenant=tenant, id=job_id, number=number, limit=CHUNK)
            looked_at, gone, *place = row
            total += gone
            chunks += 1
            if looked_at < CHUNK:
                self._places.pop(name, None)  # the next time from the beginning
                return total
            self._places[name] = place[0], place[1], place[2]
            if chunks >= _LEAST_CHUNKS and gone < CHUNK / 2:
                return total

    async def _once(self, name: str, on: CallContext, **parameters: object) -> list[Row]:
        """Perform one statement by itself; return its rows."""
        ask = Statement(name, {**_forgotten(on), **parameters})
        [rows] = await self._database.perform(lambda: execute_last(ask), harmless=True)
        return rows


def _forgotten(on: CallContext) -> dict[str, object]:
    return {"now_us": on.now_us, "remember_us": on.remember_us}
