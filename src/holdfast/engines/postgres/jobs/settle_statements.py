"""Settle and extend: the verbs of workers that hold jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from holdfast.engines.contract import HeldJob, Renewal
from holdfast.engines.embedded.dependents import DependentEffects
from holdfast.engines.outages import OutageChange
from holdfast.engines.postgres import rows
from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.sansio import (
    Row,
    SansIO,
    Statement,
    execute,
    execute_all,
    execute_and_commit,
)
from holdfast.engines.postgres.outages import OutageFailures
from holdfast.model import lifecycle
from holdfast.model.access import Caller
from holdfast.model.chain import ChainSettle, ended_with
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
from holdfast.model.job import DEFAULT_CAP_SECONDS, MAX_LEASE_SECONDS, MICROSECONDS, Job
from holdfast.model.outage import is_outage_failure
from holdfast.model.outcome import Outcome, OutcomeKind

from .chains import FlightOf, flight_by_key
from .unit_of_work import Key, Name, UnitOfWork, key_columns

Lease = tuple[str, str, int]
"""A job's tenant and id, and the token under which it is held."""


def lease_of(held_job: HeldJob | Outcome) -> Lease:
    """Return the lease of a job, or of an outcome."""
    return held_job.tenant, held_job.id, held_job.token


def lease_columns(leases: Iterable[Lease]) -> dict[str, object]:
    """Return leases as columns."""
    listed = list(leases)
    return {**rows.names(lease[:2] for lease in listed), "tokens": [lease[2] for lease in listed]}


def complete(outcomes: Sequence[Outcome], caller: Caller, context: CallContext) -> Statement:
    """Return the statement that completes jobs on whose end no other job depends."""
    parameters = {
        **lease_columns(map(lease_of, outcomes)),
        **rows.reach(caller),
        "results": [outcome.result for outcome in outcomes],
        "now_us": context.now_us,
        "keep_payload": context.options.keep_payload,
    }
    return Statement("complete", parameters)


def first_of_each(outcomes: Sequence[Outcome]) -> dict[Lease, Outcome]:
    """Return the first outcome for each lease: a second one comes too late."""
    first: dict[Lease, Outcome] = {}
    for outcome in outcomes:
        first.setdefault(lease_of(outcome), outcome)
    return first


