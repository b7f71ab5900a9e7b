"""Claims from queues that have limits: under an advisory lock per queue, one claim at a time.

The policy decides here which job is next; the database tells which jobs are first, how many are in
flight and which tenant had the last turn. Queues without limits in the same request take part, so
that priorities hold across all of them.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from holdfast.engines.contract import MAX_CLAIM
from holdfast.engines.postgres import rows
from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.sansio import Row, SansIO, Statement, execute, execute_all
from holdfast.engines.postgres.outages import outage_lock, put_outages
from holdfast.model import lifecycle
from holdfast.model import outage as outage_rules
from holdfast.model.job import Job
from holdfast.model.outage import Outage, dependency_of
from holdfast.model.policy import DEFAULT_POLICY, QueuePolicy

from . import claim_statements
from .claim_statements import (
    ClaimRequest,
    QueueHeads,
    Watermark,
    in_order,
    read_watermarks,
    survey_of,
    watermark_columns,
)

_FIRST_PAGE = 20
"""How many jobs of each tenant or priority are read first."""
_LATER = 2**62
"""Greater than every token: the turn of tenants whose jobs are picked in this claim."""


class ClaimBudget:
    """What the queues allow, and how much of it is used."""

    def __init__(
        self, limits: Iterable[Row], in_flight: Iterable[Row], turns: Iterable[Row]
    ) -> None:
        self.policies: dict[str, QueuePolicy] = {}
        self.spent_until_us: dict[str, int] = {}
        self.by_tenant: list[str] = []
        self.outages: dict[str, Outage] = {}
        self.taken_from: set[str] = set()
        """The dependencies with an outage of which jobs are handed out."""
        for queue, line, spent_until_us, policy, outage in limits:
            if policy is not None:
                self.policies[queue] = rows.POLICY.decode(policy)
                self.spent_until_us[queue] = spent_until_us
            if outage is not None:
                self.outages[dependency_of(queue)] = rows.OUTAGE.decode(outage)
            if line == 2:
                self.by_tenant.append(queue)
        self.in_flight: Counter[str] = Counter()
        self.tenants: Counter[tuple[str, str]] = Counter()
        self.keys: Counter[tuple[str, str, str]] = Counter()
        for queue, tenant, key, count in in_flight:
            self._add_in_flight(queue, tenant, key, count)
        self.turns: dict[tuple[str, str], int] = {
            (queue, tenant): token for queue, tenant, token in turns
        }

    def policy(self, queue: str) -> QueuePolicy:
        """Return what a queue allows."""
        return self.policies.get(queue, DEFAULT_POLICY)

    def open(self, queue: str, now_us: int) -> bool:
        """Whether a queue may hand out another job."""
        outage = self.outages.get(dependency_of(queue)) if self.outages else None
        if outage is not None and not outage_rules.room(outage, now_us):
            return False
        spent_us = self.spent_until_us.get(queue, 0)
        return self.policy(queue).room(self.in_flight[queue], spent_us, now_us) != 0

    def allow(self, job: Job) -> bool:
        """Whether its tenant and key leave room for this job."""
        policy, key = self.policy(job.queue), job.ties.key
        if not _below(self.tenants[job.queue, job.tenant], policy.max_per_tenant):
            return False
        return key is None or _below(self.keys[job.queue, job.tenant, key], policy.max_per_key)

    def take(self, job: Job, number: int, now_us: int) -> None:
        """Count a job that is handed out."""
        self._add_in_flight(job.queue, job.tenant, job.ties.key, 1)
        self.turns[job.queue, job.tenant] = _LATER + number
        spent_us = self.spent_until_us.get(job.queue, 0)
        self.spent_until_us[job.queue] = self.policy(job.queue).spend(spent_us, now_us)
        outage = self.outages.get(dependency_of(job.queue)) if self.outages else None
        if outage is not None:
            self.outages[outage.dependency] = outage_rules.claimed(outage, now_us)
            self.taken_from.add(outage.dependency)

    def _add_in_flight(self, queue: str, tenant: str, key: str | None, count: int) -> None:
        self.in_flight[queue] += count
        self.tenants[queue, tenant] += count
        if key is not None:
            self.keys[queue, tenant, key] += count


class DueJobs:
    """Due jobs by queue and tenant, in their order."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._queues: defaultdict[str, defaultdict[str, list[Job]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for job in sorted(jobs, key=_order, reverse=True):
            self._queues[job.queue][job.tenant].append(job)  # the first one is the last in its list

    def pick(self, budget: ClaimBudget, limit: int, now_us: int) -> list[Job]:
        """Remove and return jobs, one after another, as long as the budget allows."""
        picked: list[Job] = []
        while len(picked) < limit:
            offers = [self._next(queue, budget, now_us) for queue in self._queues]
            best = min(filter(None, offers), key=_order, default=None)
            if best is None:
                break
            self._queues[best.queue][best.tenant].pop()
            picked.append(best)
            budget.take(best, len(picked), now_us)
        return picked

    def left(self) -> set[tuple[str, str, int]]:
        """Return the queue, tenant and priority of jobs that were not picked."""
        return {
            (job.queue, job.tenant, job.priority)
            for tenants in self._queues.values()
            for jobs in tenants.values()
            for job in jobs
        }

    def _next(self, queue: str, budget: ClaimBudget, now_us: int) -> Job | None:
        if not budget.open(queue, now_us):
            return None
        heads: list[Job] = []
        for jobs in self._queues[queue].values():
            while jobs and not budget.allow(jobs[-1]):
                jobs.pop()  # the budget only shrinks: it will not be allowed later
            if jobs:
                heads.append(jobs[-1])
        if not budget.policy(queue).fair:
            return min(heads, key=_order, default=None)
        return min(
            heads,
            key=lambda job: (budget.turns.get((queue, job.tenant), 0), _order(job)),
            default=None,
        )


