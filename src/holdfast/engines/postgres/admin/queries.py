"""Queries: the verbs that read jobs from all tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from holdfast.engines.contract import Counts
from holdfast.engines.postgres import rows
from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.sansio import SansIO, Statement, execute, execute_all
from holdfast.engines.postgres.jobs.unit_of_work import Name
from holdfast.engines.queue_stats import QueueStats, StoreStats
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.history import AttemptRecord, History, Note, completing_attempt
from holdfast.model.job import Job, State, is_name
from holdfast.model.outage import dependency_of
from holdfast.model.policy import DEFAULT_POLICY
from holdfast.model.search import MAX_PAGE, Filter, Order, Place, place_of

from .filter_parameters import filter_parameters, is_exact

_DEAD = frozenset({State.DEAD, State.ARCHIVED})


def get(names: Sequence[Name], caller: Caller, context: CallContext) -> SansIO[dict[Name, Job]]:
    """Return those of these jobs that exist within the caller's reach."""
    # No job has another id, and PostgreSQL refuses NUL.
    valid = [name for name in dict.fromkeys(names) if is_name(name[1])]
    [found] = yield from execute_all(context.get(rows.names(valid)))
    jobs = map(rows.job_of, found)
    return {(job.tenant, job.id): job for job in jobs if caller.can_access(job.tenant, job.scope)}


def find(
    wanted: Filter,
    after: Place | None,
    limit: int,
    caller: Caller,
    context: CallContext,
    order: Order = Order.CREATED,
) -> SansIO[list[Job]]:
    """Return the first matching jobs after this place."""
    found: list[Job] = []
    name = f"find {order.field} {'DESC' if order.descending else 'ASC'}"
    conditions = filter_parameters(wanted, caller, context)
    size = limit
    while len(found) < limit:
        page = yield from execute(name, **conditions, **_place(after), limit=size)
        jobs = [rows.job_of(row) for row in page]
        # What has no column is matched here: the payload, and failures of jobs that are not dead.
        found += [job for job in jobs if wanted.matches(job)]
        if len(jobs) < size:
            break
        after, size = place_of(jobs[-1], order), MAX_PAGE
    return found[:limit]


def count(wanted: Filter, most: int, caller: Caller, context: CallContext) -> SansIO[int]:
    """Count the jobs that a filter finds, up to this many."""
    states = frozenset(wanted.states or State)
    if is_exact(wanted, states):
        return (yield from _count_exactly(wanted, most, caller, context))
    count, after = 0, None
    if states & _DEAD and is_exact(wanted, _DEAD):
        dead = replace(wanted, states=tuple(states & _DEAD))
        count = yield from _count_exactly(dead, most, caller, context)
        if not states - _DEAD:
            return count
        wanted = replace(wanted, states=tuple(states - _DEAD))
    while count < most:
        jobs = yield from find(wanted, after, MAX_PAGE, caller, context)
        count += len(jobs)
        if len(jobs) < MAX_PAGE:
            break
        after = place_of(jobs[-1])
    return min(count, most)


def _count_exactly(wanted: Filter, most: int, caller: Caller, context: CallContext) -> SansIO[int]:
    conditions = filter_parameters(wanted, caller, context)
    [[found]] = yield from execute("count_matching", **conditions, limit=most)
    return int(found)


def _place(after: Place | None) -> dict[str, object]:
    number, tenant, job_id = after or (None, None, None)
    return {"after_number": number, "after_tenant": tenant, "after_id": job_id}


def counts(caller: Caller, context: CallContext) -> SansIO[Mapping[str, Counts]]:
    """Return the counts of each queue."""
    rows_found = yield from execute(
        "count_jobs", **rows.reach(caller), now_us=context.now_us, remember_us=context.remember_us
    )
    found: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for queue, state, count in rows_found:
        found[queue][rows.STATES[state].value] = count
    return {queue: Counts(**states) for queue, states in sorted(found.items())}


def queues(caller: Caller) -> SansIO[list[str]]:
    """Return the queues that have unfinished jobs."""
    return sorted(queue for (queue,) in (yield from execute("list_queues", **rows.reach(caller))))


def queue_stats(context: CallContext) -> SansIO[StoreStats]:
    """Return the statistics of every queue at this moment."""
    [[[now_us]]] = yield from execute_all(context.now())
    counted = yield from counts(SYSTEM, context)
    stats, held_of, packed, outages = yield from execute_all(
        Statement("read_queue_stats", {"now_us": context.now_us}),
        Statement("count_held", {}),
        Statement("list_policies", {}),
        Statement("list_outages", {"ended": False}),
    )
    active = [rows.OUTAGE.decode(outage) for (outage,) in outages]
    out = {outage.dependency: outage.since_us for outage in active}
    by_queue = {row[0]: row[1:] for row in stats}
    held: dict[str, int] = dict(held_of)
    policies = {queue: rows.POLICY.decode(policy) for queue, policy in packed}
    found: dict[str, QueueStats] = {}
    for queue in sorted({*counted, *policies}):
        scheduled, oldest_due_us, stuck = by_queue.get(queue, (0, None, 0))
        policy = policies.get(queue, DEFAULT_POLICY)
        found[queue] = QueueStats(
            counts=counted.get(queue, Counts()),
            scheduled=scheduled,
            held=held.get(queue, 0),
            oldest_due_us=oldest_due_us,
            stuck=stuck,
            paused=policy.paused,
            outage=dependency_of(queue) in out,
        )
    return StoreStats(now_us, found, out)


def history(
    names: Sequence[Name], caller: Caller, context: CallContext
) -> SansIO[dict[Name, History]]:
    """Return the history of those of these jobs that exist within the caller's reach."""
    jobs = yield from get(names, caller, context)
    columns = {
        **rows.names(jobs),
        "made_us": [job.created_at_us for job in jobs.values()],
    }
    packed_attempts, packed_notes = yield from execute_all(
        Statement("list_attempts", columns), Statement("list_notes", columns)
    )
    attempts: defaultdict[Name, list[AttemptRecord]] = defaultdict(list)
    notes: defaultdict[Name, list[Note]] = defaultdict(list)
    for tenant, job_id, attempt in packed_attempts:
        attempts[tenant, job_id].append(rows.ATTEMPT.decode(attempt))
    for tenant, job_id, note in packed_notes:
        notes[tenant, job_id].append(rows.NOTE.decode(note))
    for name, job in jobs.items():
        if (last := completing_attempt(job)) is not None:
            attempts[name].append(last)
    return {name: History(job, attempts[name], notes[name]) for name, job in jobs.items()}


def problems() -> SansIO[list[str]]:
    """Return violated invariants, a sentence each."""
    found, wrong = yield from execute_all(
        Statement("find_problems", {}), Statement("find_wrong_tallies", {})
    )
    return [sentence for (sentence,) in (*found, *wrong)]
