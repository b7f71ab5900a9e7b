"""Stored operations on many jobs: plan, start, carry out, change and report."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from holdfast.engines.contract import Engine
from holdfast.engines.entropy import random_bytes
from holdfast.model import operation as operations
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.actions import DETERMINISTIC, AnyAction, ReplayJobs
from holdfast.model.audit import Attribution
from holdfast.model.errors import PlanOutdated
from holdfast.model.failure import FailureClass
from holdfast.model.job import MICROSECONDS, Job, State
from holdfast.model.operation import NewOperation, Operation, OperationChange, Phase
from holdfast.model.plural import count_of
from holdfast.model.policy import Rate
from holdfast.model.search import MAX_PAGE, FailureGroup, Filter, without_class

from .attribution import MAX_NAMED_IDS, Author, attribution_of, entry_of
from .operation_views import (
    OperationPlan,
    OperationView,
    ReasonCount,
    asked_for,
    rate_text,
    seconds_at,
)
from .views import JobView, date_of

SAMPLES = 5
MAX_COUNTED = 100_000
"""How many jobs that are not dead are counted at most."""
MAX_DRIFT = 0.1
"""By how much of its count a plan may be off when it is started."""
_POLL_SECONDS = 0.25
_MAX_REASONS = 20


class OperationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An operation as a person asks for it; ``as_of_us`` is the moment of its plan, None: now."""

    action: AnyAction
    wanted: Filter
    limit: int | None = None
    rate: Rate | None = None
    canary: int = 0
    abort_ratio: float | None = None
    as_of_us: int | None = None

    @property
    def paced(self) -> bool:
        """Whether it takes its time, so that a daemon has to carry it out."""
        return self.rate is not None or bool(self.canary) or self.abort_ratio is not None


class _Members:
    """The jobs that a plan has read, and those of them that are left alone."""

    def __init__(self, action: AnyAction, wanted: Filter, running: list[Operation]) -> None:
        self.jobs: list[Job] = []
        self.skipped: Counter[str] = Counter()
        self.looked_at = 0
        self._action = action
        self._running = running
        self._states = wanted.states
        self._named = bool(wanted.ids)

    def add(self, job: Job) -> None:
        """Look at one job."""
        self.looked_at += 1
        if job.state not in self._states:
            reason = job.state.value
        else:
            reason = operations.taken_by(job, self._running)
            reason = reason or self._action.skip_reason(job, named=self._named)
        if reason:
            self.skipped[reason] += 1
        else:
            self.jobs.append(job)


