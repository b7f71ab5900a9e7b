"""Handing out work of queues that have limits: one claim at a time decides, queue by queue.

Who may go next is decided here, by the policy; the database says who stands first in which line,
who is in flight and whose turn it was. Queues without limits that are asked for together with
others take part, so that priorities hold across all of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from holdfast.engines.contract import MAX_CLAIM
from holdfast.engines.postgres import rows
from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.sansio import Row, SansIO, Statement, execute, execute_all
from holdfast.model import lifecycle
from holdfast.model.job import Job
from holdfast.model.policy import DEFAULT_POLICY, QueuePolicy

from .claim import ClaimRequest, Watermark, lane_columns, look, looked_at

POLICY = msgspec.msgpack.Decoder(QueuePolicy)
_FIRST_LOOK = 20
"""How many jobs of each line are looked at before more are."""
_LATER = 2**62
"""After every token: the turn of whoever is picked in this claim."""


class ClaimBudget:
    """What the queues allow, and how much of it is used up."""

    def __init__(self, limits: Iterable[Row], flying: Iterable[Row], turns: Iterable[Row]) -> None:
        self.policies: dict[str, QueuePolicy] = {}
        self.spent_until_us: dict[str, int] = {}
        self.by_tenant: list[str] = []
        for queue, line, spent_until_us, policy in limits:
            self.policies[queue] = POLICY.decode(policy)
            self.spent_until_us[queue] = spent_until_us
            if line == 2:
                self.by_tenant.append(queue)
        self.in_flight: Counter[str] = Counter()
        self.tenants: Counter[tuple[str, str]] = Counter()
        self.keys: Counter[tuple[str, str, str]] = Counter()
        for queue, tenant, key, count in flying:
            self._fly(queue, tenant, key, count)
        self.turns: dict[tuple[str, str], int] = {(one[0], one[1]): one[2] for one in turns}

    def policy(self, queue: str) -> QueuePolicy:
        """Return what a queue allows."""
        return self.policies.get(queue, DEFAULT_POLICY)

    def open(self, queue: str, now_us: int) -> bool:
        """Whether a queue may hand out another job."""
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
        self._fly(job.queue, job.tenant, job.ties.key, 1)
        self.turns[job.queue, job.tenant] = _LATER + number
        spent_us = self.spent_until_us.get(job.queue, 0)
        self.spent_until_us[job.queue] = self.policy(job.queue).spend(spent_us, now_us)

    def _fly(self, queue: str, tenant: str, key: str | None, count: int) -> None:
        self.in_flight[queue] += count
        self.tenants[queue, tenant] += count
        if key is not None:
            self.keys[queue, tenant, key] += count


class DueJobs:
    """Due jobs, by queue and tenant, each line in its order."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._lines: defaultdict[str, defaultdict[str, list[Job]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for job in sorted(jobs, key=_order, reverse=True):
            self._lines[job.queue][job.tenant].append(job)

    def pick(self, limits: ClaimBudget, limit: int, now_us: int) -> list[Job]:
        """Take jobs off the lines, one after another, as long as the limits allow."""
        picked: list[Job] = []
        while len(picked) < limit:
            offers = [self._offer(queue, limits, now_us) for queue in self._lines]
            best = min(filter(None, offers), key=_order, default=None)
            if best is None:
                break
            self._lines[best.queue][best.tenant].pop()
            picked.append(best)
            limits.take(best, len(picked), now_us)
        return picked

    def left(self) -> set[tuple[str, str, int]]:
        """Return the queue, tenant and priority of jobs that were not picked."""
        return {
            (job.queue, job.tenant, job.priority)
            for lines in self._lines.values()
            for line in lines.values()
            for job in line
        }

    def _offer(self, queue: str, limits: ClaimBudget, now_us: int) -> Job | None:
        if not limits.open(queue, now_us):
            return None
        heads: list[Job] = []
        for line in self._lines[queue].values():
            while line and not limits.allow(line[-1]):
                line.pop()  # room is only taken here, never made
            if line:
                heads.append(line[-1])
        if not limits.policy(queue).fair:
            return min(heads, key=_order, default=None)
        return min(
            heads,
            key=lambda job: (limits.turns.get((queue, job.tenant), 0), _order(job)),
            default=None,
        )


