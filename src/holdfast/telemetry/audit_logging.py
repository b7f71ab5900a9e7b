"""An engine that logs what operators do: every change by a person is a log event."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.engines.contract import AdminResult
from holdfast.engines.forwarding import ForwardingEngine
from holdfast.engines.structured_log import StructuredLog
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.actions import AnyAction, NoteJobs
from holdfast.model.audit import Attribution, AuditEntry, AuditHead
from holdfast.model.effects import ScheduleState
from holdfast.model.job import Edit, Job, JobRef
from holdfast.model.policy import QueuePolicy
from holdfast.model.search import Filter

log = StructuredLog("holdfast.audit")


class AuditLoggingEngine(ForwardingEngine):
    """Forwards every verb, and logs who did what and why afterwards."""

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
        done = await self.engine.operate(action, wanted, attribution, limit=limit, caller=caller)
        if isinstance(action, NoteJobs):
            # A note is only for people who may see the job.
            attribution = msgspec.structs.replace(attribution, why="")
        return log_operation(action.name, attribution, done)

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
        edited = await self.engine.edit(job, changes, attribution, version=version, caller=caller)
        log.emit(
            "audit.operation",
            action=_action(attribution, "edit"),
            user=attribution.by,
            why=attribution.why,
            count=1,
            queue=edited.queue,
            job=edited.id,
            tenant=edited.tenant,
        )
        return edited

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
        await self.engine.set_policy(queue, policy, attribution, expected=expected, caller=caller)
        log.emit(
            "audit.operation",
            action=_action(attribution, "set_policy"),
            user=attribution.by,
            why=attribution.why,
            queue=queue,
        )

    async def set_flag(
        self, name: str, attribution: Attribution, *, on: bool | None, caller: Caller = SYSTEM
    ) -> None:
        """See ``Engine.set_flag``."""
        await self.engine.set_flag(name, attribution, on=on, caller=caller)
        log.emit(
            "audit.operation",
            action=_action(attribution, "set_flag"),
            resource=f"flag {name}",
            user=attribution.by,
            why=attribution.why,
        )

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
        await self.engine.set_schedule(
            name, schedule, attribution, expected=expected, caller=caller
        )
        log.emit(
            "audit.operation",
            action=_action(attribution, "set_schedule"),
            resource=f"schedule {name}",
            user=attribution.by,
            why=attribution.why,
        )

    async def audit(self, entries: Sequence[AuditEntry], *, caller: Caller = SYSTEM) -> AuditHead:
        """See ``Engine.audit``."""
        head = await self.engine.audit(entries, caller=caller)
        for entry in entries:
            log.emit(
                "audit.entry",
                action=entry.action,
                resource=f"{entry.resource_type} {entry.resource_id}".strip(),
                user=entry.user_id,
                why=entry.reason or None,
                tenant=entry.tenant or None,
            )
        return head


def _action(attribution: Attribution, otherwise: str) -> str:
    """Return the name of the action in the audit."""
    return attribution.audit[0].action if attribution.audit else otherwise


def log_operation(action: str, attribution: Attribution, done: AdminResult) -> AdminResult:
    """Log an operation on jobs; return its result."""
    one = done.jobs[0] if len(done.jobs) == 1 else None
    log.emit(
        "audit.operation",
        action=_action(attribution, action),
        user=attribution.by,
        why=attribution.why or None,
        count=len(done.jobs),
        kept=done.kept,
        more=done.more,
        queue=None if one is None else one.queue,
        job=None if one is None else one.id,
        tenant=None if one is None else one.tenant,
    )
    return done