class BulkOperations:
    """What people do to many jobs at once, on any engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    # --- plan --------------------------------------------------------------------------------

    async def plan(self, request: OperationRequest, *, caller: Caller = SYSTEM) -> OperationPlan:
        """Return what an operation would do; nothing is changed.

        Dead letters are counted by their groups, however many there are; why one is left alone is
        looked up for up to a thousand.
        """
        _new_operation("op-plan", request).check()
        now_us = await self._engine.now_us()
        as_of_us = now_us if request.as_of_us is None else request.as_of_us
        wanted = operations.members(request.action, request.wanted, as_of_us)
        running = await self._engine.operations(running=True, caller=caller)
        running.sort(key=lambda one: (one.started_at_us, one.id))
        groups: list[FailureGroup] = []
        if State.DEAD in wanted.states:
            # Until now is the same as all, and all is counted faster.
            counted = request.wanted if request.as_of_us is None else wanted
            dead = replace(counted, states=(State.DEAD,))
            groups = await self._engine.groups(dead, caller=caller)
        members, excluded, exact = _Members(request.action, wanted, running), 0, True
        if wanted.ids:
            await self._read_named(members, request.wanted, caller)
            found = members.looked_at
        else:
            excluded = _deterministic(request.action, groups)
            found, exact = await self._read(members, wanted, groups, excluded, caller)
        skipped = members.skipped + Counter({DETERMINISTIC: excluded})
        would = max(len(members.jobs), found - sum(members.skipped.values()))
        if request.limit is not None:
            would = min(would, request.limit)
        first = members.jobs[:would]
        return OperationPlan(
            action=request.action.name,
            as_of=date_of(as_of_us),
            would=would,
            matched=found + excluded,
            exact=exact,
            kept=sum(skipped.values()),
            skipped=dict(sorted(skipped.items())),
            looked_at=members.looked_at,
            reasons=_by_reason(groups),
            held_behind=sum(group.held_behind for group in groups),
            limit=request.limit,
            expected_seconds=seconds_at(request.rate, would),
            jobs=[JobView.of(job) for job in first[:SAMPLES]],
            ids=[job.id for job in first[:MAX_NAMED_IDS]],
        )

    async def _read(
        self,
        members: _Members,
        wanted: Filter,
        groups: list[FailureGroup],
        excluded: int,
        caller: Caller,
    ) -> tuple[int, bool]:
        """Look at the first members; return how many there are, and whether these are all.

        ``excluded`` dead letters of the groups are no members.
        """
        if excluded:
            wanted = without_class(wanted, FailureClass.DETERMINISTIC)
        page = await self._engine.find(wanted, limit=MAX_PAGE, caller=caller)
        for job in page.jobs:
            members.add(job)
        if not page.cursor:
            return members.looked_at, True
        of_groups = sum(one.count for one in groups) - excluded
        return await self._count(wanted, of_groups, caller)

    async def _read_named(self, members: _Members, wanted: Filter, caller: Caller) -> None:
        """Look at every job that is named; those that do not exist are counted too."""
        missing, cursor = set(wanted.ids), ""
        while True:
            page = await self._engine.find(
                replace(wanted, states=()), cursor=cursor, limit=MAX_PAGE, caller=caller
            )
            for job in page.jobs:
                missing.discard(job.id)
                members.add(job)
            cursor = page.cursor
            if not cursor:
                break
        if missing:
            members.skipped["not_found"] += len(missing)

    async def _count(self, wanted: Filter, dead: int, caller: Caller) -> tuple[int, bool]:
        """Return how many jobs match, and whether these are all; ``dead`` of them are known."""
        states = [state for state in wanted.states if state is not State.DEAD]
        if not states:
            return dead, True
        others = replace(wanted, states=tuple(states))
        found = await self._engine.count(others, cap=MAX_COUNTED, caller=caller)
        return dead + found.value, not found.capped

    # --- start and carry out -----------------------------------------------------------------

    async def start(
        self,
        request: OperationRequest,
        plan: OperationPlan,
        who: Author,
        *,
        expect: int | None = None,
        caller: Caller = SYSTEM,
    ) -> Operation:
        """Store the operation of a plan; raise ``PlanOutdated`` if it is not as expected."""
        check_expected(plan, expect)
        as_of_us = round(plan.as_of.timestamp() * MICROSECONDS)
        operation_id = f"op-{random_bytes(5).hex()}"
        new = replace(
            _new_operation(operation_id, replace(request, as_of_us=as_of_us)),
            matched=plan.matched if plan.exact else None,
        )
        action = request.action
        changes: dict[str, object] = {
            "operation": operation_id,
            "matched": plan.matched,
            "would": plan.would,
            "reasons": {one.error_reason: one.count for one in plan.reasons[:_MAX_REASONS]},
            "skipped": plan.skipped,
            "samples": [job.id for job in plan.jobs],
            "limit": request.limit,
            "rate": rate_text(request.rate),
            "canary": request.canary,
            "abort_above": request.abort_ratio,
            "fixed": getattr(action, "fixed", ""),
            "task": getattr(action, "task", ""),
            # Never the values: a payload is not part of the audit.
            "changed": [one.path for one in getattr(action, "assignments", ())],
        }
        given = {
            name: value for name, value in changes.items() if value not in (None, "", 0, [], {})
        }
        attribution = attribution_of(f"job.{action.name}", "job", request.wanted, who, given)
        return await self._engine.start_operation(new, attribution, caller=caller)

    async def drive(
        self, operation_id: str, on_progress: Callable[[int], None] = lambda _count: None
    ) -> Operation:
        """Take steps until every member was acted on, or the operation waits for something."""
        while True:
            step = await self._engine.advance_operation(operation_id)
            operation = step.operation
            on_progress(operation.acted)
            if operation.ended or operation.paused or operation.phase is Phase.VERIFYING:
                return operation
            if step.acted:
                continue
            if step.next_at_us is None or operation.phase is Phase.CANARY:
                return operation
            wait_us = step.next_at_us - await self._engine.now_us()
            await asyncio.sleep(max(0, wait_us) / MICROSECONDS)

    async def wait(
        self,
        operation_id: str,
        on_progress: Callable[[int], None] = lambda _count: None,
        *,
        caller: Caller = SYSTEM,
    ) -> Operation:
        """Return when the operation has ended, or is paused; daemons carry it out."""
        while True:
            operation = await self._engine.operation(operation_id, caller=caller)
            on_progress(operation.acted)
            if operation.ended or operation.paused:
                return operation
            await asyncio.sleep(_POLL_SECONDS)

    # --- look and change ---------------------------------------------------------------------

    async def listed(
        self, *, running: bool = False, limit: int = 100, caller: Caller = SYSTEM
    ) -> list[OperationView]:
        """Return operations, the newest first."""
        found = await self._engine.operations(running=running, limit=limit, caller=caller)
        return [OperationView.of(one) for one in found]

    async def report(self, operation_id: str, *, caller: Caller = SYSTEM) -> OperationView:
        """Return how far an operation is, and what came of it; raise ``UnknownOperation``."""
        operation = await self._engine.operation(operation_id, caller=caller)
        return OperationView.of(operation, await self._new_since(operation, caller))

    async def _new_since(self, operation: Operation, caller: Caller) -> int | None:
        """Count the dead letters of the same kind that came later and are not members."""
        wanted = asked_for(operation)
        if wanted == operation.wanted or wanted.ids or wanted.states != (State.DEAD,):
            return None
        from_us = max(wanted.finished_from_us or 0, operation.as_of_us + 1)
        later = replace(wanted, finished_from_us=from_us)
        count = sum(one.count for one in await self._engine.groups(later, caller=caller))
        if count and isinstance(operation.action, ReplayJobs):
            again = await self._engine.groups(
                replace(later, replay_run=operation.id), caller=caller
            )
            count -= sum(one.count for one in again)
        return max(0, count)

    async def change(
        self,
        operation_id: str,
        change: OperationChange,
        who: Author,
        *,
        caller: Caller = SYSTEM,
    ) -> OperationView:
        """Pause, resume or abort an operation, or change its rate; return it as it is now."""
        change.check()
        before = await self._engine.operation(operation_id, caller=caller)
        name = "rate" if change.rate is not None or change.without_rate else "pause"
        if change.abort or change.paused is False:
            name = "abort" if change.abort else "resume"
        changes: dict[str, object] = {"state": before.state, "acted": before.acted}
        if name == "rate":
            changes = {"before": rate_text(before.rate), "after": rate_text(change.rate)}
        entry = entry_of(f"operation.{name}", "operation", operation_id, who, changes)
        attribution = Attribution(who.by, who.why, (entry,))
        changed = await self._engine.change_operation(
            operation_id, change, attribution, caller=caller
        )
        return OperationView.of(changed)


def check_expected(plan: OperationPlan, expect: int | None) -> None:
    """Raise ``PlanOutdated`` if a plan differs by more than a tenth from what was expected."""
    if expect is None or abs(plan.would - expect) <= MAX_DRIFT * expect:
        return
    now = ", ".join(f"{one.error_reason} {one.count:,}" for one in plan.reasons[:SAMPLES])
    raise PlanOutdated(expect, f"{count_of(plan.would)}{f' ({now})' if now else ''}")


def _new_operation(operation_id: str, request: OperationRequest) -> NewOperation:
    return NewOperation(
        id=operation_id,
        action=request.action,
        wanted=request.wanted,
        as_of_us=request.as_of_us,
        limit=request.limit,
        rate=request.rate,
        canary=request.canary,
        abort_ratio=request.abort_ratio,
    )


def _deterministic(action: AnyAction, groups: list[FailureGroup]) -> int:
    """Return how many dead letters a replay leaves out, since nothing was fixed."""
    if not isinstance(action, ReplayJobs) or action.fixed:
        return 0
    wrong = FailureClass.DETERMINISTIC
    return sum(one.count for one in groups if one.failure_class is wrong)


def _by_reason(groups: list[FailureGroup]) -> list[ReasonCount]:
    counts: Counter[tuple[str, str]] = Counter()
    for group in groups:
        counts[group.error_reason, group.failure_class.value] += group.count
    return [ReasonCount(reason, kind, count) for (reason, kind), count in counts.most_common()]
