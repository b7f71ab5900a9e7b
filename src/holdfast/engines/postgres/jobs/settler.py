"""Settle: the fast path, then the full one, and what to do when a reply is lost."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from holdfast.engines.outages import log_changes
from holdfast.engines.postgres.errors import CommitUnknown
from holdfast.engines.postgres.resources import EngineResources
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.errors import HoldfastError, LeaseLost
from holdfast.model.job import Job
from holdfast.model.outcome import Outcome, release

from .settle_statements import Lease, answers, settle_full, settle_simple


class Settler:
    """Ends leases by outcomes, and counts those that were refused."""

    def __init__(self, resources: EngineResources) -> None:
        self._resources = resources
        self.leases_refused = 0

    async def settle(self, outcomes: Sequence[Outcome], caller: Caller) -> set[Lease]:
        """Settle; return the leases that these outcomes ended, even if a reply was lost."""
        resources = self._resources
        context = resources.context()
        done: set[Lease] = set()
        left = list(outcomes)
        try:
            done, left = await resources.database.perform(
                lambda: settle_simple(outcomes, caller, context)
            )
        except CommitUnknown:
            resources.lost_replies.add(outcomes)
        if left:
            done |= await self.settle_full(left, caller)
        return done | await resources.lost_replies.settled(outcomes, done)

    async def settle_full(self, outcomes: Sequence[Outcome], caller: Caller) -> set[Lease]:
        """Settle with all consequences; return the leases that ended, without lost replies."""
        resources = self._resources
        verb = lambda: settle_full(outcomes, caller, resources.context())
        try:
            done, queues, outages = await resources.database.perform(verb)
        except CommitUnknown:
            resources.lost_replies.add(outcomes)
            done, queues, outages = await resources.perform_once("settle", verb)
        log_changes(outages, resources.clock.now_us())
        resources.wake(queues)
        return done

    async def release(self, jobs: Sequence[Job]) -> None:
        """Hand jobs back that no worker has; if that fails, their leases run out."""
        outcomes = [release(job) for job in jobs]
        with contextlib.suppress(HoldfastError):
            if outcomes:
                self.answers(outcomes, await self.settle(outcomes, SYSTEM))

    def answers(self, outcomes: Sequence[Outcome], done: set[Lease]) -> list[LeaseLost | None]:
        """Return the answer to each outcome, given the leases that ended."""
        found = answers(outcomes, done)
        self.leases_refused += sum(answer is not None for answer in found)
        return found
