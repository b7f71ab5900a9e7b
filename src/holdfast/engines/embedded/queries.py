"""The verbs that look at work: get, find, counts, queues, groups, history, validate, audited."""

from __future__ import annotations

import asyncio
import heapq
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from holdfast.engines.argument_checks import check_all, check_filter
from holdfast.engines.contract import MAX_CLAIM, Counts
from holdfast.engines.dump.format import (
    BLOCK_RECORDS,
    DumpedFlag,
    DumpedJob,
    DumpedPolicy,
    DumpedSchedule,
    DumpHead,
    DumpRecord,
)
from holdfast.engines.queue_stats import StoreStats
from holdfast.model.access import DEFAULT_TENANT, SYSTEM, Caller
from holdfast.model.audit import AuditRecord
from holdfast.model.failure_groups import GroupKey, group_key, key_of
from holdfast.model.history import History
from holdfast.model.job import Job, check_id, check_size
from holdfast.model.search import (
    EVERYTHING,
    FailureGroup,
    Filter,
    Page,
    Place,
    check_page,
    place_of,
    read_cursor,
    write_cursor,
)

from .core import EmbeddedCore
from .history import StateCounts

_SLICE = 20_000
"""How many jobs in memory are looked at before others get their turn on the event loop."""
_FEW = 4
"""The same for jobs that may be in the past: beside a thread that does not let go of the
interpreter's lock each look takes tens of milliseconds."""


