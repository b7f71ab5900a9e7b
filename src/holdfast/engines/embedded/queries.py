"""Reads work from memory and history: jobs, pages, counts, groups, histories, dumps."""

from __future__ import annotations

import asyncio
import heapq
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from holdfast.engines.contract import MAX_CLAIM, Counts
from holdfast.engines.dump.format import (
    BLOCK_RECORDS,
    DumpedFlag,
    DumpedGroup,
    DumpedJob,
    DumpedOperation,
    DumpedOutage,
    DumpedPolicy,
    DumpedProjection,
    DumpedRecord,
    DumpedSchedule,
    DumpedSubscription,
    DumpHead,
    DumpRecord,
)
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.explain import ClaimSituation, Explanation, explain
from holdfast.model.failure_groups import key_of, with_lives
from holdfast.model.group_life import GroupKey, group_key
from holdfast.model.history import History
from holdfast.model.job import Job, State
from holdfast.model.outage import dependency_of
from holdfast.model.policy import DEFAULT_POLICY
from holdfast.model.projection import without_tables
from holdfast.model.search import (
    FailureGroup,
    Filter,
    Order,
    Place,
    is_after,
    place_of,
)

from .core import EmbeddedCore
from .event_store import EventStore
from .history import StateCounts

_SLICE = 20_000
"""How many jobs in memory are scanned before the event loop gets a turn."""
_FEW = 4
"""The same for jobs that may be in history: while another thread holds the interpreter lock, each
lookup takes tens of milliseconds."""