def claim_with_limits(wish: ClaimRequest, on: CallContext) -> SansIO[list[Job]]:
    """Claim from queues some of which have limits; see ``Engine.claim``."""
    queues = {"queues": list(wish.queues)}
    yield from execute("lock_keys", names=[f"queue/{queue}" for queue in wish.queues])
    yield from execute("realign_lines", **queues)
    told, flying, turns = yield from execute_all(
        look(wish, on), Statement("count_in_flight", queues), Statement("read_turns", queues)
    )
    now_us, lanes, policies = looked_at(told)
    size = _FIRST_LOOK
    while True:
        limits = ClaimBudget(policies, flying, turns)
        jobs, full = yield from _candidates(wish, lanes, limits, size, now_us, on)
        lines = DueJobs(jobs)
        picked = lines.pick(limits, wish.limit, now_us)
        if len(picked) == wish.limit or size >= MAX_CLAIM or full <= _groups(lines, limits):
            break
        size *= 8  # a line ended early: there may be more behind what was looked at
    return (yield from _hand_out(picked, limits, wish, now_us, on))


def _candidates(
    wish: ClaimRequest,
    lanes: Sequence[Watermark],
    limits: ClaimBudget,
    size: int,
    now_us: int,
    on: CallContext,
) -> SansIO[tuple[list[Job], set[tuple[str, str | int]]]]:
    """Return the first jobs of each line, and the lines of which there may be more."""
    parameters = {**wish.parameters(on), "limit": size, "at_us": now_us}
    common = [lane for lane in lanes if lane.queue not in limits.by_tenant]
    by_tenant, in_lanes = yield from execute_all(
        Statement("find_tenant_candidates", {**parameters, "queues": limits.by_tenant}),
        Statement("find_candidates", {**parameters, **lane_columns(common)}),
    )
    theirs = [rows.job_of(row) for row in by_tenant]
    others = [rows.job_of(row) for row in in_lanes]
    counts: Counter[tuple[str, str | int]] = Counter()
    counts.update((job.queue, job.tenant) for job in theirs)
    counts.update((job.queue, job.priority) for job in others)
    return [*theirs, *others], {group for group, count in counts.items() if count >= size}


def _groups(lines: DueJobs, limits: ClaimBudget) -> set[tuple[str, str | int]]:
    """Return the lines that have jobs left."""
    return {
        (queue, tenant) if queue in limits.by_tenant else (queue, priority)
        for queue, tenant, priority in lines.left()
    }


def _hand_out(
    picked: Sequence[Job], limits: ClaimBudget, wish: ClaimRequest, now_us: int, on: CallContext
) -> SansIO[list[Job]]:
    if not picked:
        return []
    terms = lifecycle.LeaseTerms(now_us, wish.lease_seconds, on.max_processing_seconds)
    tokens = yield from execute("take_tokens", count=len(picked))
    claims = [
        lifecycle.claim(job, token, wish.worker, terms)
        for job, (token,) in zip(picked, tokens, strict=True)
    ]
    told = yield from execute(
        "claim_by_id",
        **rows.names((claim.tenant, claim.id) for claim in claims),
        tokens=[claim.token for claim in claims],
        lease_until_us=[claim.lease_until_us for claim in claims],
        worker=wish.worker,
        nonce=wish.nonce,
        at_us=now_us,
    )
    jobs = {(job.tenant, job.id): job for job in map(rows.job_of, told)}
    turns: dict[tuple[str, str], int] = {}
    for job, claim in zip(picked, claims, strict=True):
        if (job.tenant, job.id) in jobs:
            turns[job.queue, job.tenant] = claim.token
    yield from execute_all(Statement("put_turns", {**_turn_columns(turns), **_spent(limits)}))
    return [jobs[job.tenant, job.id] for job in picked if (job.tenant, job.id) in jobs]


def _turn_columns(turns: Mapping[tuple[str, str], int]) -> dict[str, object]:
    return {
        "queues": [queue for queue, _tenant in turns],
        "tenants": [tenant for _queue, tenant in turns],
        "tokens": list(turns.values()),
    }


def _spent(limits: ClaimBudget) -> dict[str, object]:
    spent = {
        queue: limits.spent_until_us[queue]
        for queue, policy in limits.policies.items()
        if policy.rate is not None
    }
    return {"spent_queues": list(spent), "spent_until_us": list(spent.values())}


def opens_at_us(policies: Iterable[Row], now_us: int) -> int | None:
    """Return when time alone lets one of these queues hand out more."""
    moments = [
        opens_us
        for _queue, _line, spent_until_us, policy in policies
        if (opens_us := POLICY.decode(policy).opens_at_us(spent_until_us, now_us)) is not None
    ]
    return min(moments, default=None)


def _order(job: Job) -> tuple[int, int, int]:
    return -job.priority, job.run_at_us, job.seq


def _below(count: int, most: int | None) -> bool:
    return most is None or count < most
