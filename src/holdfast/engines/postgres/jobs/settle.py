"""The verbs of those who hold jobs, and of whoever ends what nobody holds any more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.engines.clock import monotonic
from holdfast.engines.contract import HeldJob, Reclaim, Renewal
from holdfast.engines.embedded.dependents import DependentEffects
from holdfast.engines.postgres import rows
from holdfast.engines.postgres.admin.audit import add_audit
from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.sansio import (
    SansIO,
    Statement,
    execute,
    execute_all,
    execute_last,
)
from holdfast.model import lifecycle
from holdfast.model.access import Caller
from holdfast.model.audit import Attribution
from holdfast.model.effects import (
    SETTINGS,
    Archived,
    Cancelled,
    Completed,
    Effect,
    Purged,
    job_key,
)
from holdfast.model.errors import LeaseLost
from holdfast.model.job import MAX_LEASE_SECONDS, MICROSECONDS, Job, JobRef, State
from holdfast.model.outcome import Outcome, OutcomeKind

from .unit_of_work import Key, Name, UnitOfWork, alone_with

Lease = tuple[str, str, int]
"""A job's tenant and id, and the token under which it is held."""


def lease_of(held_job: HeldJob | Outcome) -> Lease:
    """Return what names a lease."""
    return held_job.tenant, held_job.id, held_job.token


def leases(some: Iterable[Lease]) -> dict[str, object]:
    """Return leases as columns."""
    listed = list(some)
    return {**rows.names(one[:2] for one in listed), "tokens": [one[2] for one in listed]}


def complete(outcomes: Sequence[Outcome], caller: Caller, on: CallContext) -> Statement:
    """Ask to complete these: one statement, for jobs whose end means nothing to others."""
    parameters = {
        **leases(map(lease_of, outcomes)),
        **rows.reach(caller),
        "results": [outcome.result for outcome in outcomes],
        "now_us": on.now_us,
    }
    return Statement("complete", parameters)


def first_of_each(outcomes: Sequence[Outcome]) -> dict[Lease, Outcome]:
    """Return the outcomes that count: a second one for the same lease comes too late."""
    first: dict[Lease, Outcome] = {}
    for outcome in outcomes:
        first.setdefault(lease_of(outcome), outcome)
    return first


