"""Why a claim would not return a job now: the rule of claiming, asked about one job.

Each engine supplies a ``ClaimSituation``; the answer follows from it. A job has no blocker exactly
when a claim from its queue, for all tasks and as many jobs as a claim may return, returns it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from . import outage as outages
from .job import Job, State
from .outage import Outage
from .policy import DEFAULT_POLICY, QueuePolicy


class BlockerKind(enum.StrEnum):
    """What keeps a job from being claimed."""

    STATE = "state"
    """It is in flight or finished."""
    DEPENDENCY = "dependency"
    CONFIRMATION = "confirmation"
    KEY = "key"
    """Another job of its key goes first."""
    RUN_AT = "run_at"
    EXPIRED = "expired"
    PAUSED = "paused"
    OUTAGE = "outage"
    MAX_IN_FLIGHT = "max_in_flight"
    MAX_PER_TENANT = "max_per_tenant"
    MAX_PER_KEY = "max_per_key"
    RATE = "rate"
    TURN = "turn"
    """So many others go first that even the largest claim does not reach it."""


class Blocker(msgspec.Struct, frozen=True, array_like=True):
    """One thing that keeps a job from being claimed."""

    kind: BlockerKind
    job: str = ""
    """The job that goes first, or that it depends on."""
    state: State | None = None
    """The state of that job, or of this one; None: that job is gone."""
    until_us: int | None = None
    """When time alone ends it."""
    most: int = 0
    """How many the limit allows."""
    in_flight: int = 0
    """How many of those are in flight."""
    ahead: int = 0
    """How many due jobs go first and take the rest."""


class Explanation(msgspec.Struct, frozen=True, array_like=True):
    """A job, and what keeps it from being claimed at this time."""

    job: Job
    at_us: int
    blockers: tuple[Blocker, ...] = ()
    ahead: int = 0
    """If nothing does: how many due jobs of its queue come before it."""


class ClaimUsage(msgspec.Struct, frozen=True):
    """What counts against the limits of a queue: jobs in flight, and how far its rate is spent."""

    in_flight: int = 0
    of_tenant: int = 0
    of_key: int = 0
    spent_until_us: int = 0


class ClaimSituation(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides whether a claim returns this job."""

    now_us: int
    policy: QueuePolicy = DEFAULT_POLICY
    usage: ClaimUsage = ClaimUsage()
    key_head: Job | None = None
    """The job of its key that goes first: see ``key_head``."""
    dependencies: Mapping[str, State | None] = {}
    """What it waits for; None: gone."""
    claimable: tuple[Job, ...] = ()
    """What the largest claim from its queue would return, in order, this job included.

    Of a queue without limits this job alone is enough, with ``before``.
    """
    before: int = 0
    """How many jobs a claim would return before those."""
    outage: Outage | None = None
    """The outage of what its queue needs, while it lasts."""


def explain(job: Job, situation: ClaimSituation) -> Explanation:
    """Return what keeps this job from being claimed."""
    for ahead, other in enumerate(situation.claimable):
        if (other.tenant, other.id) == (job.tenant, job.id):
            return Explanation(job, situation.now_us, (), situation.before + ahead)
    found = tuple(_blockers(job, situation))
    before = situation.before + len(situation.claimable)
    turn = Blocker(BlockerKind.TURN, ahead=before)
    return Explanation(job, situation.now_us, found or (turn,))


def key_head(job: Job, of_key: Iterable[Job]) -> Job | None:
    """Return the job of its key that goes first, in a queue that keeps keys in order.

    That is one in flight, else the first before it that is unfinished or dead.
    """
    first: Job | None = None
    for other in of_key:
        if other.id == job.id:
            continue
        if other.state is State.IN_FLIGHT:
            return other
        goes_first = other.ties.key_seq < job.ties.key_seq and (
            not other.state.finished or other.state is State.DEAD
        )
        if goes_first and (first is None or other.ties.key_seq < first.ties.key_seq):
            first = other
    return first


def _blockers(job: Job, situation: ClaimSituation) -> Iterator[Blocker]:
    if job.state not in (State.PENDING, State.BLOCKED):
        yield Blocker(BlockerKind.STATE, state=job.state)
        return
    own = list(_own_blockers(job, situation))
    yield from own
    yield from _limits(job, situation, due=not own)


def _own_blockers(job: Job, situation: ClaimSituation) -> Iterator[Blocker]:
    """Yield what keeps this job back whatever its queue allows."""
    for job_id, state in situation.dependencies.items():
        yield Blocker(BlockerKind.DEPENDENCY, job_id, state)
    if job.ties.hold:
        yield Blocker(BlockerKind.CONFIRMATION)
    head = situation.key_head
    if head is not None:
        yield Blocker(BlockerKind.KEY, head.id, head.state)
    if job.run_at_us > situation.now_us:
        yield Blocker(BlockerKind.RUN_AT, until_us=job.run_at_us)
    if job.expires_at_us is not None and job.expires_at_us <= situation.now_us:
        yield Blocker(BlockerKind.EXPIRED, until_us=job.expires_at_us)


def _limits(job: Job, situation: ClaimSituation, *, due: bool) -> Iterator[Blocker]:
    """Yield the limits of its queue that are reached; for a ``due`` job also by those before it."""
    policy, usage, now_us = situation.policy, situation.usage, situation.now_us
    before = [other for other in situation.claimable if due and _order(other) < _order(job)]
    # Where tenants take turns, any of them may have come before it.
    first = situation.claimable if due and policy.fair else before
    if policy.paused:
        yield Blocker(BlockerKind.PAUSED)
        return
    outage = situation.outage
    if outage is not None:
        for _other in first:
            outage = outages.claimed(outage, now_us)
        if not outages.room(outage, now_us):
            opens_us = outages.opens_at_us(outage, now_us)
            yield Blocker(BlockerKind.OUTAGE, until_us=opens_us, ahead=len(first))
    theirs = [other for other in before if other.tenant == job.tenant]
    of_key = sum(other.ties.key == job.ties.key for other in theirs)
    for kind, most, in_flight, ahead in (
        (BlockerKind.MAX_IN_FLIGHT, policy.max_in_flight, usage.in_flight, len(first)),
        (BlockerKind.MAX_PER_TENANT, policy.max_per_tenant, usage.of_tenant, len(theirs)),
        (BlockerKind.MAX_PER_KEY, policy.max_per_key, usage.of_key, of_key),
    ):
        if most is None or (kind is BlockerKind.MAX_PER_KEY and job.ties.key is None):
            continue
        if in_flight + ahead >= most:
            yield Blocker(kind, most=most, in_flight=in_flight, ahead=ahead)
    if policy.rate is not None:
        spent_us = usage.spent_until_us
        for _other in first:
            spent_us = policy.spend(spent_us, now_us)
        free_us = spent_us - (policy.rate.count - 1) * policy.rate.interval_us
        if free_us > now_us:
            most = policy.rate.count
            yield Blocker(BlockerKind.RATE, until_us=free_us, most=most, ahead=len(first))


def _order(job: Job) -> tuple[int, int, int]:
    return -job.priority, job.run_at_us, job.seq
