"""Starts operations, and takes their steps: each is one commit, with how far it has come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.model import operation as operations
from holdfast.model.access import Caller
from holdfast.model.actions import PurgeJobs
from holdfast.model.audit import Attribution, AuditEntry
from holdfast.model.effects import Effect, OperationSet
from holdfast.model.errors import (
    DuplicateId,
    IllegalTransition,
    InvalidInput,
    JobNotFound,
    UnknownOperation,
)
from holdfast.model.job import Job, State
from holdfast.model.operation import (
    CHANGED,
    NewOperation,
    Operation,
    OperationChange,
    OperationStep,
)
from holdfast.model.operation_members import Selection
from holdfast.model.record import Record
from holdfast.model.search import MAX_PAGE, Place, place_of

from .admin import Admin, Decide, SkipReason
from .core import EmbeddedCore
from .queries import Queries


class OperationSteps:
    """Each method decides under the lock of admin actions; its arguments are checked already."""

    def __init__(self, core: EmbeddedCore, queries: Queries, admin: Admin) -> None:
        self._core = core
        self._state = core.state
        self._queries = queries
        self._admin = admin

    # --- look --------------------------------------------------------------------------------

    def listed(self, caller: Caller, *, running: bool, limit: int) -> list[Operation]:
        """Return operations within reach, the newest first."""
        found = [
            one
            for one in self._state.operations
            if not (running and one.ended) and operations.within_reach(one, caller)
        ]
        found.sort(key=lambda one: (one.started_at_us, one.id), reverse=True)
        return found[:limit]

    def get(self, operation_id: str, caller: Caller) -> Operation:
        """Return an operation, or raise ``UnknownOperation``."""
        found = self._state.operations.get(operation_id)
        if found is None or not operations.within_reach(found, caller):
            raise UnknownOperation(operation_id)
        return found

    # --- start and change --------------------------------------------------------------------

    async def start(self, new: NewOperation, attribution: Attribution, caller: Caller) -> Operation:
        """Store a new operation; one that was stored by the same request is returned."""
        async with self._core.admin_lock:
            known = self._state.operations.get(new.id)
            if known is not None:
                if not operations.same_request(known, new) or known.caller != caller:
                    raise DuplicateId([new.id])
                return await self._core.answer(lambda _now: known)
            if sum(not one.ended for one in self._state.operations) >= operations.MAX_RUNNING:
                problem = f"{operations.MAX_RUNNING} operations run already: wait, or abort some"
                raise InvalidInput("operation", problem)
            started = operations.start(
                new, attribution.by, attribution.why, caller, self._core.now_us(), None
            )
            await self._check_named(started)
            started = await self._admin.without_deterministic_members(started, new.wanted)
            if new.limit is not None and new.limit <= operations.MOST_FOR_BOUND:
                found = await self._select(started, new.limit)
                started = replace(started, until=found.after)
            return await self._core.answer(
                lambda now: self._put(started, attribution.audit, now, attribution.once)
            )

    async def _check_named(self, operation: Operation) -> None:
        """Raise if a job that is named does not exist, or the action cannot be applied to it."""
        wanted = operation.wanted
        if not wanted.ids:
            return
        missing = set(wanted.ids)
        named = replace(wanted, states=(), created_to_us=None, finished_to_us=None)
        after: Place | None = None
        while missing:
            page = await self._queries.matching(named, after, MAX_PAGE, operation.caller)
            for job in page:
                missing.discard(job.id)
                if job.state not in wanted.states:
                    raise IllegalTransition(job.id, job.state, operation.action.name)
            if len(page) < MAX_PAGE:
                break
            after = place_of(page[-1])
        if missing:
            raise JobNotFound(min(missing))

    async def change(
        self, operation_id: str, asked: OperationChange, attribution: Attribution, caller: Caller
    ) -> Operation:
        """Pause, resume or abort an operation, or change its rate."""
        async with self._core.admin_lock:

            def decide(now_us: int) -> Operation:
                current = self.get(operation_id, caller)
                changed = operations.change(current, asked, attribution.by, now_us)
                return self._put(changed, attribution.audit, now_us, attribution.once)

            return await self._core.answer(decide)

    # --- step --------------------------------------------------------------------------------

    async def advance(self, operation_id: str) -> OperationStep:
        """Take one step."""
        async with self._core.admin_lock:
            now_us = self._core.now_us()
            before = self._state.operations.get(operation_id)
            if before is None:
                raise UnknownOperation(operation_id)
            watched = operations.watch(before, now_us)
            count = operations.due(watched, now_us)
            if count:
                found = await self._select(watched, count)
                step = await self._core.answer(lambda now: self._act(operation_id, found, now))
                if isinstance(before.action, PurgeJobs):
                    await self._core.history.flush()  # until then history still finds them
                return step
            if watched != before:
                await self._core.answer(lambda now: self._watch(operation_id, now))
            current = self._state.operations.get(operation_id) or watched
            return OperationStep(current, 0, operations.next_at_us(current, now_us))

    def _watch(self, operation_id: str, now_us: int) -> None:
        current = self._state.operations.get(operation_id)
        if current is not None:
            self._put(operations.watch(current, now_us), (), now_us)

    async def _select(self, operation: Operation, count: int) -> Selection:
        """Return the next members."""
        _decide, skip_reason = self._change(operation)
        paused = {name for name, policy in self._state.policies.items() if policy.paused}
        earlier = self._state.operations.older(operation)
        found = Selection(operation, count, skip_reason, earlier, paused)
        # What it has acted on lies behind: history need not have it yet, except at the start.
        await self._core.history.room()
        first = not operation.acted or isinstance(operation.action, PurgeJobs)
        more = True
        while more:
            page = await self._queries.matching(
                operation.wanted, found.after, found.page_size, operation.caller, flush=first
            )
            more = found.take(page)
        return found

    def _act(self, operation_id: str, found: Selection, now_us: int) -> OperationStep:
        """Act on these members in one commit, or on the first of them that fit into one."""
        # An outcome may have come while they were looked for: the decision is made here.
        operation = self._state.operations.get(operation_id)
        if operation is None:
            raise UnknownOperation(operation_id)
        operation = operations.watch(operation, now_us)
        if operations.due(operation, now_us) < len(found.jobs):
            self._put(operation, (), now_us)  # it was aborted, or has to wait
            return OperationStep(operation, 0, operations.next_at_us(operation, now_us))
        decide, skip_reason = self._change(operation)
        skipped: Counter[str] = Counter()
        picked: list[tuple[Job, Effect]] = []
        for job in found.jobs:
            current = self._admin.current(job)
            reason = CHANGED if current is None else skip_reason(current)
            if current is None or reason:
                skipped[reason] += 1
                continue
            try:
                picked.append((current, decide(current, now_us)))
            except IllegalTransition:
                skipped[CHANGED] += 1
        after: list[Operation] = []

        def and_then(count: int) -> Sequence[Effect]:
            acted = [job for job, _effect in picked[:count]]
            chunk = found.chunk(acted, skipped, whole=count == len(picked))
            after[:] = [operations.after_chunk(operation, chunk, now_us)]
            return self._effects(after[0], (), now_us)

        jobs = self._admin.commit_action(picked, (), now_us, and_then)
        [done] = after
        next_at_us = operations.next_at_us(done, now_us)
        cancelled = Counter(job.queue for job in jobs if job.state is State.CANCELLED)
        return OperationStep(done, done.acted - operation.acted, next_at_us, dict(cancelled))

    def _change(self, operation: Operation) -> tuple[Decide, SkipReason]:
        attribution = Attribution(operation.by, operation.why)
        return self._admin.change_of(
            operation.action, attribution, named=bool(operation.wanted.ids)
        )

    def _put(
        self,
        operation: Operation,
        audit: Sequence[AuditEntry],
        now_us: int,
        once: Record | None = None,
    ) -> Operation:
        with_it = self._core.records.once(once, now_us)
        self._core.commit([*self._effects(operation, audit, now_us), *with_it])
        return operation

    def _effects(
        self, operation: Operation, audit: Sequence[AuditEntry], now_us: int
    ) -> list[Effect]:
        """Return the effects that store an operation; its end is in the audit."""
        entries = [*audit, operations.end_entry(operation)] if operation.ended else audit
        record = operations.encode(operation)
        return [OperationSet(now_us, record), *self._core.audited(entries, now_us)]
