"""Bounds how many unfinished jobs a tenant has, whichever route creates them."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence

from holdfast.engines.clock import monotonic as system_monotonic
from holdfast.engines.contract import Engine, OnDuplicate, Receipt
from holdfast.engines.forwarding import ForwardingEngine
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.errors import InvalidInput
from holdfast.model.job import UNFINISHED, NewJob
from holdfast.model.record import Record
from holdfast.model.search import MAX_COUNT, Filter

from .limits import MAX_BUCKETS, quota_exceeded
from .problems import RequestRefused

_COUNT_AGAIN_SECONDS = 1.0
_COUNT_ANYWAY_SECONDS = 10.0


class QuotaEngine(ForwardingEngine):
    """Refuses new jobs of a tenant that would have too many.

    The jobs of a tenant are counted at most once a second, and what came since is added: several
    servers of one store may exceed the quota together by what they take in ten seconds.
    """

    def __init__(
        self, engine: Engine, max_jobs: int, monotonic: Callable[[], float] = system_monotonic
    ) -> None:
        super().__init__(engine)
        self._max_jobs = min(max_jobs, MAX_COUNT)
        self._monotonic = monotonic
        self._counted: OrderedDict[str, tuple[float, int]] = OrderedDict()

    async def enqueue(
        self,
        jobs: Sequence[NewJob],
        *,
        caller: Caller = SYSTEM,
        on_duplicate: OnDuplicate = "refuse",
        once: Record | None = None,
    ) -> list[Receipt]:
        """See ``Engine.enqueue``; raise ``RequestRefused`` if a tenant would have too many."""
        if all(caller.can_access(job.tenant, job.scope) for job in jobs):  # else it is refused
            for tenant, count in Counter(job.tenant for job in jobs).items():
                await self._take(tenant, count)
        return await self.engine.enqueue(jobs, caller=caller, on_duplicate=on_duplicate, once=once)

    async def _take(self, tenant: str, count: int) -> None:
        at, held = self._counted.pop(tenant, (-math.inf, 0))
        over = held + count > self._max_jobs
        least = _COUNT_AGAIN_SECONDS if over else _COUNT_ANYWAY_SECONDS
        if self._monotonic() - at >= least:
            wanted = Filter(tenant=tenant, states=tuple(sorted(UNFINISHED)))
            found = await self.engine.count(wanted, cap=self._max_jobs)
            at, held = self._monotonic(), found.value
        fits = held + count <= self._max_jobs
        self._counted[tenant] = at, held + count if fits else held
        if len(self._counted) > MAX_BUCKETS:
            self._counted.popitem(last=False)
        if not fits:
            text = f"the tenant has {held:,} of at most {self._max_jobs:,} unfinished jobs"
            raise quota_exceeded(text, ["jobs"], {"retry-after": "1"})


class RemoteQuotaEngine(ForwardingEngine):
    """Refuses by an error that the protocol of remote engines knows."""

    async def enqueue(
        self,
        jobs: Sequence[NewJob],
        *,
        caller: Caller = SYSTEM,
        on_duplicate: OnDuplicate = "refuse",
        once: Record | None = None,
    ) -> list[Receipt]:
        """See ``Engine.enqueue``; raise ``InvalidInput`` if a tenant would have too many."""
        try:
            return await self.engine.enqueue(
                jobs, caller=caller, on_duplicate=on_duplicate, once=once
            )
        except RequestRefused as refused:
            raise InvalidInput("jobs", f"{refused.detail}: send them later") from None