class Queries:
    """Each method reads memory and history; its arguments are checked already."""

    def __init__(self, core: EmbeddedCore, events: EventStore) -> None:
        self._core = core
        self._events = events
        self._state = core.state
        self._history = core.history

    async def get(self, ids: Sequence[str], tenant: str, caller: Caller) -> list[Job | None]:
        """Return these jobs, in order; None for one that does not exist or is out of reach."""
        core = self._core
        found: list[Job | None] = []
        for first in range(0, len(ids), _FEW):
            if first:
                await asyncio.sleep(0)
            core.check_open()
            core.now_us()
            found += [core.find(tenant, job_id, caller) for job_id in ids[first : first + _FEW]]
        return await core.answer(lambda _now: found)

    async def explain(
        self, ids: Sequence[str], tenant: str, caller: Caller
    ) -> list[Explanation | None]:
        """Return what keeps these jobs from being claimed."""
        jobs = await self.get(ids, tenant, caller)
        return await self._core.answer(
            lambda now: [None if job is None else self._explain(job, now) for job in jobs]
        )

    def _explain(self, found: Job, now_us: int) -> Explanation:
        state = self._state
        job = self._core.find(found.tenant, found.id) or found
        situation = ClaimSituation(now_us=now_us)
        if not job.state.finished:
            needed = {one: self._core.find(job.tenant, one) for one in job.ties.waiting_for}
            claimable = state.claimable([job.queue], None, SYSTEM, MAX_CLAIM, now_us)
            situation = ClaimSituation(
                now_us=now_us,
                policy=state.policies.get(job.queue, DEFAULT_POLICY),
                usage=state.claim_usage(job),
                key_head=state.key_head(job),
                dependencies={
                    name: None if other is None else other.state for name, other in needed.items()
                },
                claimable=tuple(claimable),
                outage=state.outages.active.get(dependency_of(job.queue)),
            )
        return explain(job, situation)

    async def counts(self, caller: Caller) -> Mapping[str, Counts]:
        """Return the counts of each queue that has any job."""
        core = self._core
        core.check_open()
        core.now_us()
        await core.forget()
        if not caller.scopes:
            return await core.answer(lambda _now: self._state.counts(caller))
        await self._history.flush()
        with self._history.pinned():
            finished = await self._history.count(caller)
            return await core.answer(lambda _now: _sum(self._state.counts(caller), finished))

    async def count(self, wanted: Filter, most: int, caller: Caller) -> int:
        """Count the jobs that a filter finds, up to this many."""
        core = self._core
        core.check_open()
        core.now_us()
        await core.forget()
        if _is_tallied(wanted) and not caller.scopes:
            return await self._count_by_tally(wanted, caller)
        await core.durable()
        found = 0
        if not wanted.states_are_unfinished:
            await self._history.flush()
            found = await self._history.count_matching(wanted, caller, most)
        if found < most and any(not state.finished for state in wanted.states or State):
            found += await self._count_unfinished(wanted, most - found, caller)
        await core.durable()
        return found

    async def _count_by_tally(self, wanted: Filter, caller: Caller) -> int:
        if caller.tenant is not None and wanted.tenant not in (None, caller.tenant):
            return 0
        counts = await self._core.answer(
            lambda _now: self._state.counts(Caller(caller.tenant or wanted.tenant))
        )
        return sum(
            count
            for queue, states in counts.items()
            for state, count in msgspec.structs.asdict(states).items()
            if _tally_matches(wanted, queue, State(state))
        )

    async def _count_unfinished(self, wanted: Filter, most: int, caller: Caller) -> int:
        found = 0
        jobs = list(self._state.jobs())
        for start in range(0, len(jobs), _SLICE):
            if start:
                await asyncio.sleep(0)
            found += sum(
                not job.state.finished
                and wanted.matches(job)
                and caller.can_access(job.tenant, job.scope)
                for job in jobs[start : start + _SLICE]
            )
            if found >= most:
                return most
        return found

    def queues(self, caller: Caller) -> list[str]:
        """Return the queues that have unfinished jobs, in order."""
        return sorted(
            queue
            for queue, counts in self._state.counts(caller).items()
            if counts.blocked or counts.pending or counts.in_flight
        )

    async def groups(self, wanted: Filter, caller: Caller) -> list[FailureGroup]:
        """Return the dead letters that a filter finds in groups, the largest first."""
        self._core.check_open()
        await self._core.durable()
        await self._history.flush()
        now_us = self._core.now_us()
        groups = await self._history.groups(wanted, caller, now_us)
        held: defaultdict[GroupKey | None, dict[tuple[str, str | None], int]] = defaultdict(dict)
        for job, behind in self._state.held_behind():
            if wanted.matches(job) and caller.can_access(job.tenant, job.scope):
                # Of several dead jobs of a key, the first holds all that the others hold.
                keys, key = held[group_key(job)], (job.tenant, job.ties.key)
                keys[key] = max(keys.get(key, 0), behind)
        await self._core.durable()
        groups = [replace(one, held_behind=sum(held[key_of(one)].values())) for one in groups]
        return with_lives(groups, self._state.group_lives, wanted, caller, now_us)

    async def history(
        self, ids: Sequence[str], tenant: str, caller: Caller
    ) -> list[History | None]:
        """Return the history of these jobs, in order; None where there is no such job."""
        core = self._core
        core.check_open()
        core.now_us()
        await core.durable()
        await self._history.flush()
        found: list[History | None] = []
        for job_id in ids:
            job = core.find(tenant, job_id, caller)
            found.append(None if job is None else History(job, *await self._history.history(job)))
        await core.durable()
        return found

    async def dump(self) -> AsyncIterator[Sequence[DumpRecord]]:
        """Return everything that is kept, as of one moment, in batches; the head comes first."""
        core, state = self._core, self._state
        core.check_open()
        await core.durable()
        async with core.admin_lock:  # no finished job is replayed or purged meanwhile
            await self._history.flush()
            now_us = core.now_us()
            head = DumpHead(core.capabilities.name, now_us, state.seq, state.last_token)
            jobs = [job for job in state.jobs() if not self._in_history(job)]
            rest: list[DumpRecord] = [DumpedPolicy(*one) for one in state.policies.items()]
            rest += [DumpedFlag(*one) for one in state.flags.items()]
            rest += [DumpedSchedule(*one) for one in state.schedules.items()]
            rest += [DumpedOutage(one) for one in state.outages.all()]
            rest += [DumpedOperation(one) for one in state.operations]
            rest += [DumpedGroup(*one) for one in state.group_lives.items()]
            rest += [DumpedSubscription(one) for one in state.subscriptions.values()]
            rest += [DumpedProjection(without_tables(one)) for one in state.projections.values()]
            rest += [DumpedRecord(one) for one in state.records.values() if not one.expires_at_us]
            events = self._events.dump()
            history = self._history.dump()
        await core.durable()
        yield [head, *rest]
        jobs.sort(key=lambda job: job.seq)
        for start in range(0, len(jobs), BLOCK_RECORDS):
            yield [DumpedJob(job) for job in jobs[start : start + BLOCK_RECORDS]]
        async for batch in history:
            yield batch
        async for batch in events:
            yield batch

    def _in_history(self, job: Job) -> bool:
        return job.state.finished and self._history.get(job.tenant, job.id) is not None

    async def matching(
        self,
        wanted: Filter,
        after: Place | None,
        limit: int,
        caller: Caller,
        order: Order = Order.CREATED,
        *,
        flush: bool = True,
    ) -> list[Job]:
        """Return the first matching jobs after this place, from memory and from history.

        Without ``flush`` history may still have jobs that were purged before.
        """
        core = self._core
        core.check_open()
        core.now_us()
        await core.durable()
        if flush and not wanted.states_are_unfinished:
            await self._history.flush()
        found: list[Job] = []
        there_is_more = True
        while there_is_more and len(found) < limit:
            stretch, after = await self._stretch(wanted, after, limit - len(found), caller, order)
            found += stretch
            there_is_more = after is not None
        await core.durable()  # memory may hold newer changes
        return found[:limit]  # memory and history together may have had more

    async def _stretch(
        self, wanted: Filter, after: Place | None, limit: int, caller: Caller, order: Order
    ) -> tuple[list[Job], Place | None]:
        """Return up to this many jobs, and the place up to which they are complete; None is all."""
        with self._history.pinned():  # no job leaves memory while history is read
            kept = await self._history.find(wanted, caller, after, limit, order)
            ours = await self._in_memory(wanted, after, limit, caller, order)
            found: dict[tuple[str, str], Job] = {}
            for job in (*kept, *ours):
                # Memory is newer: the job may have been replayed or moved on since it was read.
                now = self._state.get(job.tenant, job.id) or (job if job.state.finished else None)
                if now is not None and wanted.matches(now) and not self._core.forgotten(now):
                    found[job.tenant, job.id] = now
        ends = [place_of(some[-1], order) for some in (kept, ours) if len(some) == limit]
        places = {place_of(job, order): job for job in found.values()}
        until = (max(ends) if order.descending else min(ends)) if ends else None
        # What was read may have moved to another place since.
        jobs = [
            places[place]
            for place in sorted(places, reverse=order.descending)
            if is_after(place, after, order)
            and (until is None or not is_after(place, until, order))
        ]
        return jobs, until

    async def _in_memory(
        self, wanted: Filter, after: Place | None, limit: int, caller: Caller, order: Order
    ) -> list[Job]:
        finished_only = bool(wanted.states) and all(state.finished for state in wanted.states)
        jobs = list(self._state.finished() if finished_only else self._state.jobs())
        best: list[Job] = []
        place = partial(place_of, order=order)
        pick = heapq.nlargest if order.descending else heapq.nsmallest
        for start in range(0, len(jobs), _SLICE):
            if start:
                await asyncio.sleep(0)
            matching = [
                job
                for job in jobs[start : start + _SLICE]
                if wanted.matches(job)
                and caller.can_access(job.tenant, job.scope)
                and is_after(place_of(job, order), after, order)
            ]
            best = pick(limit, [*best, *matching], key=place)
        return best


def _is_tallied(wanted: Filter) -> bool:
    """Whether the filter uses only what jobs are counted by: tenant, queue and state."""
    return wanted.conditions <= {"tenant", "queues", "states", "without"} and all(
        one.conditions <= {"queues", "states"} for one in wanted.without
    )


def _tally_matches(wanted: Filter, queue: str, state: State) -> bool:
    return (
        (not wanted.queues or queue in wanted.queues)
        and (not wanted.states or state in wanted.states)
        and not any(queue in one.queues or state in one.states for one in wanted.without)
    )


def _sum(counts: Mapping[str, Counts], tally: StateCounts) -> Mapping[str, Counts]:
    found = {queue: msgspec.structs.asdict(one) for queue, one in counts.items()}
    for (_tenant, queue, state), count in tally.items():
        states = found.setdefault(queue, {})
        states[state.value] = states.get(state.value, 0) + count
    return {queue: Counts(**states) for queue, states in sorted(found.items())}
