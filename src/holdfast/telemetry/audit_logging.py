"""An engine that says what operators do: every change that a person makes is a log event too."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.engines.contract import Operated
from holdfast.engines.forwarding import PassingEngine
from holdfast.engines.structured_log import EventLog
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.audit import AuditEntry, AuditHead, Operation
from holdfast.model.effects import ScheduleState
from holdfast.model.job import Edit, Job, JobRef
from holdfast.model.policy import QueuePolicy
from holdfast.model.search import Filter

log = EventLog("holdfast.audit")


class AnnouncedEngine(PassingEngine):
    """Passes every verb on, and says who did what and why once it is done."""

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
        done = await self.engine.replay(
            wanted, operation, limit=limit, run=run, fixed=fixed, caller=caller
        )
        return said("replay", operation, done)

    async def archive(
        self, wanted: Filter, operation: Operation, *, limit: int = 1_000, caller: Caller = SYSTEM
    ) -> Operated:
        """See ``Engine.archive``."""
        done = await self.engine.archive(wanted, operation, limit=limit, caller=caller)
        return said("archive", operation, done)

    async def restore(
        self, wanted: Filter, operation: Operation, *, limit: int = 1_000, caller: Caller = SYSTEM
    ) -> Operated:
        """See ``Engine.restore``."""
        done = await self.engine.restore(wanted, operation, limit=limit, caller=caller)
        return said("restore", operation, done)

    async def cancel(
        self, wanted: Filter, operation: Operation, *, limit: int = 1_000, caller: Caller = SYSTEM
    ) -> Operated:
        """See ``Engine.cancel``."""
        done = await self.engine.cancel(wanted, operation, limit=limit, caller=caller)
        return said("cancel", operation, done)

    async def purge(
        self, wanted: Filter, operation: Operation, *, limit: int = 1_000, caller: Caller = SYSTEM
    ) -> Operated:
        """See ``Engine.purge``."""
        done = await self.engine.purge(wanted, operation, limit=limit, caller=caller)
        return said("purge", operation, done)

    async def confirm(
        self, wanted: Filter, operation: Operation, *, limit: int = 1_000, caller: Caller = SYSTEM
    ) -> Operated:
        """See ``Engine.confirm``."""
        done = await self.engine.confirm(wanted, operation, limit=limit, caller=caller)
        return said("confirm", operation, done)

    async def note(
        self, wanted: Filter, text: str, operation: Operation, *, caller: Caller = SYSTEM
    ) -> Operated:
        """See ``Engine.note``."""
        done = await self.engine.note(wanted, text, operation, caller=caller)
        # What people write about a job is for those who may see it.
        return said("note", msgspec.structs.replace(operation, why=""), done)

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
        edited = await self.engine.edit(job, changes, operation, version=version, caller=caller)
        log.say(
            "audit.operation",
            action=_action(operation, "edit"),
            user=operation.by,
            why=operation.why,
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
        operation: Operation,
        *,
        expected: QueuePolicy | None = None,
        caller: Caller = SYSTEM,
    ) -> None:
        """See ``Engine.set_policy``."""
        await self.engine.set_policy(queue, policy, operation, expected=expected, caller=caller)
        log.say(
            "audit.operation",
            action=_action(operation, "set_policy"),
            user=operation.by,
            why=operation.why,
            queue=queue,
        )

    async def set_flag(
        self, name: str, operation: Operation, *, on: bool | None, caller: Caller = SYSTEM
    ) -> None:
        """See ``Engine.set_flag``."""
        await self.engine.set_flag(name, operation, on=on, caller=caller)
        log.say(
            "audit.operation",
            action=_action(operation, "set_flag"),
            resource=f"flag {name}",
            user=operation.by,
            why=operation.why,
        )

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
        await self.engine.set_schedule(name, schedule, operation, expected=expected, caller=caller)
        log.say(
            "audit.operation",
            action=_action(operation, "set_schedule"),
            resource=f"schedule {name}",
            user=operation.by,
            why=operation.why,
        )

    async def audit(self, entries: Sequence[AuditEntry], *, caller: Caller = SYSTEM) -> AuditHead:
        """See ``Engine.audit``."""
        head = await self.engine.audit(entries, caller=caller)
        for entry in entries:
            log.say(
                "audit.entry",
                action=entry.action,
                resource=f"{entry.resource_type} {entry.resource_id}".strip(),
                user=entry.user_id,
                why=entry.reason or None,
                tenant=entry.tenant or None,
            )
        return head


def _action(operation: Operation, otherwise: str) -> str:
    """Return what the audit calls it."""
    return operation.audit[0].action if operation.audit else otherwise


def said(action: str, operation: Operation, done: Operated) -> Operated:
    """Say that somebody operated on jobs; return what came of it."""
    one = done.jobs[0] if len(done.jobs) == 1 else None
    log.say(
        "audit.operation",
        action=_action(operation, action),
        user=operation.by,
        why=operation.why or None,
        count=len(done.jobs),
        kept=done.kept,
        more=done.more,
        queue=None if one is None else one.queue,
        job=None if one is None else one.id,
        tenant=None if one is None else one.tenant,
    )
    return done