def completions(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Return those that say that all is well."""
    return [outcome for outcome in outcomes if outcome.kind is OutcomeKind.COMPLETED]


def answers(outcomes: Sequence[Outcome], settled: set[Lease]) -> list[LeaseLost | None]:
    """Return what to say of each outcome, when these leases were ended by them."""
    left = set(settled)
    found: list[LeaseLost | None] = []
    for outcome in outcomes:
        lease = lease_of(outcome)
        found.append(None if lease in left else LeaseLost(outcome.id, outcome.token))
        left.discard(lease)
    return found


def settle_simply(
    outcomes: Sequence[Outcome], caller: Caller, on: CallContext
) -> SansIO[tuple[set[Lease], list[Outcome]]]:
    """Complete what can be in one step; return that, and the outcomes that are left."""
    first = first_of_each(outcomes)
    plain = completions(first.values())
    if not plain:
        return set(), list(first.values())
    [told] = yield from execute_last(complete(plain, caller, on))
    tokens = {row[0] for row in told}
    done = {lease_of(outcome) for outcome in plain if outcome.token in tokens}
    return done, [outcome for lease, outcome in first.items() if lease not in done]


def settle_with_care(
    outcomes: Sequence[Outcome], caller: Caller, on: CallContext
) -> SansIO[tuple[set[Lease], UnitOfWork]]:
    """Settle outcomes, with all that follows from them; return the leases that this ended."""
    first = first_of_each(outcomes)
    names = rows.names(lease[:2] for lease in first)
    [[[now_us]], keys] = yield from execute_all(on.now(), Statement("find_keys", names))
    yield from execute_all(*alone_with([(tenant, queue, key) for tenant, queue, key in keys]))
    found = yield from execute("lock_held", **leases(first), **rows.reach(caller))
    jobs = {(job.tenant, job.id, job.token): job for job in map(rows.job_of, found)}
    ended = [
        (job, lifecycle.settle(job, outcome, max(now_us, job.claimed_at_us)))
        for lease, outcome in first.items()
        if (job := jobs.get(lease)) is not None
    ]
    changes = yield from changed(ended, now_us)
    yield from after_changes(changes, on)
    return set(jobs), changes


def changed(ended: Sequence[tuple[Job, Effect]], now_us: int) -> SansIO[UnitOfWork]:
    """Write these effects, and what follows from them for those that wait."""
    changes = UnitOfWork()
    jobs: dict[Name, Job] = {(job.tenant, job.id): job for job, _effect in ended}
    dependents = yield from _dependents([effect for _job, effect in ended])
    for waiting in dependents.values():
        jobs.update({(job.tenant, job.id): job for job in waiting})
    of_one = lambda tenant, job_id: sorted(
        dependents.get((tenant, job_id), ()), key=lambda job: job.seq
    )
    effects = DependentEffects(of_one, now_us).after(effect for _job, effect in ended)
    for effect in effects:
        if not isinstance(effect, SETTINGS):
            changes.add(jobs[job_key(effect)], effect)
    yield from changes.write()
    return changes


def _dependents(effects: Sequence[Effect]) -> SansIO[dict[Name, list[Job]]]:
    """Return who waits for what these effects end; and for those that are taken along."""
    found: defaultdict[Name, list[Job]] = defaultdict(list)
    completed = [job_key(effect) for effect in effects if isinstance(effect, Completed)]
    taking = [job_key(e) for e in effects if isinstance(e, Cancelled | Purged | Archived)]
    asked: set[Name] = set()
    while completed or taking:
        about = {*completed, *taking} - asked
        if not about:
            break
        asked |= about
        waiting = yield from execute("lock_dependents", **rows.names(sorted(about)))
        jobs = [rows.job_of(row) for row in waiting]
        along = set(taking)
        completed, taking = [], []
        for job in jobs:
            for needed in job.ties.waiting_for:
                if (job.tenant, needed) in about:
                    found[job.tenant, needed].append(job)
                if (job.tenant, needed) in along:
                    taking.append((job.tenant, job.id))
    return found


def after_changes(changes: UnitOfWork, on: CallContext) -> SansIO[None]:
    """Tell those who wait, and forget the turns of tenants that have nothing left."""
    asks: list[Statement] = []
    finished = {(job.queue, job.tenant) for job in changes.finished()}
    if finished:
        gone = sorted(finished)
        parameters: dict[str, object] = {
            "queues": [one[0] for one in gone],
            "tenants": [one[1] for one in gone],
        }
        asks.append(Statement("drop_turns", parameters))
    queues = changes.queues()
    if queues:
        asks.append(on.notify(queues))
    yield from execute_all(*asks)


# --- leases ----------------------------------------------------------------------------------


def extend(
    held_jobs: Sequence[HeldJob], lease_seconds: float, caller: Caller, on: CallContext
) -> SansIO[list[Renewal | LeaseLost]]:
    """Renew leases; see ``Engine.extend``."""
    wanted = [lease_of(one) for one in held_jobs]
    told = yield from execute_last(
        Statement(
            "extend",
            {
                **leases(dict.fromkeys(wanted)),
                **rows.reach(caller),
                "lease_us": int(min(lease_seconds, MAX_LEASE_SECONDS) * MICROSECONDS),
                "max_processing_seconds": on.max_processing_seconds,
                "now_us": on.now_us,
            },
        )
    )
    renewed = {
        (tenant, job_id, token): Renewal(until_us, stop)
        for token, tenant, job_id, until_us, stop in told[0]
    }
    return [renewed.get(lease) or LeaseLost(lease[1], lease[2]) for lease in wanted]


class LeaseScanResult(NamedTuple):
    """A look after which nothing more was overdue: at which time, and how long it took."""

    at_us: int
    took_seconds: float


class ReclaimResult(NamedTuple):
    """What was reclaimed; nothing is ``seen`` if there may be more."""

    found: Reclaim
    changes: UnitOfWork
    seen: LeaseScanResult | None


def reclaim(
    limit: int,
    forced: Sequence[JobRef],
    attribution: Attribution | None,
    caller: Caller,
    on: CallContext,
    since_us: int = 0,
) -> SansIO[ReclaimResult]:
    """End leases that ran out since then, and bury what expired; see ``Engine.reclaim``."""
    some = {**rows.reach(caller), "limit": limit, "now_us": on.now_us}
    began = monotonic()
    [[[now_us]], overdue, expired] = yield from execute_all(
        on.now(),
        Statement("find_overdue", {**some, "since_us": since_us}),
        Statement("find_expired", some),
    )
    seen = LeaseScanResult(now_us, monotonic() - began) if len(overdue) < limit else None
    named = list(dict.fromkeys((ref.tenant, ref.id) for ref in forced))
    names = list(dict.fromkeys([*named, *map(_two, overdue), *map(_two, expired)]))
    if not names:
        return ReclaimResult(Reclaim([], []), UnitOfWork(), seen)
    jobs = yield from locked(names)
    lost = [
        (job, lifecycle.lose(job, max(now_us, job.claimed_at_us), "stuck", _why(attribution)))
        for name in named
        if (job := jobs.get(name)) is not None
        and job.state is State.IN_FLIGHT
        and caller.reaches(job.tenant, job.scope)
    ]
    forced_ones = {(job.tenant, job.id) for job, _effect in lost}
    for name in map(_two, overdue):
        job = jobs.get(name)
        if job is None or name in forced_ones or not _is_overdue(job, now_us):
            continue
        reason, message = lifecycle.why_overdue(job, on.max_processing_seconds)
        lost.append((job, lifecycle.lose(job, now_us, reason, message)))
    unclaimed = [
        (job, lifecycle.expire(job, now_us))
        for name in map(_two, expired)
        if (job := jobs.get(name)) is not None and _has_expired(job, now_us)
    ]
    ended: list[tuple[Job, Effect]] = [*lost, *unclaimed]
    changes = yield from changed(ended, now_us)
    if attribution is not None and forced_ones:
        yield from add_audit(attribution.audit, now_us)
    yield from after_changes(changes, on)
    after = [changes.job((job.tenant, job.id)) for job, _effect in ended]
    kept = [job for job in after if job is not None]
    return ReclaimResult(Reclaim(kept[: len(lost)], kept[len(lost) :]), changes, seen)


def locked(names: Sequence[Name]) -> SansIO[dict[Name, Job]]:
    """Lock unfinished jobs, and their keys before them; return them as they are."""
    keys = yield from execute("find_keys", **rows.names(names))
    found: list[Key] = [(tenant, queue, key) for tenant, queue, key in keys]
    yield from execute_all(*alone_with(found))
    told = yield from execute("lock_jobs", **rows.names(names))
    return {(job.tenant, job.id): job for job in map(rows.job_of, told)}


def _why(attribution: Attribution | None) -> str:
    if attribution is None:
        return "an operator ended its lease"
    return f"{attribution.by} ended its lease: {attribution.why}"


def _is_overdue(job: Job, now_us: int) -> bool:
    return job.state is State.IN_FLIGHT and job.lease_until_us <= now_us


def _has_expired(job: Job, now_us: int) -> bool:
    unclaimed = job.state in (State.PENDING, State.BLOCKED)
    return unclaimed and job.expires_at_us is not None and job.expires_at_us <= now_us


def _two(row: tuple[str, ...]) -> Name:
    return row[0], row[1]