def queues_in_parts(survey: QueueHeads, request: ClaimRequest) -> Iterator[tuple[str, ...]]:
    """Yield the queues of a request that may have work, in parts if there are very many of them.

    Each is locked, and a server has no room for very many locks. Those with the first jobs come
    first. Where tenants take turns it is not known who has work: none of them is always the last.
    """
    size = claim_statements.MANY_WATERMARKS
    if len(request.queues) <= size:
        yield request.queues
        return
    due = [one for one in survey.watermarks if one.run_at_us <= survey.now_us]
    first = list(dict.fromkeys(one.queue for one in in_order(due)))
    known = set(first)
    others = [queue for queue, *_limit in survey.limits if queue not in known]
    random.shuffle(others)
    for start in range(0, max(len(first), len(others)), size):
        yield (*first[start : start + size], *others[start : start + size])


def claim_with_limits(request: ClaimRequest, context: CallContext) -> SansIO[list[Job]]:
    """Claim from queues some of which have limits; see ``Engine.claim``."""
    queues = {"queues": list(request.queues)}
    locks = [f"queue/{queue}" for queue in request.queues]
    locks += [outage_lock(dependency_of(queue)) for queue in request.queues]
    yield from execute("lock_keys", names=locks)
    yield from execute("realign_lines", **queues)
    picked, budget, now_us = yield from pick(request, context)
    return (yield from _hand_out(picked, budget, request, now_us, context))


def pick(request: ClaimRequest, context: CallContext) -> SansIO[tuple[list[Job], ClaimBudget, int]]:
    """Decide what to claim, without claiming it; return also what is left, and the time."""
    queues = {"queues": list(request.queues)}
    found, in_flight, turns = yield from execute_all(
        read_watermarks(request, context),
        Statement("count_in_flight", queues),
        Statement("read_turns", queues),
    )
    now_us, watermarks, limits, *_fresh = survey_of(found, request)
    size = _FIRST_PAGE
    while True:
        budget = ClaimBudget(limits, in_flight, turns)
        jobs, full = yield from _candidates(request, watermarks, budget, size, now_us, context)
        due = DueJobs(jobs)
        picked = due.pick(budget, request.limit, now_us)
        if len(picked) == request.limit or size >= MAX_CLAIM or full <= _groups(due, budget):
            break
        size *= 8  # a full group was used up: there may be more jobs behind its page
    return picked, budget, now_us


