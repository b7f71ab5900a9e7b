"""Queries: the verbs that read jobs from all tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from holdfast.engines.contract import Counts
from holdfast.engines.postgres import rows
from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.sansio import SansIO, Statement, execute, execute_all
from holdfast.engines.postgres.jobs.unit_of_work import Name
from holdfast.engines.queue_stats import QueueStats, StoreStats
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.history import AttemptRecord, History, Note, completing_attempt
from holdfast.model.job import UNFINISHED, Job, State
from holdfast.model.outage import dependency_of
from holdfast.model.policy import DEFAULT_POLICY
from holdfast.model.search import Filter, Place, place_of

_DEAD = frozenset({State.DEAD, State.ARCHIVED})
_DONE = frozenset({State.COMPLETED, State.CANCELLED})


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
    *,
    newest: bool = False,
) -> SansIO[list[Job]]:
    """Return the first matching jobs after this place."""
    found: list[Job] = []
    name = "find_newest" if newest else "find"
    while len(found) < limit:
        size = limit - len(found)
        page = yield from execute(
            name, **conditions_of(wanted, caller, context), **_place(after), limit=size
        )
        jobs = [rows.job_of(row) for row in page]
        # Failures of jobs that are not dead have no columns: they are matched here.
        found += [job for job in jobs if wanted.matches(job)]
        if len(jobs) < size:
            break
        after = place_of(jobs[-1])
    return found


def conditions_of(wanted: Filter, caller: Caller, context: CallContext) -> dict[str, object]:
    """Return a filter and the reach of a caller as parameters."""
    states = frozenset(wanted.states or State)
    asks_when_finished = wanted.finished_from_us is not None or wanted.finished_to_us is not None
    return {
        **rows.reach(caller),
        "ids": list(wanted.ids) or None,
        "tenant": wanted.tenant,
        "scope": wanted.scope,
        "states": [rows.NUMBERS[state] for state in wanted.states] or None,
        "queues": list(wanted.queues) or None,
        "tasks": list(wanted.tasks) or None,
        "keys": list(wanted.keys) or None,
        "replay_run": None if wanted.replay_run is None else rows.without_nul(wanted.replay_run),
        "attempts_from": wanted.attempts_from,
        "attempts_to": wanted.attempts_to,
        "created_from_us": wanted.created_from_us,
        "created_to_us": wanted.created_to_us,
        "finished_from_us": wanted.finished_from_us,
        "finished_to_us": wanted.finished_to_us,
        "error_reasons": list(wanted.error_reasons) or None,
        "classes": [one.value for one in wanted.classes] or None,
        "statuses": list(wanted.statuses) or None,
        "fingerprint": None if wanted.fingerprint is None else rows.without_nul(wanted.fingerprint),
        "text": None if wanted.text is None else rows.without_nul(wanted.text),
        "failed": wanted.asks_for_failures,
        "unfinished": bool(states & UNFINISHED) and not asks_when_finished,
        "dead": bool(states & _DEAD),
        "done": bool(states & _DONE),
        "now_us": context.now_us,
        "remember_us": context.remember_us,
    }


def _place(after: Place | None) -> dict[str, object]:
    at_us, tenant, job_id = after or (None, None, None)
    return {"after_us": at_us, "after_tenant": tenant, "after_id": job_id}


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
    found = yield from execute("find_problems")
    return [sentence for (sentence,) in found]