class Queries(EmbeddedCore):
    """Every verb that looks, in memory and in the past."""

    async def get(
        self, ids: Sequence[str], *, tenant: str = DEFAULT_TENANT, caller: Caller = SYSTEM
    ) -> list[Job | None]:
        """See ``Engine.get``."""
        check_id(tenant, "tenant")
        wanted = check_all("ids", ids, str)
        found: list[Job | None] = []
        for first in range(0, len(wanted), _FEW):
            if first:
                await asyncio.sleep(0)
            self._check_open()
            self._now_us()
            some = wanted[first : first + _FEW]
            found += [self._find(tenant, job_id, caller) for job_id in some]
        return await self._answer(lambda _now: found)

    async def find(
        self,
        wanted: Filter = EVERYTHING,
        *,
        cursor: str = "",
        limit: int = 100,
        newest: bool = False,
        caller: Caller = SYSTEM,
    ) -> Page:
        """See ``Engine.find``."""
        check_page(limit)
        jobs = await self._matching(wanted, read_cursor(cursor), limit + 1, caller, newest=newest)
        if len(jobs) <= limit:
            return Page(jobs)
        return Page(jobs[:limit], write_cursor(place_of(jobs[limit - 1])))

    async def counts(self, *, caller: Caller = SYSTEM) -> Mapping[str, Counts]:
        """See ``Engine.counts``."""
        self._check_open()
        self._now_us()
        await self._forget()
        if not caller.scopes:
            return await self._answer(lambda _now: self._state.counts(caller))
        await self._past.flush()
        with self._past.pinned():
            past = await self._past.count(caller)
            return await self._answer(lambda _now: _sum(self._state.counts(caller), past))

    async def queues(self, *, caller: Caller = SYSTEM) -> list[str]:
        """See ``Engine.queues``."""
        self._check_open()
        self._now_us()
        return await self._answer(
            lambda _now: sorted(
                queue
                for queue, counts in self._state.counts(caller).items()
                if counts.blocked or counts.pending or counts.in_flight
            )
        )

    def survey(self) -> StoreStats:
        """Return every queue as it is in memory, for a scrape: it promises nothing.

        What finished too long ago may still be counted.
        """
        now_us = self._now_us()
        return StoreStats(now_us, self._state.survey(now_us))

    async def groups(
        self, wanted: Filter = EVERYTHING, *, caller: Caller = SYSTEM
    ) -> list[FailureGroup]:
        """See ``Engine.groups``."""
        self._check_open()
        wanted = check_filter(wanted)
        await self._durable()
        await self._past.flush()
        groups = await self._past.groups(wanted, caller)
        held: defaultdict[GroupKey | None, dict[tuple[str, str | None], int]] = defaultdict(dict)
        for job, behind in self._state.held_behind():
            if wanted.matches(job) and caller.reaches(job.tenant, job.scope):
                # Of several dead ones of a key the first has all behind it that the others have.
                keys, key = held[group_key(job)], (job.tenant, job.ties.key)
                keys[key] = max(keys.get(key, 0), behind)
        await self._durable()
        return [replace(group, held_behind=sum(held[key_of(group)].values())) for group in groups]

    async def history(
        self, ids: Sequence[str], *, tenant: str = DEFAULT_TENANT, caller: Caller = SYSTEM
    ) -> list[History | None]:
        """See ``Engine.history``."""
        check_id(tenant, "tenant")
        self._check_open()
        names = check_all("ids", ids, str)
        check_size("ids", len(names), 0, MAX_CLAIM)
        self._now_us()
        await self._durable()
        await self._past.flush()
        found: list[History | None] = []
        for job_id in names:
            job = self._find(tenant, job_id, caller)
            found.append(None if job is None else History(job, *await self._past.history(job)))
        await self._durable()
        return found

    async def audited(self, *, after: int = 0, limit: int = 100) -> list[AuditRecord]:
        """See ``Engine.audited``."""
        check_size("after", after, 0)
        check_page(limit)
        self._check_open()
        await self._durable()
        await self._past.flush()
        return list(await self._past.audit(after, limit))

    async def dump(self) -> AsyncIterator[Sequence[DumpRecord]]:
        """See ``Engine.dump``."""
        self._check_open()
        await self._durable()
        async with self._operating:  # nothing finished comes back meanwhile, or goes
            await self._past.flush()
            now_us, state = self._now_us(), self._state
            head = DumpHead(self.capabilities.name, now_us, state.seq, state.last_token)
            jobs = [job for job in state.jobs() if not self._kept_elsewhere(job)]
            rest: list[DumpRecord] = [DumpedPolicy(*one) for one in state.policies.items()]
            rest += [DumpedFlag(*one) for one in state.flags.items()]
            rest += [DumpedSchedule(*one) for one in state.schedules.items()]
            past = self._past.dump()
        await self._durable()
        yield [head, *rest]
        jobs.sort(key=lambda job: job.seq)
        for start in range(0, len(jobs), BLOCK_RECORDS):
            yield [DumpedJob(job) for job in jobs[start : start + BLOCK_RECORDS]]
        async for batch in past:
            yield batch

    def _kept_elsewhere(self, job: Job) -> bool:
        return job.state.finished and self._past.get(job.tenant, job.id) is not None

    async def validate(self) -> list[str]:
        """See ``Engine.validate``."""
        return await self._answer(lambda _now: self._state.problems())

    async def _matching(
        self,
        wanted: Filter,
        after: Place | None,
        limit: int,
        caller: Caller,
        *,
        newest: bool = False,
    ) -> list[Job]:
        """Return the first matching jobs after this place, from memory and from the past."""
        wanted = check_filter(wanted)
        self._check_open()
        self._now_us()
        await self._durable()
        if not wanted.states_are_unfinished:
            await self._past.flush()
        found: list[Job] = []
        there_is_more = True
        while there_is_more and len(found) < limit:
            stretch, after = await self._stretch(
                wanted, after, limit - len(found), caller, newest=newest
            )
            found += stretch
            there_is_more = after is not None
        await self._durable()  # what was seen in memory may have come since
        return found

    async def _stretch(
        self, wanted: Filter, after: Place | None, limit: int, caller: Caller, *, newest: bool
    ) -> tuple[list[Job], Place | None]:
        """Return up to this many of them, and the place up to which that is all; None is all."""
        with self._past.pinned():  # what was in memory when the past was asked is there still
            kept = await self._past.find(wanted, caller, after, limit, newest=newest)
            ours = await self._in_memory(wanted, after, limit, caller, newest=newest)
            found: dict[tuple[str, str], Job] = {}
            for job in (*kept, *ours):
                # Memory knows better: it may have come back, or moved on, since it was found.
                now = self._state.get(job.tenant, job.id) or (job if job.state.finished else None)
                if now is not None and wanted.matches(now) and not self._forgotten(now):
                    found[job.tenant, job.id] = now
        ends = [place_of(some[-1]) for some in (kept, ours) if len(some) == limit]
        jobs = sorted(found.values(), key=place_of, reverse=newest)
        if not ends:
            return jobs, None
        until = max(ends) if newest else min(ends)
        return [
            job for job in jobs if (place_of(job) >= until if newest else place_of(job) <= until)
        ], until

    async def _in_memory(
        self, wanted: Filter, after: Place | None, limit: int, caller: Caller, *, newest: bool
    ) -> list[Job]:
        finished_only = bool(wanted.states) and all(state.finished for state in wanted.states)
        jobs = list(self._state.finished() if finished_only else self._state.jobs())
        best: list[Job] = []
        pick = heapq.nlargest if newest else heapq.nsmallest
        for start in range(0, len(jobs), _SLICE):
            if start:
                await asyncio.sleep(0)
            matching = [
                job
                for job in jobs[start : start + _SLICE]
                if wanted.matches(job)
                and caller.reaches(job.tenant, job.scope)
                and (after is None or (place_of(job) < after if newest else place_of(job) > after))
            ]
            best = pick(limit, [*best, *matching], key=place_of)
        return best


def _sum(counts: Mapping[str, Counts], tally: StateCounts) -> Mapping[str, Counts]:
    found = {queue: msgspec.structs.asdict(one) for queue, one in counts.items()}
    for (_tenant, queue, state), count in tally.items():
        states = found.setdefault(queue, {})
        states[state.value] = states.get(state.value, 0) + count
    return {queue: Counts(**states) for queue, states in sorted(found.items())}
