"""The verbs of a client engine that look at work, and those with which people look after it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TypeVar

from holdfast.engines.argument_checks import (
    check_action,
    check_all,
    check_attribution,
    check_edit,
    check_filter,
    check_limit,
    check_policy,
    check_schedule,
    check_switch,
)
from holdfast.engines.contract import MOST_PAYLOAD_BYTES, AdminResult, Counts
from holdfast.engines.dump.format import DumpRecord
from holdfast.engines.protocol import messages
from holdfast.model.access import DEFAULT_TENANT, SYSTEM, Caller
from holdfast.model.actions import AnyAction
from holdfast.model.audit import Attribution, AuditEntry, AuditHead, AuditRecord
from holdfast.model.effects import ScheduleState
from holdfast.model.errors import InvalidInput, Unavailable
from holdfast.model.history import History
from holdfast.model.job import Edit, Job, JobRef, check_id, check_size
from holdfast.model.policy import QueuePolicy
from holdfast.model.search import EVERYTHING, FailureGroup, Filter, Page, check_page, read_cursor

from .connection import ConnectionBroken
from .transport import Transport

Q = TypeVar("Q")
A = TypeVar("A")


class RemoteOperations:
    """These verbs, by way of a ``Transport``.

    What changes something is sent once: if the answer is lost, ``Unavailable`` says that nobody
    here knows whether it was done.
    """

    def __init__(self, remote: Transport) -> None:
        self._remote = remote

    # --- look --------------------------------------------------------------------------------

    async def get(
        self, ids: Sequence[str], *, tenant: str = DEFAULT_TENANT, caller: Caller = SYSTEM
    ) -> list[Job | None]:
        """See ``Engine.get``."""
        check_id(tenant, "tenant")
        wanted = check_all("ids", ids, str)
        check_caller(caller)
        body = messages.GET.write_call(messages.GetCall(wanted, tenant, caller))
        return await self._remote.call(messages.GET, body)

    async def counts(self, *, caller: Caller = SYSTEM) -> Mapping[str, Counts]:
        """See ``Engine.counts``."""
        check_caller(caller)
        body = messages.COUNTS.write_call(messages.CountsCall(caller))
        return await self._remote.call(messages.COUNTS, body)

    async def queues(self, *, caller: Caller = SYSTEM) -> list[str]:
        """See ``Engine.queues``."""
        check_caller(caller)
        body = messages.QUEUES.write_call(messages.CountsCall(caller))
        return await self._remote.call(messages.QUEUES, body)

    async def validate(self) -> list[str]:
        """See ``Engine.validate``."""
        body = messages.VALIDATE.write_call(messages.Empty())
        return await self._remote.call(messages.VALIDATE, body)

    async def find(
        self,
        wanted: Filter = EVERYTHING,
        *,
        cursor: str = "",
        limit: int = 100,
        newest: bool = False,
        caller: Caller = SYSTEM,
    ) -> Page:
        """See ``Engine.find``."""
        check_filter(wanted)
        check_page(limit)
        read_cursor(cursor)  # what is none is refused here, in the words of every engine
        check_caller(caller)
        call = messages.FindCall(wanted, cursor, limit, newest, caller)
        return await self._remote.call(messages.FIND, messages.FIND.write_call(call))

    async def groups(
        self, wanted: Filter = EVERYTHING, *, caller: Caller = SYSTEM
    ) -> list[FailureGroup]:
        """See ``Engine.groups``."""
        check_filter(wanted)
        check_caller(caller)
        body = messages.GROUPS.write_call(messages.GroupsCall(wanted, caller))
        return await self._remote.call(messages.GROUPS, body)

    async def history(
        self, ids: Sequence[str], *, tenant: str = DEFAULT_TENANT, caller: Caller = SYSTEM
    ) -> list[History | None]:
        """See ``Engine.history``."""
        check_id(tenant, "tenant")
        wanted = check_all("ids", ids, str)
        check_caller(caller)
        body = messages.HISTORY.write_call(messages.GetCall(wanted, tenant, caller))
        return await self._remote.call(messages.HISTORY, body)

    async def dump(self) -> AsyncIterator[Sequence[DumpRecord]]:
        """See ``Engine.dump``."""
        session = ""
        while True:
            part = await self._once(messages.DUMP, messages.DumpCall(session))
            if part.done:
                return
            yield part.records
            session = part.session

    async def audited(self, *, after: int = 0, limit: int = 100) -> list[AuditRecord]:
        """See ``Engine.audited``."""
        check_size("after", after, 0)
        check_page(limit)
        body = messages.AUDITED.write_call(messages.AuditedCall(after, limit))
        return await self._remote.call(messages.AUDITED, body)

    # --- operate -----------------------------------------------------------------------------

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
        check_filter(wanted)
        check_attribution(attribution)
        check_limit(limit)
        check_caller(caller)
        call = messages.OperateCall(action, wanted, attribution, limit, caller)
        return await self._once(messages.OPERATE, call)

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
        check_edit(changes, MOST_PAYLOAD_BYTES)
        check_attribution(attribution)
        check_caller(caller)
        named = messages.JobName(check_id(job.tenant, "tenant"), check_id(job.id))
        call = messages.EditCall(named, changes, attribution, version, caller)
        return await self._once(messages.EDIT, call)

    # --- what governs work -------------------------------------------------------------------

    async def policies(self) -> Mapping[str, QueuePolicy]:
        """See ``Engine.policies``."""
        return await self._remote.call(
            messages.POLICIES, messages.POLICIES.write_call(messages.Empty())
        )

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
        check_attribution(attribution)
        check_caller(caller)
        call = messages.SetPolicyCall(queue, policy, attribution, caller, expected)
        await self._once(messages.SET_POLICY, call)

    async def flags(self) -> Mapping[str, bool]:
        """See ``Engine.flags``."""
        return await self._remote.call(messages.FLAGS, messages.FLAGS.write_call(messages.Empty()))

    async def set_flag(
        self, name: str, attribution: Attribution, *, on: bool | None, caller: Caller = SYSTEM
    ) -> None:
        """See ``Engine.set_flag``."""
        check_id(name, "name")
        check_switch(on)
        check_attribution(attribution)
        check_caller(caller)
        await self._once(messages.SET_FLAG, messages.SetFlagCall(name, on, attribution, caller))

    async def schedules(self) -> Mapping[str, ScheduleState]:
        """See ``Engine.schedules``."""
        return await self._remote.call(
            messages.SCHEDULES, messages.SCHEDULES.write_call(messages.Empty())
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
        check_id(name, "name")
        check_schedule(schedule)
        check_schedule(expected)
        check_attribution(attribution)
        check_caller(caller)
        call = messages.SetScheduleCall(name, schedule, attribution, caller, expected)
        await self._once(messages.SET_SCHEDULE, call)

    async def audit(self, entries: Sequence[AuditEntry], *, caller: Caller = SYSTEM) -> AuditHead:
        """See ``Engine.audit``."""
        checked = check_all("entries", entries, AuditEntry)
        for entry in checked:
            entry.check()
        check_caller(caller)
        return await self._once(messages.AUDIT, messages.AuditCall(checked, caller))

    async def _once(self, verb: messages.Verb[Q, A], call: Q) -> A:
        try:
            return await self._remote.once(verb, verb.write_call(call))
        except ConnectionBroken:
            raise Unavailable(
                f"the connection broke before the answer came, so that nobody here knows whether "
                f"this {verb.name} was done: look before you do it again"
            ) from None


def check_caller(caller: Caller) -> None:
    """Raise ``InvalidInput`` unless it is a caller."""
    if type(caller) is not Caller:
        raise InvalidInput("caller", f"a {type(caller).__name__} is not a Caller")
