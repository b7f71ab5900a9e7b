"""The verbs with which people look after work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from holdfast.engines.argument_checks import (
    check_action,
    check_all,
    check_attribution,
    check_edit,
    check_limit,
    check_policy,
    check_schedule,
    check_switch,
    for_states,
)
from holdfast.engines.contract import AdminResult
from holdfast.engines.postgres.connection.sansio import SansIO, execute_all
from holdfast.engines.postgres.errors import CommitUnknown
from holdfast.engines.postgres.jobs.lost_replies import unknown
from holdfast.engines.postgres.jobs.verbs import Moving
from holdfast.model import lifecycle
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.actions import AnyAction, ReplayJobs
from holdfast.model.audit import Attribution, AuditEntry, AuditHead
from holdfast.model.effects import Effect, ScheduleState
from holdfast.model.errors import AccessDenied, StaleVersion
from holdfast.model.job import Edit, Job, JobRef, check_id
from holdfast.model.policy import DEFAULT_POLICY, QueuePolicy
from holdfast.model.search import Filter

from . import policies as policy_verbs
from .actions import ActionOnJobs, JobChange, ReplayOnJobs, operate, without_deterministic
from .audit import add_audit

T = TypeVar("T")


class Operating(Moving):
    """Every verb that operates on work, and on what governs it."""

    async def operate(
        self,
        action: AnyAction,
        wanted: Filter,
        attribution: Attribution,
        *,
        limit: int = 1_000,
        caller: Caller = SYSTEM,
    ) -> AdminResult:
        """See ``Engine.operate``."""
        check_action(action)
        check_attribution(attribution)
        if not isinstance(action, ReplayJobs):
            applied = ActionOnJobs(action, attribution, named=bool(wanted.ids))
            return await self._operate(wanted, lambda: applied, attribution, limit, caller)
        asked = for_states(wanted, action.states)
        replayed = lambda: ReplayOnJobs(action, attribution, named=bool(asked.ids))
        if action.fixed or asked.ids:
            return await self._operate(asked, replayed, attribution, limit, caller)
        others, kept = await self._database.read(
            lambda: without_deterministic(asked, caller, self._on())
        )
        done = await self._operate(others, replayed, attribution, limit, caller)
        return replace(done, kept=done.kept + kept)

    async def edit(
        self,
        job: JobRef,
        changes: Edit,
        attribution: Attribution,
        *,
        version: int | None = None,
        caller: Caller = SYSTEM,
    ) -> Job:
        """See ``Engine.edit``."""
        check_edit(changes, self._options.max_payload_bytes)

        def decide(found: Job, now_us: int) -> Effect:
            if version is not None and found.version != version:
                raise StaleVersion(found.id, version, found.version)
            return lifecycle.edit(found, now_us, changes, attribution.by, attribution.why)

        wanted = Filter(ids=(check_id(job.id),), tenant=check_id(job.tenant, "tenant"))
        change = JobChange(lifecycle.EDITABLE, decide)
        done = await self._operate(wanted, lambda: change, attribution, 1, caller)
        return done.jobs[0]

    async def _operate(
        self,
        wanted: Filter,
        make: Callable[[], JobChange],
        attribution: Attribution,
        limit: int,
        caller: Caller,
    ) -> AdminResult:
        """Find jobs and do this to them, in one commit."""
        check_attribution(attribution)
        check_limit(limit)
        asked = for_states(wanted, make().states)
        verb = lambda: operate(asked, make(), attribution, limit, caller, self._on())
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
        attribution: Attribution,
        *,
        expected: QueuePolicy | None = None,
        caller: Caller = SYSTEM,
    ) -> None:
        """See ``Engine.set_policy``."""
        check_id(queue, "queue")
        check_policy(policy)
        check_policy(expected)
        _check_governor("queue", queue, attribution, caller)
        wanted = None if policy == DEFAULT_POLICY else policy
        await self._once(
            "set_policy",
            lambda: policy_verbs.set_policy(queue, wanted, attribution, expected, self._on()),
        )
        self._lanes.forget()
        self._waiters.wake((), [queue])

    async def flags(self) -> Mapping[str, bool]:
        """See ``Engine.flags``."""
        return await self._database.read(policy_verbs.flags)

    async def set_flag(
        self, name: str, attribution: Attribution, *, on: bool | None, caller: Caller = SYSTEM
    ) -> None:
        """See ``Engine.set_flag``."""
        check_id(name, "name")
        check_switch(on)
        _check_governor("flag", name, attribution, caller)
        await self._once(
            "set_flag", lambda: policy_verbs.set_flag(name, attribution, self._on(), to=on)
        )

    async def schedules(self) -> Mapping[str, ScheduleState]:
        """See ``Engine.schedules``."""
        return await self._database.read(policy_verbs.schedules)

    async def set_schedule(
        self,
        name: str,
        schedule: ScheduleState | None,
        attribution: Attribution,
        *,
        expected: ScheduleState | None = None,
        caller: Caller = SYSTEM,
    ) -> None:
        """See ``Engine.set_schedule``."""
        check_id(name, "name")
        check_schedule(schedule)
        check_schedule(expected)
        _check_governor("schedule", name, attribution, caller)
        await self._once(
            "set_schedule",
            lambda: policy_verbs.set_schedule(name, schedule, attribution, expected, self._on()),
        )

    async def audit(self, entries: Sequence[AuditEntry], *, caller: Caller = SYSTEM) -> AuditHead:
        """See ``Engine.audit``."""
        if not caller.unlimited:
            raise AccessDenied("audit", "entries")
        checked = check_all("entries", entries, AuditEntry)
        for entry in checked:
            entry.check()

        def add() -> SansIO[AuditHead]:
            [[[now_us]]] = yield from execute_all(self._on().now())
            return (yield from add_audit(checked, now_us))

        return await self._once("audit", add)

    async def _once(self, what: str, make: Callable[[], SansIO[T]]) -> T:
        """Perform what a person asked for: once, and never again for safety's sake."""
        try:
            return await self._database.perform(make)
        except CommitUnknown as doubt:
            raise unknown(what) from doubt.__cause__


def _check_governor(what: str, name: str, attribution: Attribution, caller: Caller) -> None:
    check_attribution(attribution)
    if not caller.unlimited:
        raise AccessDenied(what, name)  # it governs every tenant's work
