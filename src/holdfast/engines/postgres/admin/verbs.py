"""The verbs with which people look after work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from holdfast.engines.argument_checks import (
    check_all,
    check_edit,
    check_limit,
    check_operation,
    check_policy,
    check_schedule,
    check_switch,
    for_states,
)
from holdfast.engines.contract import Operated
from holdfast.engines.postgres.connection.sansio import Verb, ask_all
from holdfast.engines.postgres.errors import Doubt
from holdfast.engines.postgres.jobs.lost_replies import unknown
from holdfast.engines.postgres.jobs.verbs import Moving
from holdfast.model import lifecycle
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.audit import AuditEntry, AuditHead, Operation, check_text
from holdfast.model.effects import Effect, Noted, ScheduleState
from holdfast.model.errors import AccessDenied, StaleVersion
from holdfast.model.job import UNFINISHED, Edit, Job, JobRef, State, check_id
from holdfast.model.policy import DEFAULT_POLICY, QueuePolicy
from holdfast.model.search import MAX_PAGE, Filter

from . import policies as policy_verbs
from .actions import Deed, Replay, operate, without_deterministic
from .audit import add_audit

T = TypeVar("T")

_DEAD = frozenset({State.DEAD})
_FINISHED = frozenset(State) - UNFINISHED


class Operating(Moving):
    """Every verb that operates on work, and on what governs it."""

    async def replay(
        self,
        wanted: Filter,
        operation: Operation,
        *,
        limit: int = 1_000,
        run: str = "",
        fixed: str = "",
        caller: Caller = SYSTEM,
    ) -> Operated:
        """See ``Engine.replay``."""
        check_operation(operation)
        asked = for_states(wanted, _DEAD)
        if run:
            check_id(run, "run")
        if fixed:
            check_text("fixed", fixed)
        make = lambda: Replay(operation, run, fixed)
        if fixed or asked.ids:
            return await self._operate(asked, make, operation, limit, caller)
        others, kept = await self._database.read(
            lambda: without_deterministic(asked, caller, self._on())
        )
        done = await self._operate(others, make, operation, limit, caller)
        return replace(done, kept=done.kept + kept)

    async def archive(
        self,
        wanted: Filter,
        operation: Operation,
        *,
        limit: int = 1_000,
        caller: Caller = SYSTEM,
    ) -> Operated:
        """See ``Engine.archive``."""
        decide = lambda job, now: lifecycle.archive(job, now, operation.by, operation.why)
        deed = Deed(_DEAD, decide)
        return await self._operate(wanted, lambda: deed, operation, limit, caller)

    async def restore(
        self,
        wanted: Filter,
        operation: Operation,
        *,
        limit: int = 1_000,
        caller: Caller = SYSTEM,
    ) -> Operated:
        """See ``Engine.restore``."""
        decide = lambda job, now: lifecycle.restore(job, now, operation.by, operation.why)
        deed = Deed(frozenset({State.ARCHIVED}), decide)
        return await self._operate(wanted, lambda: deed, operation, limit, caller)

    async def cancel(
        self,
        wanted: Filter,
        operation: Operation,
        *,
        limit: int = 1_000,
        caller: Caller = SYSTEM,
    ) -> Operated:
        """See ``Engine.cancel``."""
        decide = lambda job, now: lifecycle.cancel(job, now, operation.why, operation.by)
        deed = Deed(UNFINISHED, decide, lambda job: job.stop_requested)
        return await self._operate(wanted, lambda: deed, operation, limit, caller)

    async def purge(
        self,
        wanted: Filter,
        operation: Operation,
        *,
        limit: int = 1_000,
        caller: Caller = SYSTEM,
    ) -> Operated:
        """See ``Engine.purge``."""
        deed = Deed(_FINISHED, lifecycle.purge)
        return await self._operate(wanted, lambda: deed, operation, limit, caller)

    async def confirm(
        self,
        wanted: Filter,
        operation: Operation,
        *,
        limit: int = 1_000,
        caller: Caller = SYSTEM,
    ) -> Operated:
        """See ``Engine.confirm``."""
        decide = lambda job, now: lifecycle.confirm(job, now, operation.by, operation.why)
        waits_for_jobs = lambda job: not wanted.ids and not job.ties.hold
        deed = Deed(frozenset({State.BLOCKED}), decide, waits_for_jobs)
        return await self._operate(wanted, lambda: deed, operation, limit, caller)

    async def note(
        self, wanted: Filter, text: str, operation: Operation, *, caller: Caller = SYSTEM
    ) -> Operated:
        """See ``Engine.note``."""
        check_text("text", text)
        decide = lambda job, now: Noted(now, job.tenant, job.id, operation.by, text)
        deed = Deed(frozenset(State), decide)
        return await self._operate(wanted, lambda: deed, operation, MAX_PAGE, caller)

    async def edit(
        self,
        job: JobRef,
        changes: Edit,
        operation: Operation,
        *,
        version: int | None = None,
        caller: Caller = SYSTEM,
    ) -> Job:
        """See ``Engine.edit``."""
        check_edit(changes, self._options.max_payload_bytes)

        def decide(found: Job, now_us: int) -> Effect:
            if version is not None and found.version != version:
                raise StaleVersion(found.id, version, found.version)
            return lifecycle.edit(found, now_us, changes, operation.by, operation.why)

        wanted = Filter(ids=(check_id(job.id),), tenant=check_id(job.tenant, "tenant"))
        deed = Deed(lifecycle.EDITABLE, decide)
        done = await self._operate(wanted, lambda: deed, operation, 1, caller)
        return done.jobs[0]

    async def _operate(
        self,
        wanted: Filter,
        make: Callable[[], Deed],
        operation: Operation,
        limit: int,
        caller: Caller,
    ) -> Operated:
        """Find jobs and do this to them, in one commit."""
        check_operation(operation)
        check_limit(limit)
        asked = for_states(wanted, make().states)
        verb = lambda: operate(asked, make(), operation, limit, caller, self._on())
        done, changes = await self._once("operation", verb)
        self._announce(changes)
        return done

    # --- what governs work -------------------------------------------------------------------

    async def policies(self) -> Mapping[str, QueuePolicy]:
        """See ``Engine.policies``."""
        return await self._database.read(policy_verbs.policies)

    async def set_policy(
        self,
        queue: str,
        policy: QueuePolicy | None,
        operation: Operation,
        *,
        expected: QueuePolicy | None = None,
        caller: Caller = SYSTEM,
    ) -> None:
        """See ``Engine.set_policy``."""
        check_id(queue, "queue")
        check_policy(policy)
        check_policy(expected)
        _check_governor("queue", queue, operation, caller)
        wanted = None if policy == DEFAULT_POLICY else policy
        await self._once(
            "set_policy",
            lambda: policy_verbs.set_policy(queue, wanted, operation, expected, self._on()),
        )
        self._lanes.forget()
        self._arrivals.announce((), [queue])

    async def flags(self) -> Mapping[str, bool]:
        """See ``Engine.flags``."""
        return await self._database.read(policy_verbs.flags)

    async def set_flag(
        self, name: str, operation: Operation, *, on: bool | None, caller: Caller = SYSTEM
    ) -> None:
        """See ``Engine.set_flag``."""
        check_id(name, "name")
        check_switch(on)
        _check_governor("flag", name, operation, caller)
        await self._once(
            "set_flag", lambda: policy_verbs.set_flag(name, operation, self._on(), to=on)
        )

    async def schedules(self) -> Mapping[str, ScheduleState]:
        """See ``Engine.schedules``."""
        return await self._database.read(policy_verbs.schedules)

    async def set_schedule(
        self,
        name: str,
        schedule: ScheduleState | None,
        operation: Operation,
        *,
        expected: ScheduleState | None = None,
        caller: Caller = SYSTEM,
    ) -> None:
        """See ``Engine.set_schedule``."""
        check_id(name, "name")
        check_schedule(schedule)
        check_schedule(expected)
        _check_governor("schedule", name, operation, caller)
        await self._once(
            "set_schedule",
            lambda: policy_verbs.set_schedule(name, schedule, operation, expected, self._on()),
        )

    async def audit(self, entries: Sequence[AuditEntry], *, caller: Caller = SYSTEM) -> AuditHead:
        """See ``Engine.audit``."""
        if not caller.unlimited:
            raise AccessDenied("audit", "entries")
        checked = check_all("entries", entries, AuditEntry)
        for entry in checked:
            entry.check()

        def add() -> Verb[AuditHead]:
            [[[now_us]]] = yield from ask_all(self._on().now())
            return (yield from add_audit(checked, now_us))

        return await self._once("audit", add)

    async def _once(self, what: str, make: Callable[[], Verb[T]]) -> T:
        """Perform what a person asked for: once, and never again for safety's sake."""
        try:
            return await self._database.perform(make)
        except Doubt as doubt:
            raise unknown(what) from doubt.__cause__


def _check_governor(what: str, name: str, operation: Operation, caller: Caller) -> None:
    check_operation(operation)
    if not caller.unlimited:
        raise AccessDenied(what, name)  # it governs every tenant's work