def _candidates(
    request: ClaimRequest,
    watermarks: Sequence[Watermark],
    budget: ClaimBudget,
    size: int,
    now_us: int,
    context: CallContext,
) -> SansIO[tuple[list[Job], set[tuple[str, str | int]]]]:
    """Return the first jobs of each group, and the groups of which there may be more.

    A group is a tenant where tenants take turns, else a priority.
    """
    parameters = {**request.parameters(context), "limit": size, "at_us": now_us}
    common = [watermark for watermark in watermarks if watermark.queue not in budget.by_tenant]
    by_tenant, by_priority = yield from execute_all(
        Statement("find_tenant_candidates", {**parameters, "queues": budget.by_tenant}),
        Statement("find_candidates", {**parameters, **watermark_columns(common)}),
    )
    theirs = [rows.job_of(row) for row in by_tenant]
    others = [rows.job_of(row) for row in by_priority]
    counts: Counter[tuple[str, str | int]] = Counter()
    counts.update((job.queue, job.tenant) for job in theirs)
    counts.update((job.queue, job.priority) for job in others)
    return [*theirs, *others], {group for group, count in counts.items() if count >= size}


def _groups(due: DueJobs, budget: ClaimBudget) -> set[tuple[str, str | int]]:
    """Return the groups that have jobs left."""
    return {
        (queue, tenant) if queue in budget.by_tenant else (queue, priority)
        for queue, tenant, priority in due.left()
    }


def _hand_out(
    picked: Sequence[Job],
    budget: ClaimBudget,
    request: ClaimRequest,
    now_us: int,
    context: CallContext,
) -> SansIO[list[Job]]:
    if not picked:
        return []
    terms = lifecycle.LeaseTerms(now_us, request.lease_seconds, context.max_processing_seconds)
    tokens = yield from execute("take_tokens", count=len(picked))
    claims = [
        lifecycle.claim(job, token, request.worker, terms)
        for job, (token,) in zip(picked, tokens, strict=True)
    ]
    claimed = yield from execute(
        "claim_by_id",
        **rows.names((claim.tenant, claim.id) for claim in claims),
        tokens=[claim.token for claim in claims],
        lease_until_us=[claim.lease_until_us for claim in claims],
        worker=request.worker,
        nonce=request.nonce,
        at_us=now_us,
    )
    jobs = {(job.tenant, job.id): job for job in map(rows.job_of, claimed)}
    turns: dict[tuple[str, str], int] = {}
    for job, claim in zip(picked, claims, strict=True):
        if (job.tenant, job.id) in jobs:
            turns[job.queue, job.tenant] = claim.token
    yield from execute("put_turns", **_turn_columns(turns), **_spent(budget))
    yield from put_outages([budget.outages[name] for name in sorted(budget.taken_from)])
    return [jobs[job.tenant, job.id] for job in picked if (job.tenant, job.id) in jobs]


def _turn_columns(turns: Mapping[tuple[str, str], int]) -> dict[str, object]:
    return {
        "queues": [queue for queue, _tenant in turns],
        "tenants": [tenant for _queue, tenant in turns],
        "tokens": list(turns.values()),
    }


def _spent(budget: ClaimBudget) -> dict[str, object]:
    spent = {
        queue: budget.spent_until_us[queue]
        for queue, policy in budget.policies.items()
        if policy.rate is not None
    }
    return {"spent_queues": list(spent), "spent_until_us": list(spent.values())}


def opens_at_us(limits: Iterable[Row], now_us: int) -> int | None:
    """Return when a rate or an outage next allows a claim, if time alone does that."""
    moments: list[int | None] = []
    for _queue, _line, spent_until_us, policy, outage in limits:
        if policy is not None:
            moments.append(rows.POLICY.decode(policy).opens_at_us(spent_until_us, now_us))
        if outage is not None:
            moments.append(outage_rules.opens_at_us(rows.OUTAGE.decode(outage), now_us))
    return min((moment for moment in moments if moment is not None), default=None)


def _order(job: Job) -> tuple[int, int, int]:
    return -job.priority, job.run_at_us, job.seq


def _below(count: int, most: int | None) -> bool:
    return most is None or count < most
