"""Reclaim: ends leases that ran out, and jobs that expired unclaimed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from holdfast.engines.clock import monotonic
from holdfast.engines.contract import Reclaim
from holdfast.engines.postgres import rows
from holdfast.engines.postgres.admin.audit import add_audit
from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.sansio import SansIO, Statement, execute, execute_all
from holdfast.engines.postgres.jobs.chains import find_chains
from holdfast.engines.postgres.jobs.key_lines import KeyLines
from holdfast.engines.postgres.jobs.settle_statements import after_changes, write_effects
from holdfast.engines.postgres.jobs.unit_of_work import (
    Key,
    Name,
    UnitOfWork,
    lock_keys_of,
    try_lock_keys_of,
)
from holdfast.engines.postgres.resources import EngineResources
from holdfast.model import lifecycle
from holdfast.model.access import Caller
from holdfast.model.audit import Attribution
from holdfast.model.audit_changes import facts_of, with_facts
from holdfast.model.chain import behind, with_tails
from holdfast.model.effects import Effect
from holdfast.model.job import Job, JobRef, State

from .lease_scan import LeaseScan
from .periodic_lock import PeriodicLock


class Reclaimer:
    """Reclaims on demand, or as a periodic task that one process of the cluster runs at a time."""

    def __init__(self, resources: EngineResources, lines: KeyLines) -> None:
        self._resources = resources
        self._lines = lines
        self.lease_scan = LeaseScan(monotonic)

    async def reclaim(
        self,
        limit: int,
        forced: Sequence[JobRef],
        attribution: Attribution | None,
        caller: Caller,
    ) -> Reclaim:
        """Look at every lease, and end the leases of ``forced`` too."""
        context = self._resources.context
        done = await self._resources.perform_once(
            "reclaim",
            lambda: reclaim(limit, forced, attribution, caller, context()),
            idempotent=attribution is None,
            once=None if attribution is None else attribution.once,
            changed=lambda done: bool(done.found.lost),
        )
        self._resources.announce(done.changes)
        return done.found

    async def reclaim_in_turn(self, limit: int, every_seconds: float, caller: Caller) -> Reclaim:
        """Reclaim if no process has done so within this interval."""
        resources = self._resources
        since_us = self.lease_scan.since_us()
        done = await PeriodicLock("reclaim", every_seconds).run(
            resources.database,
            lambda: reclaim(limit, (), None, caller, resources.context(), since_us, waits=False),
            resources.context(),
        )
        if done is None:
            return Reclaim([], [])
        await self._lines.line_up_all()  # also where no worker claims: it shows in the statistics
        if done.scan is not None and caller.unlimited:
            self.lease_scan.scanned(since_us, *done.scan)
        resources.announce(done.changes)
        return done.found


class CompleteScan(NamedTuple):
    """A scan that found all overdue leases: at which time, and how long it took."""

    at_us: int
    took_seconds: float


class ReclaimResult(NamedTuple):
    """What was reclaimed; ``scan`` is None if there may be more."""

    found: Reclaim
    changes: UnitOfWork
    scan: CompleteScan | None


def reclaim(
    limit: int,
    forced: Sequence[JobRef],
    attribution: Attribution | None,
    caller: Caller,
    context: CallContext,
    since_us: int = 0,
    *,
    waits: bool = True,
) -> SansIO[ReclaimResult]:
    """End leases that ran out since then, and jobs that expired; see ``Engine.reclaim``.

    Unless it ``waits``, jobs of a key that is locked are left for another time.
    """
    bounds = {**rows.reach(caller), "limit": limit, "now_us": context.now_us}
    began = monotonic()
    [[[now_us]], overdue, expired] = yield from execute_all(
        context.now(),
        Statement("find_overdue", {**bounds, "since_us": since_us}),
        Statement("find_expired", bounds),
    )
    scan = CompleteScan(now_us, monotonic() - began) if len(overdue) < limit else None
    forced_names = list(dict.fromkeys((ref.tenant, ref.id) for ref in forced))
    overdue_names = [(row[0], row[1]) for row in overdue]
    expired_names = [(row[0], row[1]) for row in expired]
    names = list(dict.fromkeys([*forced_names, *overdue_names, *expired_names]))
    if not names:
        return ReclaimResult(Reclaim([], []), UnitOfWork(), scan)
    jobs, passed_over = yield from lock_jobs(names, waits=waits)
    if passed_over:
        scan = None
    reasons = {
        name: ("stuck", _why(attribution))
        for name in forced_names
        if _may_be_forced(jobs.get(name), caller)
    }
    forced_jobs = set(reasons)
    for name in overdue_names:
        job = jobs.get(name)
        if job is None or name in forced_jobs or not _is_overdue(job, now_us):
            continue
        reasons[name] = lifecycle.why_overdue(job, context.max_processing_seconds)
    losing = [jobs[name] for name in reasons]
    lost = _lost(with_tails(losing, (yield from find_chains(losing))), reasons, now_us)
    unclaimed = [
        (job, lifecycle.expire(job, now_us))
        for name in expired_names
        if (job := jobs.get(name)) is not None and _has_expired(job, now_us)
    ]
    ended: list[tuple[Job, Effect]] = [*lost, *unclaimed]
    changes = yield from write_effects(ended, now_us, context)
    if attribution is not None and forced_jobs:
        facts = facts_of([one for one in lost if (one[0].tenant, one[0].id) in forced_jobs])
        yield from add_audit(with_facts(attribution.audit, facts), now_us)
    yield from after_changes(changes, context)
    after = [changes.job((job.tenant, job.id)) for job, _effect in ended]
    kept = [job for job in after if job is not None]
    return ReclaimResult(Reclaim(kept[: len(lost)], kept[len(lost) :]), changes, scan)


def _may_be_forced(job: Job | None, caller: Caller) -> bool:
    """Whether a job has a lease that the caller may end."""
    return (
        job is not None
        and job.state is State.IN_FLIGHT
        and caller.can_access(job.tenant, job.scope)
    )


def _lost(
    losing: Iterable[tuple[Job, Job]], reasons: Mapping[Name, tuple[str, str]], now_us: int
) -> list[tuple[Job, Effect]]:
    """Return the effect on each job that loses its lease; the second is the one it is behind."""
    found: list[tuple[Job, Effect]] = []
    for job, because_of in losing:
        reason = reasons.get((job.tenant, job.id)) or behind(
            because_of, *reasons[because_of.tenant, because_of.id]
        )
        found.append((job, lifecycle.lose(job, max(now_us, job.claimed_at_us), *reason)))
    return found


def lock_jobs(names: Sequence[Name], *, waits: bool) -> SansIO[tuple[dict[Name, Job], int]]:
    """Lock unfinished jobs, and their keys before them; return them as they are now.

    Unless it ``waits``, jobs of a key that somebody has locked are passed over, and counted: who
    holds one key, even for long, keeps no others from being reclaimed.
    """
    held: set[Key] = set()
    if waits:
        yield from lock_keys_of(names)
    else:
        held = yield from try_lock_keys_of(names)
    found = [rows.job_of(row) for row in (yield from execute("lock_jobs", **rows.names(names)))]
    free = [job for job in found if (job.tenant, job.queue, job.ties.key) not in held]
    return {(job.tenant, job.id): job for job in free}, len(found) - len(free)


def _why(attribution: Attribution | None) -> str:
    if attribution is None:
        return "an operator ended its lease"
    return f"{attribution.by} ended its lease: {attribution.why}"


def _is_overdue(job: Job, now_us: int) -> bool:
    return job.state is State.IN_FLIGHT and job.lease_until_us <= now_us


def _has_expired(job: Job, now_us: int) -> bool:
    unclaimed = job.state in (State.PENDING, State.BLOCKED)
    return unclaimed and job.expires_at_us is not None and job.expires_at_us <= now_us
