"""Operations: started, changed, and taken further by steps, each in one transaction.

A step locks the row of its operation first, so that one process at a time takes one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.engines.postgres import rows
from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.sansio import SansIO, Statement, execute, execute_all
from holdfast.engines.postgres.jobs.settle_statements import after_changes, write_effects
from holdfast.engines.postgres.jobs.unit_of_work import UnitOfWork
from holdfast.model import operation as operations
from holdfast.model.access import Caller
from holdfast.model.actions import DETERMINISTIC, ReplayJobs
from holdfast.model.audit import Attribution, AuditEntry
from holdfast.model.effects import Effect
from holdfast.model.errors import (
    DuplicateId,
    IllegalTransition,
    InvalidInput,
    JobNotFound,
    UnknownOperation,
)
from holdfast.model.failure import FailureClass
from holdfast.model.job import Job, State
from holdfast.model.operation import (
    CHANGED,
    NewOperation,
    Operation,
    OperationChange,
    OperationStep,
    Outcomes,
)
from holdfast.model.operation_members import Selection
from holdfast.model.search import MAX_PAGE, Filter, Place, place_of, without_class

from .actions import JobChange, change_of, lock, without_deterministic
from .audit import add_audit
from .policies import policies
from .queries import find

_ALL = operations.MAX_RUNNING + operations.MAX_ENDED


def listed(
    caller: Caller, *, running: bool, limit: int, ids: Sequence[str] | None = None
) -> SansIO[list[Operation]]:
    """Return operations within reach, the newest first."""
    named = None if ids is None else list(ids)
    found = yield from execute("list_operations", ids=named, running=running, limit=_ALL)
    every = [_with_outcomes(operations.decode(record), counts) for record, counts in found]
    return [one for one in every if operations.within_reach(one, caller)][:limit]


def get(operation_id: str, caller: Caller) -> SansIO[Operation]:
    """Return an operation, or raise ``UnknownOperation``."""
    found = yield from listed(caller, running=False, limit=1, ids=[operation_id])
    if not found:
        raise UnknownOperation(operation_id)
    return found[0]


def start(
    new: NewOperation, attribution: Attribution, caller: Caller, context: CallContext
) -> SansIO[Operation]:
    """Store a new operation; one that was stored by the same request is returned."""
    yield from execute("lock_keys", names=["operations"])
    [known, running] = yield from execute_all(
        Statement("list_operations", {"ids": [new.id], "running": False, "limit": 1}),
        Statement("list_operations", {"ids": None, "running": True, "limit": _ALL}),
    )
    for record, counts in known:
        there = _with_outcomes(operations.decode(record), counts)
        if not operations.same_request(there, new) or there.caller != caller:
            raise DuplicateId([new.id])
        return there
    if len(running) >= operations.MAX_RUNNING:
        problem = f"{operations.MAX_RUNNING} operations run already: wait, or abort some"
        raise InvalidInput("operation", problem)
    [[[now_us]]] = yield from execute_all(context.now())
    started = operations.start(new, attribution.by, attribution.why, caller, now_us, None)
    yield from _check_named(started, context)
    started = yield from _without_deterministic(started, new.wanted, context)
    if new.limit is not None and new.limit <= operations.MOST_FOR_BOUND:
        found = yield from _select(started, _change(started), new.limit, context)
        started = replace(started, until=found.after)
    yield from _put(started, attribution.audit, now_us)
    yield from execute("forget_operations", kept=operations.MAX_ENDED)
    return started


def _check_named(operation: Operation, context: CallContext) -> SansIO[None]:
    """Raise if a job that is named does not exist, or the action cannot be applied to it."""
    wanted = operation.wanted
    missing = set(wanted.ids)
    named = replace(wanted, states=(), created_to_us=None, finished_to_us=None)
    after: Place | None = None
    while missing:
        page = yield from find(named, after, MAX_PAGE, operation.caller, context)
        for job in page:
            missing.discard(job.id)
            if job.state not in wanted.states:
                raise IllegalTransition(job.id, job.state, operation.action.name)
        if len(page) < MAX_PAGE:
            break
        after = place_of(page[-1])
    if missing:
        raise JobNotFound(min(missing))


def _without_deterministic(
    operation: Operation, wanted: Filter, context: CallContext
) -> SansIO[Operation]:
    """Return a replay without deterministic failures; those that ``wanted`` has are counted."""
    action = operation.action
    if not isinstance(action, ReplayJobs) or action.fixed or wanted.ids:
        return operation
    _others, kept = yield from without_deterministic(wanted, operation.caller, context)
    members = without_class(operation.wanted, FailureClass.DETERMINISTIC)
    return replace(operation, wanted=members, skipped={DETERMINISTIC: kept} if kept else {})


def change(
    operation_id: str,
    asked: OperationChange,
    attribution: Attribution,
    caller: Caller,
    context: CallContext,
) -> SansIO[Operation]:
    """Pause, resume or abort an operation, or change its rate."""
    current = yield from _lock(operation_id)
    if not operations.within_reach(current, caller):
        raise UnknownOperation(operation_id)
    [[[now_us]]] = yield from execute_all(context.now())
    changed = operations.change(current, asked, attribution.by, now_us)
    yield from _put(changed, attribution.audit, now_us)
    return changed


def advance(
    operation_id: str, context: CallContext
) -> SansIO[tuple[OperationStep, UnitOfWork | None]]:
    """Take one step; return what it changed, for the claims that wait."""
    before = yield from _lock(operation_id)
    [[[now_us]]] = yield from execute_all(context.now())
    operation = operations.watch(before, now_us)
    count = operations.due(operation, now_us)
    changes: UnitOfWork | None = None
    if count:
        change = _change(operation)
        found = yield from _select(operation, change, count, context)
        operation, changes = yield from _act(operation, change, found, now_us, context)
    yield from _put(operation, (), now_us, was_running=not before.ended)
    if changes is not None:
        yield from after_changes(changes, context)
    acted = operation.acted - before.acted
    ended = () if changes is None else changes.finished()
    cancelled = Counter(job.queue for job in ended if job.state is State.CANCELLED)
    next_at_us = operations.next_at_us(operation, now_us)
    return OperationStep(operation, acted, next_at_us, dict(cancelled)), changes


def _act(
    operation: Operation, change: JobChange, found: Selection, now_us: int, context: CallContext
) -> SansIO[tuple[Operation, UnitOfWork]]:
    current = yield from lock(found.jobs, operation.caller, context)
    skipped: Counter[str] = Counter()
    picked: list[tuple[Job, Effect]] = []
    for job in found.jobs:
        now = current.get((job.tenant, job.id))
        # While it was looked for, another transaction may have changed it.
        member = now is not None and operation.wanted.matches(now)
        reason = change.skip_reason(now) if member and now is not None else CHANGED
        if now is None or reason:
            skipped[reason] += 1
            continue
        try:
            picked.append((now, change.decide(now, now_us)))
        except IllegalTransition:
            skipped[CHANGED] += 1
    changes = yield from write_effects(picked, now_us, context)
    chunk = found.chunk([job for job, _effect in picked], skipped, whole=True)
    return operations.after_chunk(operation, chunk, now_us), changes


def _select(
    operation: Operation, change: JobChange, count: int, context: CallContext
) -> SansIO[Selection]:
    """Return the next members."""
    others = yield from execute("list_operations", ids=None, running=True, limit=_ALL)
    earlier = operations.older((operations.decode(record) for record, _ in others), operation)
    known = yield from policies()
    paused = {queue for queue, policy in known.items() if policy.paused}
    found = Selection(operation, count, change.skip_reason, earlier, paused)
    more = True
    while more:
        page = yield from find(
            operation.wanted, found.after, found.page_size, operation.caller, context
        )
        yield from change.prepare(page, context)
        more = found.take(page)
    return found


def _change(operation: Operation) -> JobChange:
    attribution = Attribution(operation.by, operation.why)
    return change_of(operation.action, attribution, named=bool(operation.wanted.ids))


def _lock(operation_id: str) -> SansIO[Operation]:
    """Lock an operation, and give it the outcomes that were counted since."""
    [found, counts] = yield from execute_all(
        Statement("lock_operation", {"id": operation_id}),
        Statement("take_operation_outcomes", {"id": operation_id}),
    )
    if not found:
        raise UnknownOperation(operation_id)
    return _with_outcomes(operations.decode(found[0][0]), counts)


def _put(
    operation: Operation, audit: Sequence[AuditEntry], now_us: int, *, was_running: bool = True
) -> SansIO[None]:
    """Store an operation; its end is in the audit."""
    yield from execute_all(put_statement(operation))
    entries = (
        [*audit, operations.end_entry(operation)] if operation.ended and was_running else audit
    )
    if entries:
        yield from add_audit(entries, now_us)


def put_statement(operation: Operation) -> Statement:
    """Return the statement that stores an operation."""
    return Statement(
        "put_operation",
        {
            "id": operation.id,
            "started_at_us": operation.started_at_us,
            "ended_at_us": operation.ended_at_us,
            "operation": operations.encode(operation),
        },
    )


def with_outcomes(record: bytes, counts: Sequence[Sequence[int]]) -> Operation:
    """Return a stored operation with the outcomes that were counted since."""
    return _with_outcomes(operations.decode(record), counts)


def _with_outcomes(operation: Operation, counts: Sequence[Sequence[int]]) -> Operation:
    outcomes: Outcomes = operation.outcomes
    for state, count in counts:
        outcomes = outcomes.plus(rows.STATES[state], count)
    return operation if outcomes == operation.outcomes else replace(operation, outcomes=outcomes)
