"""An engine that logs what operators do: every change by a person is a log event."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from holdfast.engines.contract import AdminResult, Engine
from holdfast.engines.forwarding import ForwardingEngine
from holdfast.engines.structured_log import StructuredLog
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.actions import AnyAction, NoteJobs
from holdfast.model.audit import Attribution, AuditEntry, AuditHead, AuditRecord
from holdfast.model.effects import ScheduleState
from holdfast.model.fleet import WorkerCommand
from holdfast.model.group_life import GroupChange
from holdfast.model.job import MICROSECONDS, Edit, Job, JobRef
from holdfast.model.operation import NewOperation, Operation, OperationChange, OperationStep
from holdfast.model.outage import Outage
from holdfast.model.policy import QueuePolicy
from holdfast.model.search import FailureGroup, Filter

from .operation_logging import OperationLog

log = StructuredLog("holdfast.audit")


class TakeUnlogged(Protocol):
    """Returns the next audit records that are to be logged, and counts them as logged."""

    def __call__(self, *, every_seconds: float) -> Awaitable[Sequence[AuditRecord]]:
        """Take them, if no process has done so within this time."""


class AuditLoggingEngine(ForwardingEngine):
    """Forwards every verb, and logs who did what and why afterwards."""

    def __init__(self, engine: Engine, *, logs_audit: bool = True) -> None:
        """Without ``logs_audit`` it logs nothing: on a server ``AuditLogLoop`` does, for all."""
        super().__init__(engine)
        self.logs_audit = logs_audit
        self.operation_log = OperationLog()
        self.on_command: Callable[[], None] = lambda: None
        """Called after a command to processes was sent: it may be for this one."""

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
        return self._log_operation(action.name, attribution, done)

    async def start_operation(
        self, new: NewOperation, attribution: Attribution, *, caller: Caller = SYSTEM
    ) -> Operation:
        """See ``Engine.start_operation``."""
        operation = await self.engine.start_operation(new, attribution, caller=caller)
        self._log(new.action.name, attribution, resource=f"operation {operation.id}")
        self.operation_log.started(operation)
        return operation

    async def advance_operation(self, operation_id: str) -> OperationStep:
        """See ``Engine.advance_operation``."""
        step = await self.engine.advance_operation(operation_id)
        self.operation_log.seen(step.operation)
        return step

    async def operations(
        self, *, running: bool = False, limit: int = 100, caller: Caller = SYSTEM
    ) -> list[Operation]:
        """See ``Engine.operations``."""
        found = await self.engine.operations(running=running, limit=limit, caller=caller)
        if running and caller.unlimited and len(found) < limit:
            self.operation_log.listed(found)
        return found

    async def change_operation(
        self,
        operation_id: str,
        change: OperationChange,
        attribution: Attribution,
        *,
        caller: Caller = SYSTEM,
    ) -> Operation:
        """See ``Engine.change_operation``."""
        operation = await self.engine.change_operation(
            operation_id, change, attribution, caller=caller
        )
        self._log("operation.change", attribution, resource=f"operation {operation_id}")
        self.operation_log.seen(operation)
        return operation

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
        self._log("edit", attribution, count=1, about=edited)
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
        self._log("set_policy", attribution, queue=queue)

    async def set_flag(
        self, name: str, attribution: Attribution, *, on: bool | None, caller: Caller = SYSTEM
    ) -> None:
        """See ``Engine.set_flag``."""
        await self.engine.set_flag(name, attribution, on=on, caller=caller)
        self._log("set_flag", attribution, resource=f"flag {name}")

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
        self._log("set_schedule", attribution, resource=f"schedule {name}")

    async def set_group(
        self,
        group_id: str,
        change: GroupChange,
        attribution: Attribution,
        *,
        caller: Caller = SYSTEM,
    ) -> FailureGroup | None:
        """See ``Engine.set_group``."""
        found = await self.engine.set_group(group_id, change, attribution, caller=caller)
        self._log("set_group", attribution, resource=f"group {group_id}")
        return found

    async def set_outage(
        self, dependency: str, attribution: Attribution, *, on: bool, caller: Caller = SYSTEM
    ) -> Outage:
        """See ``Engine.set_outage``."""
        outage = await self.engine.set_outage(dependency, attribution, on=on, caller=caller)
        self._log("set_outage", attribution, resource=f"outage {dependency}")
        return outage

    async def command(
        self,
        command: WorkerCommand,
        process_ids: Sequence[str],
        attribution: Attribution,
        *,
        ttl_seconds: float,
        caller: Caller = SYSTEM,
    ) -> str:
        """See ``Engine.command``."""
        command_id = await self.engine.command(
            command, process_ids, attribution, ttl_seconds=ttl_seconds, caller=caller
        )
        self.on_command()
        self._log(command.action, attribution, count=len(process_ids))
        return command_id

    async def audit(self, entries: Sequence[AuditEntry], *, caller: Caller = SYSTEM) -> AuditHead:
        """See ``Engine.audit``."""
        head = await self.engine.audit(entries, caller=caller)
        if self.logs_audit:
            for entry in entries:
                log_entry(entry)
        return head

    def _log_operation(
        self, action: str, attribution: Attribution, done: AdminResult
    ) -> AdminResult:
        """Log an operation on jobs; return its result."""
        one = done.jobs[0] if len(done.jobs) == 1 else None
        self._log(
            action, attribution, count=len(done.jobs), kept=done.kept, more=done.more, about=one
        )
        return done

    def _log(
        self,
        action: str,
        attribution: Attribution,
        *,
        resource: str | None = None,
        count: int | None = None,
        kept: int | None = None,
        more: bool | None = None,
        queue: str | None = None,
        about: Job | None = None,
    ) -> None:
        """Log an operation, under the name that it has in the audit."""
        if not self.logs_audit:
            return
        log.emit(
            "audit.operation",
            action=attribution.audit[0].action if attribution.audit else action,
            resource=resource,
            user=attribution.by,
            why=attribution.why or None,
            count=count,
            kept=kept,
            more=more,
            queue=queue if about is None else about.queue,
            job=None if about is None else about.id,
            tenant=None if about is None else about.tenant,
        )


def log_entry(entry: AuditEntry) -> None:
    """Log an audit entry."""
    log.emit(
        "audit.entry",
        action=entry.action,
        resource=f"{entry.resource_type} {entry.resource_id}".strip(),
        user=entry.user_id,
        why=_reason(entry),
        tenant=entry.tenant or None,
    )


def _reason(entry: AuditEntry) -> str | None:
    # A note is only for people who may see the job.
    return None if entry.action == f"job.{NoteJobs.name}" else entry.reason or None


class AuditLogLoop:
    """Logs the audit of a server, which many processes write: each entry once."""

    interval_seconds = 2.0

    def __init__(self, take: TakeUnlogged) -> None:
        self._take = take

    async def step(self, now_us: int) -> int:
        """Log what is new, unless another process has just done so."""
        for record in await self._take(every_seconds=self.interval_seconds):
            log_entry(record.entry)
        return now_us + int(self.interval_seconds * MICROSECONDS)