def completions(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Return those that complete their job."""
    return [outcome for outcome in outcomes if outcome.kind is OutcomeKind.COMPLETED]


def answers(outcomes: Sequence[Outcome], settled: set[Lease]) -> list[LeaseLost | None]:
    """Return the answer to each outcome, given the leases that they ended."""
    left = set(settled)
    found: list[LeaseLost | None] = []
    for outcome in outcomes:
        lease = lease_of(outcome)
        found.append(None if lease in left else LeaseLost(outcome.id, outcome.token))
        left.discard(lease)
    return found


def settle_simple(
    outcomes: Sequence[Outcome], caller: Caller, context: CallContext
) -> SansIO[tuple[set[Lease], list[Outcome]]]:
    """Complete what needs only one statement; return the ended leases and the outcomes left."""
    first = first_of_each(outcomes)
    completed = completions(first.values())
    if not completed:
        return set(), list(first.values())
    [found] = yield from execute_and_commit(complete(completed, caller, context))
    tokens = {row[0] for row in found}
    done = {lease_of(outcome) for outcome in completed if outcome.token in tokens}
    return done, [outcome for lease, outcome in first.items() if lease not in done]


def settle_full(
    outcomes: Sequence[Outcome], caller: Caller, context: CallContext
) -> SansIO[tuple[set[Lease], list[str], list[OutageChange]]]:
    """Settle outcomes with all consequences.

    Return the leases that this ended, the queues in which it changed what can be claimed, and the
    changes of outages.
    """
    first = first_of_each(outcomes)
    names = rows.names(lease[:2] for lease in first)
    [[[now_us]], locked] = yield from execute_all(
        context.now(), Statement("lock_lease_keys", names)
    )
    keys: list[Key] = [(tenant, queue, key) for tenant, queue, key, _locked in locked]
    settled: set[Lease] = set()
    queues: list[str] = []
    if keys and len(completions(first.values())) == len(first):
        settled, queues = yield from _complete_keyed(first, caller, context)
        first = {lease: outcome for lease, outcome in first.items() if lease not in settled}
        if not first:
            return settled, queues, []
    outages = OutageFailures(context.options.outage_max_seconds)
    if any(is_outage_failure(outcome.failure) for outcome in first.values()):
        yield from outages.lock()
    found, flight_of = yield from _held_with_chains(first, keys, caller)
    jobs = {(job.tenant, job.id, job.token): job for job in map(rows.job_of, found)}
    held = [(jobs[lease], outcome) for lease, outcome in first.items() if lease in jobs]
    chains = ChainSettle(flight_of, held)
    ended: list[tuple[Job, Effect]] = []
    for job, outcome in held:
        if not chains.accepts(job, outcome):
            continue
        settled.add(lease_of(outcome))
        at_us = max(now_us, job.claimed_at_us)
        effect = outages.settle(job, outcome, at_us)
        ended.append((job, effect))
        ended += [
            (one, lifecycle.settle(one, ended_with(one, outcome), at_us))
            for one in chains.ended(job, effect)
        ]
    changes = yield from write_effects(ended, now_us, context)
    yield from outages.write()
    yield from after_changes(changes, context)
    return settled, [*queues, *changes.queues()], outages.changes()


def _complete_keyed(
    first: Mapping[Lease, Outcome], caller: Caller, context: CallContext
) -> SansIO[tuple[set[Lease], list[str]]]:
    """Complete jobs of keys that are locked, in one statement.

    Return the ended leases, and the queues that have another job to claim because of it.
    """
    parameters = dict(complete(list(first.values()), caller, context).parameters)
    _locked, found = yield from execute_all(
        Statement("lock_leases", lease_columns(first)), Statement("complete_keyed", parameters)
    )
    if queues := sorted(queue for token, queue in found if token is None):
        yield from execute_all(context.notify(queues))
    tokens = {token for token, _queue in found if token is not None}
    return {lease for lease in first if lease[2] in tokens}, queues


def _held_with_chains(
    first: Mapping[Lease, Outcome], keys: Sequence[Key], caller: Caller
) -> SansIO[tuple[list[Row], FlightOf]]:
    """Lock and return the jobs of these leases, and what returns the chain of one."""
    held = Statement("lock_held", {**lease_columns(first), **rows.reach(caller)})
    if not keys:
        [found] = yield from execute_all(held)
        return found, lambda _job: ()
    found, flight = yield from execute_all(held, Statement("find_key_flight", key_columns(keys)))
    return found, flight_by_key(flight)


def write_effects(
    ended: Sequence[tuple[Job, Effect]], now_us: int, context: CallContext
) -> SansIO[UnitOfWork]:
    """Write these effects, and their consequences for dependent jobs."""
    changes = UnitOfWork(keep_payload=context.options.keep_payload)
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
    """Return the jobs that wait for the jobs that end; of cancelled ones, all levels below."""
    found: defaultdict[Name, list[Job]] = defaultdict(list)
    completed = [job_key(effect) for effect in effects if isinstance(effect, Completed)]
    cascading = [job_key(e) for e in effects if isinstance(e, Cancelled | Purged | Archived)]
    seen: set[Name] = set()
    while completed or cascading:
        names = {*completed, *cascading} - seen
        if not names:
            break
        seen |= names
        waiting = yield from execute("lock_dependents", **rows.names(sorted(names)))
        cancelled = set(cascading)
        completed, cascading = [], []
        for job in map(rows.job_of, waiting):
            for needed in job.ties.waiting_for:
                if (job.tenant, needed) in names:
                    found[job.tenant, needed].append(job)
                if (job.tenant, needed) in cancelled:
                    cascading.append((job.tenant, job.id))
    return found


def after_changes(changes: UnitOfWork, context: CallContext) -> SansIO[None]:
    """Notify waiting claims, and drop the turns of tenants that have no jobs left."""
    statements: list[Statement] = []
    if finished := sorted({(job.queue, job.tenant) for job in changes.finished()}):
        parameters: dict[str, object] = {
            "queues": [queue for queue, _tenant in finished],
            "tenants": [tenant for _queue, tenant in finished],
        }
        statements.append(Statement("drop_turns", parameters))
    if queues := changes.queues():
        statements.append(context.notify(queues))
    yield from execute_all(*statements)


def extend(
    held_jobs: Sequence[HeldJob], lease_seconds: float, caller: Caller, context: CallContext
) -> SansIO[list[Renewal | LeaseLost]]:
    """Renew leases; see ``Engine.extend``."""
    wanted = [lease_of(one) for one in held_jobs]
    caps = dict(zip(wanted, (one.max_processing_seconds for one in held_jobs), strict=True))
    [found] = yield from execute_and_commit(
        Statement(
            "extend",
            {
                **lease_columns(caps),
                "caps_seconds": list(caps.values()),
                **rows.reach(caller),
                "lease_us": int(min(lease_seconds, MAX_LEASE_SECONDS) * MICROSECONDS),
                "max_processing_seconds": context.max_processing_seconds,
                "default_cap_seconds": DEFAULT_CAP_SECONDS,
                "now_us": context.now_us,
            },
        )
    )
    return _renewals(wanted, found)


def read_leases(held_jobs: Sequence[HeldJob], caller: Caller) -> SansIO[list[Renewal | LeaseLost]]:
    """Read leases as they are; see ``Engine.leases``."""
    wanted = [lease_of(one) for one in held_jobs]
    columns = {**lease_columns(dict.fromkeys(wanted)), **rows.reach(caller)}
    return _renewals(wanted, (yield from execute("read_leases", **columns)))


def _renewals(wanted: Sequence[Lease], found: Sequence[Row]) -> list[Renewal | LeaseLost]:
    renewed = {
        (tenant, job_id, token): Renewal(until_us, stop)
        for token, tenant, job_id, until_us, stop in found
    }
    return [renewed.get(lease) or LeaseLost(lease[1], lease[2]) for lease in wanted]
