"""Queries: the verbs that read jobs from all tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from holdfast.engines.contract import Counts
from holdfast.engines.postgres import rows
from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.sansio import Row, SansIO, Statement, execute, execute_all
from holdfast.engines.postgres.jobs.unit_of_work import Name
from holdfast.engines.queue_stats import QueueStats, StoreStats
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.failure import FailureClass
from holdfast.model.failure_groups import group_dead_jobs, key_of
from holdfast.model.history import AttemptRecord, History, Note, completing_attempt
from holdfast.model.job import Job, State
from holdfast.model.policy import DEFAULT_POLICY
from holdfast.model.search import MAX_PAGE, FailureGroup, Filter, Order, Place, place_of

from .filter_parameters import filter_parameters, is_exact

_DEAD = frozenset({State.DEAD, State.ARCHIVED})


def get(names: Sequence[Name], caller: Caller, context: CallContext) -> SansIO[dict[Name, Job]]:
    """Return those of these jobs that exist within the caller's reach."""
    # No job has an unprintable id, and PostgreSQL refuses NUL.
    valid = [name for name in dict.fromkeys(names) if name[1].isprintable()]
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
    if is_exact(wanted, _DEAD if wanted.states and _DEAD.issuperset(wanted.states) else State):
        conditions = filter_parameters(wanted, caller, context)
        [[found]] = yield from execute("count_matching", **conditions, limit=most)
        return int(found)
    count, after = 0, None
    while count < most:
        jobs = yield from find(wanted, after, MAX_PAGE, caller, context)
        count += len(jobs)
        if len(jobs) < MAX_PAGE:
            break
        after = place_of(jobs[-1])
    return min(count, most)


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
    stats, packed = yield from execute_all(
        Statement("read_queue_stats", {"now_us": context.now_us}), Statement("list_policies", {})
    )
    by_queue = {row[0]: row[1:] for row in stats}
    policies = {queue: rows.POLICY.decode(policy) for queue, policy in packed}
    found: dict[str, QueueStats] = {}
    for queue in sorted({*counted, *policies}):
        scheduled, held, oldest_due_us, stuck = by_queue.get(queue, (0, 0, None, 0))
        policy = policies.get(queue, DEFAULT_POLICY)
        found[queue] = QueueStats(
            counts=counted.get(queue, Counts()),
            scheduled=scheduled,
            held=held,
            oldest_due_us=oldest_due_us,
            stuck=stuck,
            paused=policy.paused,
            outage=now_us < policy.outage_until_us,
        )
    return StoreStats(now_us, found)


def groups(wanted: Filter, caller: Caller, context: CallContext) -> SansIO[list[FailureGroup]]:
    """Return dead letters in groups, the largest first."""
    if not is_exact(wanted, _DEAD):
        return (yield from _groups_by_job(wanted, caller, context))
    conditions = filter_parameters(wanted, caller, context)
    grouped, holding = yield from execute_all(
        Statement("group_dead", conditions), Statement("count_held_behind", conditions)
    )
    return _with_held([_group(row) for row in grouped], holding)


def _groups_by_job(
    wanted: Filter, caller: Caller, context: CallContext
) -> SansIO[list[FailureGroup]]:
    """Return the groups of a filter that the server cannot tell from its columns alone."""
    if wanted.states and State.DEAD not in wanted.states:
        return []
    wanted = replace(wanted, states=(State.DEAD,))
    dead: list[Job] = []
    after: Place | None = None
    while True:
        page = yield from find(wanted, after, MAX_PAGE, caller, context)
        dead += page
        if len(page) < MAX_PAGE:
            break
        after = place_of(page[-1])
    keyed: defaultdict[str, list[str]] = defaultdict(list)
    for job in dead:
        if job.ties.key is not None:
            keyed[job.tenant].append(job.id)
    holding: list[Row] = []
    for tenant, ids in keyed.items():
        some = Filter(tenant=tenant, ids=tuple(ids))
        conditions = filter_parameters(some, caller, context)
        holding += yield from execute("count_held_behind", **conditions)
    return _with_held(group_dead_jobs(dead), holding)


def _with_held(found: list[FailureGroup], holding: list[Row]) -> list[FailureGroup]:
    """Return the groups with how many jobs each holds back, the largest first."""
    held: defaultdict[tuple[object, ...], dict[tuple[str, str], int]] = defaultdict(dict)
    for *group, tenant, key, behind in holding:
        # Of several dead letters of a key the first holds all that the others hold.
        keys = held[tuple(group)]
        keys[tenant, key] = max(keys.get((tenant, key), 0), behind)
    return sorted(
        (replace(group, held_behind=sum(held[key_of(group)].values())) for group in found),
        key=lambda group: (-group.count, -group.last_at_us, key_of(group)),
    )


def _group(row: Row) -> FailureGroup:
    return FailureGroup(
        queue=row[0],
        error_reason=row[1],
        failure_class=FailureClass(row[2]),
        fingerprint=row[3],
        hour_us=row[4],
        count=row[5],
        first_at_us=row[6],
        last_at_us=row[7],
        tenants=row[8],
        scopes=row[9],
    )


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
    found = yield from execute("find_problems")
    return [sentence for (sentence,) in found]
