"""What is done again and again so that work goes on: ending leases, and forgetting."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.engines.argument_checks import check_all, check_attribution, check_limit
from holdfast.engines.clock import Clock, monotonic
from holdfast.engines.contract import Reclaim
from holdfast.engines.postgres.connection.sansio import SansIO
from holdfast.engines.postgres.errors import CommitUnknown
from holdfast.engines.postgres.jobs import settle
from holdfast.engines.postgres.jobs.lost_replies import unknown
from holdfast.engines.postgres.jobs.verbs import Moving
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.audit import Attribution
from holdfast.model.job import JobRef, check_seconds

from .lease_scan import LeaseScan
from .periodic_lock import PeriodicLock
from .prune import Pruner, PruneResult


class Upkeep(Moving):
    """The verbs of loops. Many processes call them; one of them does the work, each time."""

    def __init__(
        self, url: str, options: PostgresOptions | None = None, clock: Clock | None = None
    ) -> None:
        super().__init__(url, options, clock)
        self._pruning = Pruner(self._database)
        self._overdue = LeaseScan(monotonic)

    async def reclaim(
        self,
        *,
        limit: int = 1_000,
        forced: Sequence[JobRef] = (),
        attribution: Attribution | None = None,
        every_seconds: float = 0.0,
        caller: Caller = SYSTEM,
    ) -> Reclaim:
        """See ``Engine.reclaim``."""
        check_limit(limit)
        refs = check_all("forced", forced, JobRef)  # type: ignore[type-abstract]
        if attribution is not None:
            check_attribution(attribution)
        if every_seconds != 0:
            check_seconds("every_seconds", every_seconds)
        if every_seconds and not refs:
            return await self._reclaim_in_turn(limit, every_seconds, caller)
        verb = lambda: settle.reclaim(limit, refs, attribution, caller, self._on())
        try:
            done = await self._database.perform(verb, harmless=attribution is None)
        except CommitUnknown as doubt:
            raise unknown("reclaim") from doubt.__cause__
        self._announce(done.changes)
        return done.found

    async def _reclaim_in_turn(self, limit: int, every_seconds: float, caller: Caller) -> Reclaim:
        since_us = self._overdue.since_us()
        verb = lambda: settle.reclaim(limit, (), None, caller, self._on(), since_us)
        done = await PeriodicLock("reclaim", every_seconds).go(self._database, verb, self._on())
        if done is None:
            return Reclaim([], [])
        if done.seen is not None and caller.unlimited:
            self._overdue.looked(since_us, *done.seen)
        self._announce(done.changes)
        return done.found

    async def prune(self, *, every_seconds: float = 0.0) -> PruneResult:
        """Forget what need not be remembered, and make room for the days to come.

        A loop says ``every_seconds`` it does this: one of all processes does, each time.
        """
        if every_seconds != 0:
            check_seconds("every_seconds", every_seconds)
            # Its steps are transactions of their own. If they end early, the next time is soon.
            if not await PeriodicLock("prune", every_seconds).go(
                self._database, _begin, self._on()
            ):
                return PruneResult()
        return await self._pruning.prune(self._on())


def _begin() -> SansIO[bool]:
    yield from ()
    return True
