"""The client engine: the verbs of an engine that another process owns, here or elsewhere.

If the reply to an enqueue or settle is lost, the call is repeated and the store's state shows what
became of the first one (``lost_replies``): a broken connection neither loses nor repeats work.
An administrative change is sent once: if its reply is lost, ``Unavailable`` says that the outcome
is unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import astuple, replace

from holdfast.engines.argument_checks import (
    check_action,
    check_all,
    check_attribution,
    check_audit_page,
    check_chain,
    check_command,
    check_edit,
    check_event_filter,
    check_events,
    check_filter,
    check_group_change,
    check_held,
    check_limit,
    check_may_sample,
    check_names,
    check_operation,
    check_operation_change,
    check_policy,
    check_process,
    check_sampling,
    check_schedule,
    check_subscription,
    check_switch,
)
from holdfast.engines.clock import Clock, SystemClock
from holdfast.engines.contract import (
    DEFAULT_LEASE_SECONDS,
    MAX_CLAIM,
    MAX_EXPLAINED,
    MOST_PAYLOAD_BYTES,
    AdminResult,
    Admission,
    Capabilities,
    Claim,
    Counts,
    HeldJob,
    OnDuplicate,
    Receipt,
    Reclaim,
    Renewal,
)
from holdfast.engines.dump.format import DumpRecord
from holdfast.engines.entropy import random_bytes as pooled_bytes
from holdfast.engines.lost_replies import Known, SentEnqueue, accepted
from holdfast.engines.outages import check_reports, check_set_outage
from holdfast.engines.protocol import messages
from holdfast.model.access import DEFAULT_TENANT, SYSTEM, Caller
from holdfast.model.actions import AnyAction
from holdfast.model.audit import (
    WHOLE_AUDIT,
    Attribution,
    AuditEntry,
    AuditFilter,
    AuditHead,
    AuditRecord,
)
from holdfast.model.change_feed import ChangeMarks
from holdfast.model.cursor import read_cursor
from holdfast.model.effects import ScheduleState
from holdfast.model.errors import (
    DuplicateId,
    HoldfastError,
    InvalidInput,
    LeaseLost,
    Unavailable,
)
from holdfast.model.event import Event, EventReceipt, NewEvent
from holdfast.model.event_search import EVERY_EVENT, EventFilter, EventPage, read_event_cursor
from holdfast.model.explain import Explanation
from holdfast.model.fleet import (
    CommandAnswer,
    SentCommand,
    WorkerCommand,
    WorkerEntry,
    WorkerProcess,
)
from holdfast.model.group_life import GroupChange
from holdfast.model.history import History
from holdfast.model.ids import RANDOM_BYTES, uuid7s
from holdfast.model.job import (
    MAX_LEASE_SECONDS,
    Edit,
    Job,
    JobRef,
    NewJob,
    admit,
    check_id,
    check_payload,
    check_seconds,
    check_size,
    encode_payload,
)
from holdfast.model.operation import NewOperation, Operation, OperationChange, OperationStep
from holdfast.model.outage import DependencyReport, Outage, OutageUpdate
from holdfast.model.outcome import Outcome, release
from holdfast.model.policy import QueuePolicy
from holdfast.model.projection import ProjectionState, check_projection_name
from holdfast.model.record import Record, check_once, check_record, check_record_names
from holdfast.model.samples import SAMPLE_SECONDS, Series, sample_query
from holdfast.model.search import (
    EVERYTHING,
    Count,
    FailureGroup,
    Filter,
    Order,
    Page,
    check_cap,
    check_order,
    check_page,
)
from holdfast.model.subscription import Subscription

from .channel import Channel
from .connection import ConnectionBroken
from .events import events_to_send, receipts_of_repeat
from .http_endpoint import HttpEndpoint
from .socket_endpoint import SocketEndpoint

if TYPE_CHECKING:
    from holdfast.engines.read_models.sqlite_store import SqliteReadModels

LONGEST_ADDRESS_BYTES = 107

_SENT_TYPES = frozenset({str, int, float, bool, bytes, tuple, list, type(None)})

Q = TypeVar("Q")
A = TypeVar("A")


class ClientEngine:
    """An engine over the Unix socket on which its owner listens, or over the API of a store.

    Bound to the event loop on which it is first used. While no owner listens it retries for
    ``patience_seconds``, then raises ``NoOwner``.
    """

    def __init__(
        self,
        address: str | HttpEndpoint,
        *,
        patience_seconds: float = 5.0,
        clock: Clock | None = None,
        random_bytes: Callable[[int], bytes] = pooled_bytes,
        read_models: Path | None = None,
    ) -> None:
        """Take the path of the socket, or the API.

        ``read_models`` is the directory of the owner's: they are read there, not through it.
        """
        remote = isinstance(address, HttpEndpoint)
        endpoint = address if isinstance(address, HttpEndpoint) else _socket(address)
        check_seconds("patience_seconds", patience_seconds)
        name = "remote" if remote else "client"
        self.capabilities = Capabilities(name=name, durable=True, shared=True)
        self.leases_refused = 0
        self._channel = Channel(endpoint, patience_seconds)
        self._clock = clock or SystemClock()
        self._random_bytes = random_bytes
        self._releases: set[asyncio.Task[None]] = set()
        self._read_models = read_models

    @functools.cached_property
    def read_models(self) -> SqliteReadModels:
        """See ``Engine.read_models``: the owner's files, opened to be read."""
        from holdfast.engines.read_models.sqlite_store import SqliteReadModels  # noqa: PLC0415

        return SqliteReadModels(self._read_models, self, writes=False)

    @property
    def requests(self) -> int:
        """How many requests went out for calls that do not wait: concurrent calls share one."""
        return self._channel.requests

    # --- jobs --------------------------------------------------------------------------------

    async def enqueue(
        self,
        jobs: Sequence[NewJob],
        *,
        caller: Caller = SYSTEM,
        on_duplicate: OnDuplicate = "refuse",
        once: Record | None = None,
    ) -> list[Receipt]:
        """See ``Engine.enqueue``."""
        jobs = check_all("jobs", jobs, NewJob)
        _check_caller(caller)
        if on_duplicate not in ("refuse", "skip"):
            raise InvalidInput("on_duplicate", f"{on_duplicate!r} is not refuse or skip")
        check_once(once)
        now_us = self._clock.now_us()
        sent_jobs = _to_send(jobs, now_us, self._random_bytes)
        call = messages.EnqueueCall(sent_jobs, caller, on_duplicate, once)
        try:
            return await self._channel.call_once(messages.ENQUEUE, call)
        except ConnectionBroken:
            fresh = frozenset(
                new.id
                for new, job in zip(sent_jobs, jobs, strict=True)
                if job.id is None and new.id is not None
            )
            sent = SentEnqueue(sent_jobs, fresh, caller, on_duplicate, now_us)
            return await self._enqueue_again(sent, once)
        except InvalidInput as error:
            if error.field == messages.ENQUEUE.name:  # the call could not be written or read
                for new in sent_jobs:
                    _check_job(new, now_us)
            raise

    async def settle(
        self, outcomes: Sequence[Outcome], *, caller: Caller = SYSTEM
    ) -> list[LeaseLost | None]:
        """See ``Engine.settle``."""
        outcomes = _checked(check_all("outcomes", outcomes, Outcome))
        _check_caller(caller)
        call = messages.SettleCall(outcomes, caller)
        now_us = self._clock.now_us()
        try:
            answer = await self._channel.call_once(messages.SETTLE, call)
            return self._counted([messages.lease_lost(lost) for lost in answer])
        except ConnectionBroken:
            answer = await self._channel.call_again(messages.SETTLE, call)
            return await self._settled_again(outcomes, answer, caller, now_us)

    async def claim(
        self,
        *,
        queues: Collection[str],
        worker: str,
        tasks: Collection[str] | None = None,
        limit: int = 1,
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
        wait_seconds: float = 0.0,
        settle: Sequence[Outcome] = (),
        chain: int = 1,
        caller: Caller = SYSTEM,
    ) -> Claim:
        """See ``Engine.claim``."""
        check_limit(limit)
        check_chain(chain)
        check_id(worker, "worker")
        check_seconds("lease_seconds", lease_seconds, MAX_LEASE_SECONDS)
        outcomes = _checked(check_all("settle", settle, Outcome))
        if wait_seconds != 0:
            check_seconds("wait_seconds", wait_seconds)
        _check_caller(caller)
        call = messages.ClaimCall(
            list(check_names("queues", queues)),
            worker,
            None if tasks is None else list(check_names("tasks", tasks)),
            limit,
            float(lease_seconds),
            0.0 if outcomes else float(wait_seconds),  # a claim that settles does not wait
            outcomes,
            caller,
            chain,
        )
        if call.wait_seconds > 0:
            answer = await self._channel.wait(
                messages.CLAIM,
                lambda seconds: replace(call, wait_seconds=seconds),
                call.wait_seconds,
                self._release_abandoned,
            )
            return Claim(answer.jobs, [])
        now_us = self._clock.now_us()
        try:
            answer = await self._channel.call_once(messages.CLAIM, call, self._release_abandoned)
            return Claim(
                answer.jobs, self._counted([messages.lease_lost(a) for a in answer.settled])
            )
        except ConnectionBroken:
            answer = await self._channel.call_again(
                messages.CLAIM, call, on_abandoned=self._release_abandoned
            )
            settled = await self._settled_again(outcomes, answer.settled, caller, now_us)
            return Claim(answer.jobs, settled)

    async def extend(
        self, held: Sequence[HeldJob], *, lease_seconds: float, caller: Caller = SYSTEM
    ) -> list[Renewal | LeaseLost]:
        """See ``Engine.extend``."""
        check_seconds("lease_seconds", lease_seconds, MAX_LEASE_SECONDS)
        leases = check_held(held)
        _check_caller(caller)
        call = messages.ExtendCall(_lease_refs(leases), float(lease_seconds), caller)
        answers = messages.renewals(await self._channel.call(messages.EXTEND, call))
        self.leases_refused += sum(isinstance(answer, LeaseLost) for answer in answers)
        return answers

    async def leases(
        self, held: Sequence[HeldJob], *, caller: Caller = SYSTEM
    ) -> list[Renewal | LeaseLost]:
        """See ``Engine.leases``."""
        leases = check_held(held)
        _check_caller(caller)
        call = messages.LeasesCall(_lease_refs(leases), caller)
        return messages.renewals(await self._channel.call(messages.LEASES, call))

    async def reclaim(
        self,
        *,
        limit: int = 1_000,
        forced: Sequence[JobRef] = (),
        attribution: Attribution | None = None,
        every_seconds: float = 0.0,
        caller: Caller = SYSTEM,
    ) -> Reclaim:
        """See ``Engine.reclaim``."""
        del every_seconds  # the owner's own loop is the only one
        check_limit(limit)
        refs = check_all("forced", forced, JobRef)  # type: ignore[type-abstract]
        _check_caller(caller)
        names = [messages.JobName(ref.tenant, ref.id) for ref in refs]
        if attribution is not None:
            check_attribution(attribution)
        call = messages.ReclaimCall(limit, names, caller, attribution)
        if attribution is not None:
            return await self._call_once(messages.RECLAIM, call)  # a person's is done once
        return await self._channel.call(messages.RECLAIM, call)

    async def close(self) -> None:
        """End the connections: calls in flight are answered, claims that wait are not."""
        if self._releases:
            await asyncio.wait(self._releases, timeout=self._channel.patience_seconds)
        await self._channel.close()
        if "read_models" in vars(self):
            await self.read_models.close()

    # --- queries -----------------------------------------------------------------------------

    async def get(
        self, ids: Sequence[str], *, tenant: str = DEFAULT_TENANT, caller: Caller = SYSTEM
    ) -> list[Job | None]:
        """See ``Engine.get``."""
        check_id(tenant, "tenant")
        wanted = check_all("ids", ids, str)
        _check_caller(caller)
        return await self._channel.call(messages.GET, messages.GetCall(wanted, tenant, caller))

    async def counts(self, *, caller: Caller = SYSTEM) -> Mapping[str, Counts]:
        """See ``Engine.counts``."""
        _check_caller(caller)
        return await self._channel.call(messages.COUNTS, messages.CountsCall(caller))

    async def queues(self, *, caller: Caller = SYSTEM) -> list[str]:
        """See ``Engine.queues``."""
        _check_caller(caller)
        return await self._channel.call(messages.QUEUES, messages.CountsCall(caller))

    async def explain(
        self, ids: Sequence[str], *, tenant: str = DEFAULT_TENANT, caller: Caller = SYSTEM
    ) -> list[Explanation | None]:
        """See ``Engine.explain``."""
        check_id(tenant, "tenant")
        names = check_all("ids", ids, str)
        check_size("ids", len(names), 0, MAX_EXPLAINED)
        _check_caller(caller)
        return await self._channel.call(messages.EXPLAIN, messages.GetCall(names, tenant, caller))

    async def validate(self) -> list[str]:
        """See ``Engine.validate``."""
        return await self._channel.call(messages.VALIDATE, messages.Empty())

    async def find(
        self,
        wanted: Filter = EVERYTHING,
        *,
        cursor: str = "",
        limit: int = 100,
        order: Order = Order.CREATED,
        caller: Caller = SYSTEM,
    ) -> Page:
        """See ``Engine.find``."""
        check_filter(wanted)
        check_page(limit)
        order = check_order(order)
        read_cursor(cursor, wanted, order)  # raises for a wrong one
        _check_caller(caller)
        call = messages.FindCall(wanted, cursor, limit, order is Order.NEWEST, caller, order)
        return await self._channel.call(messages.FIND, call)

    async def count(
        self, wanted: Filter = EVERYTHING, *, cap: int = 10_000, caller: Caller = SYSTEM
    ) -> Count:
        """See ``Engine.count``."""
        check_filter(wanted)
        check_cap(cap)
        _check_caller(caller)
        return await self._channel.call(messages.COUNT, messages.CountCall(wanted, cap, caller))

    async def groups(
        self, wanted: Filter = EVERYTHING, *, caller: Caller = SYSTEM
    ) -> list[FailureGroup]:
        """See ``Engine.groups``."""
        check_filter(wanted)
        _check_caller(caller)
        return await self._channel.call(messages.GROUPS, messages.GroupsCall(wanted, caller))

    async def history(
        self, ids: Sequence[str], *, tenant: str = DEFAULT_TENANT, caller: Caller = SYSTEM
    ) -> list[History | None]:
        """See ``Engine.history``."""
        check_id(tenant, "tenant")
        wanted = check_all("ids", ids, str)
        _check_caller(caller)
        return await self._channel.call(messages.HISTORY, messages.GetCall(wanted, tenant, caller))

    async def dump(self) -> AsyncIterator[Sequence[DumpRecord]]:
        """See ``Engine.dump``."""
        session = ""
        while True:
            part = await self._call_once(messages.DUMP, messages.DumpCall(session))
            if part.done:
                return
            yield part.records
            session = part.session

    async def audited(
        self,
        wanted: AuditFilter = WHOLE_AUDIT,
        *,
        after: int = 0,
        limit: int = 100,
        newest: bool = False,
    ) -> list[AuditRecord]:
        """See ``Engine.audited``."""
        check_audit_page(wanted, after, limit)
        call = messages.AuditedCall(after, limit, wanted, newest)
        return await self._channel.call(messages.AUDITED, call)

    # --- administration ----------------------------------------------------------------------

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
        _check_caller(caller)
        call = messages.OperateCall(action, wanted, attribution, limit, caller)
        return await self._call_once(messages.OPERATE, call)

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
        _check_caller(caller)
        named = messages.JobName(check_id(job.tenant, "tenant"), check_id(job.id))
        call = messages.EditCall(named, changes, attribution, version, caller)
        return await self._call_once(messages.EDIT, call)

    # --- events ------------------------------------------------------------------------------

    async def append(
        self,
        events: Sequence[NewEvent],
        *,
        caller: Caller = SYSTEM,
        once: Record | None = None,
    ) -> list[EventReceipt]:
        """See ``Engine.append``; after a lost reply it is repeated: ids make that safe."""
        news = check_events(events)
        _check_caller(caller)
        check_once(once)
        sent = events_to_send(news, self._clock.now_us(), self._random_bytes)
        call = messages.AppendCall(sent, caller, once)
        try:
            return await self._channel.call_once(messages.APPEND, call)
        except ConnectionBroken:
            again = await self._channel.call_again(messages.APPEND, call)
            return receipts_of_repeat(news, again)

    async def get_events(
        self, ids: Sequence[str], *, tenant: str = DEFAULT_TENANT, caller: Caller = SYSTEM
    ) -> list[Event | None]:
        """See ``Engine.get_events``."""
        check_id(tenant, "tenant")
        wanted = check_all("ids", ids, str)
        check_size("ids", len(wanted), 0, MAX_CLAIM)
        _check_caller(caller)
        call = messages.GetCall(wanted, tenant, caller)
        return await self._channel.call(messages.GET_EVENTS, call)

    async def find_events(
        self,
        wanted: EventFilter = EVERY_EVENT,
        *,
        cursor: str = "",
        limit: int = 100,
        newest: bool = False,
        caller: Caller = SYSTEM,
    ) -> EventPage:
        """See ``Engine.find_events``."""
        check_page(limit)
        wanted = check_event_filter(wanted)
        read_event_cursor(cursor, wanted, newest=newest)  # raises for a wrong one
        _check_caller(caller)
        call = messages.FindEventsCall(wanted, cursor, limit, bool(newest), caller)
        return await self._channel.call(messages.FIND_EVENTS, call)

    async def count_events(
        self, wanted: EventFilter = EVERY_EVENT, *, caller: Caller = SYSTEM
    ) -> int:
        """See ``Engine.count_events``."""
        wanted = check_event_filter(wanted)
        _check_caller(caller)
        call = messages.CountEventsCall(wanted, caller)
        return await self._channel.call(messages.COUNT_EVENTS, call)

    async def subscriptions(self) -> Mapping[str, Subscription]:
        """See ``Engine.subscriptions``."""
        return await self._channel.call(messages.SUBSCRIPTIONS, messages.Empty())

    async def set_subscription(
        self,
        name: str,
        subscription: Subscription | None,
        attribution: Attribution,
        *,
        caller: Caller = SYSTEM,
    ) -> Subscription | None:
        """See ``Engine.set_subscription``."""
        _check_caller(caller)
        check_subscription(name, subscription, attribution, caller)
        call = messages.SetSubscriptionCall(name, subscription, attribution, caller)
        found = await self._call_once(messages.SET_SUBSCRIPTION, call)
        return found[0] if found else None

    # --- projections -------------------------------------------------------------------------

    async def projections(self) -> Mapping[str, ProjectionState]:
        """See ``Engine.projections``."""
        return await self._channel.call(messages.PROJECTIONS, messages.Empty())

    async def set_projection(
        self,
        state: ProjectionState,
        attribution: Attribution,
        *,
        expected: ProjectionState | None,
        caller: Caller = SYSTEM,
    ) -> None:
        """See ``Engine.set_projection``."""
        check_projection_name(state.name)
        check_attribution(attribution)
        _check_caller(caller)
        call = messages.SetProjectionCall(state, attribution, expected, caller)
        await self._call_once(messages.SET_PROJECTION, call)

    async def fanout_settled(self, version: int) -> bool:  # noqa: ARG002 - its owner alone appends
        """See ``Engine.fanout_settled``."""
        return True

    async def changes(self, *, caller: Caller = SYSTEM) -> ChangeMarks:
        """See ``Engine.changes``."""
        return await self._channel.call(messages.CHANGES, messages.ChangesCall(caller))

    # --- records -----------------------------------------------------------------------------

    async def records(self, kind: str, names: Sequence[str] = ()) -> list[Record]:
        """See ``Engine.records``."""
        check_record_names(kind, names)
        return await self._channel.call(messages.RECORDS, messages.RecordsCall(kind, list(names)))

    async def set_record(
        self,
        kind: str,
        name: str,
        after: Record | None,
        attribution: Attribution,
        *,
        expected: Record | None,
        caller: Caller = SYSTEM,
    ) -> None:
        """See ``Engine.set_record``."""
        check_record(kind, name, after)
        check_attribution(attribution)
        _check_caller(caller)
        call = messages.SetRecordCall(kind, name, after, attribution, expected, caller)
        await self._call_once(messages.SET_RECORD, call)

    # --- policies, flags, schedules, audit ---------------------------------------------------

    async def policies(self) -> Mapping[str, QueuePolicy]:
        """See ``Engine.policies``."""
        return await self._channel.call(messages.POLICIES, messages.Empty())

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
        _check_caller(caller)
        call = messages.SetPolicyCall(queue, policy, attribution, caller, expected)
        await self._call_once(messages.SET_POLICY, call)

    async def flags(self) -> Mapping[str, bool]:
        """See ``Engine.flags``."""
        return await self._channel.call(messages.FLAGS, messages.Empty())

    async def set_flag(
        self, name: str, attribution: Attribution, *, on: bool | None, caller: Caller = SYSTEM
    ) -> None:
        """See ``Engine.set_flag``."""
        check_id(name, "name")
        check_switch(on)
        check_attribution(attribution)
        _check_caller(caller)
        await self._call_once(
            messages.SET_FLAG, messages.SetFlagCall(name, on, attribution, caller)
        )

    async def schedules(self) -> Mapping[str, ScheduleState]:
        """See ``Engine.schedules``."""
        return await self._channel.call(messages.SCHEDULES, messages.Empty())

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
        _check_caller(caller)
        call = messages.SetScheduleCall(name, schedule, attribution, caller, expected)
        await self._call_once(messages.SET_SCHEDULE, call)

    # --- outages -----------------------------------------------------------------------------

    async def outages(self, *, ended: bool = False) -> list[Outage]:
        """See ``Engine.outages``."""
        return await self._channel.call(messages.OUTAGES, messages.OutagesCall(bool(ended)))

    async def report_outage(self, reports: Sequence[DependencyReport] = ()) -> OutageUpdate:
        """See ``Engine.report_outage``."""
        call = messages.ReportOutageCall(check_reports(reports))
        return await self._channel.call(messages.REPORT_OUTAGE, call)

    async def set_outage(
        self, dependency: str, attribution: Attribution, *, on: bool, caller: Caller = SYSTEM
    ) -> Outage:
        """See ``Engine.set_outage``."""
        _check_caller(caller)
        check_set_outage(dependency, attribution, caller, on=on)
        call = messages.SetOutageCall(dependency, on, attribution, caller)
        return await self._call_once(messages.SET_OUTAGE, call)

    # --- operations --------------------------------------------------------------------------

    async def now_us(self) -> int:
        """See ``Engine.now_us``."""
        return await self._channel.call(messages.NOW, messages.Empty())

    async def start_operation(
        self, new: NewOperation, attribution: Attribution, *, caller: Caller = SYSTEM
    ) -> Operation:
        """See ``Engine.start_operation``. It is safe to repeat: the caller chose the id."""
        check_operation(new, attribution)
        _check_caller(caller)
        call = messages.StartOperationCall(new, attribution, caller)
        return await self._channel.call(messages.START_OPERATION, call)

    async def advance_operation(self, operation_id: str) -> OperationStep:
        """See ``Engine.advance_operation``. It is safe to repeat: a step is taken once."""
        call = messages.OperationCall(check_id(operation_id, "operation"))
        return await self._channel.call(messages.ADVANCE_OPERATION, call)

    async def operations(
        self, *, running: bool = False, limit: int = 100, caller: Caller = SYSTEM
    ) -> list[Operation]:
        """See ``Engine.operations``."""
        check_page(limit)
        _check_caller(caller)
        call = messages.OperationsCall(running, limit, caller)
        return await self._channel.call(messages.OPERATIONS, call)

    async def operation(self, operation_id: str, *, caller: Caller = SYSTEM) -> Operation:
        """See ``Engine.operation``."""
        _check_caller(caller)
        call = messages.OperationCall(check_id(operation_id, "operation"), caller)
        return await self._channel.call(messages.OPERATION, call)

    async def change_operation(
        self,
        operation_id: str,
        change: OperationChange,
        attribution: Attribution,
        *,
        caller: Caller = SYSTEM,
    ) -> Operation:
        """See ``Engine.change_operation``."""
        check_id(operation_id, "operation")
        check_operation_change(change, attribution)
        _check_caller(caller)
        call = messages.ChangeOperationCall(operation_id, change, attribution, caller)
        return await self._call_once(messages.CHANGE_OPERATION, call)

    # --- the fleet ---------------------------------------------------------------------------

    async def set_group(
        self,
        group_id: str,
        change: GroupChange,
        attribution: Attribution,
        *,
        caller: Caller = SYSTEM,
    ) -> FailureGroup | None:
        """See ``Engine.set_group``."""
        check_group_change(group_id, change)
        check_attribution(attribution)
        _check_caller(caller)
        call = messages.SetGroupCall(group_id, change, attribution, caller)
        found = await self._call_once(messages.SET_GROUP, call)
        return found[0] if found else None

    async def announce(
        self,
        process: WorkerProcess,
        *,
        ttl_seconds: float,
        answers: Sequence[CommandAnswer] = (),
    ) -> list[SentCommand]:
        """See ``Engine.announce``."""
        checked = check_process(process, ttl_seconds, answers)
        call = messages.AnnounceCall(process, float(ttl_seconds), checked)
        return await self._channel.call(messages.ANNOUNCE, call)

    async def depart(self, process_id: str) -> None:
        """See ``Engine.depart``."""
        call = messages.DepartCall(check_id(process_id, "process_id"))
        await self._channel.call(messages.DEPART, call)

    async def workers(self, *, gone: bool = False) -> list[WorkerEntry]:
        """See ``Engine.workers``."""
        return await self._channel.call(messages.WORKERS, messages.WorkersCall(gone))

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
        _check_caller(caller)
        targets = check_command(command, process_ids, attribution, ttl_seconds, caller)
        call = messages.CommandCall(command, targets, attribution, float(ttl_seconds), caller)
        return await self._call_once(messages.COMMAND, call)

    async def answers(self, command_id: str) -> list[CommandAnswer]:
        """See ``Engine.answers``."""
        call = messages.AnswersCall(check_id(command_id, "command_id"))
        return await self._channel.call(messages.ANSWERS, call)

    async def take_sample(
        self, *, every_seconds: float = SAMPLE_SECONDS, caller: Caller = SYSTEM
    ) -> float:
        """See ``Engine.take_sample``."""
        check_sampling(every_seconds, caller)
        call = messages.TakeSampleCall(float(every_seconds), caller)
        return await self._channel.call(messages.TAKE_SAMPLE, call)

    async def samples(
        self,
        queues: Collection[str] = (),
        *,
        from_us: int,
        to_us: int,
        step_seconds: float = 0.0,
        caller: Caller = SYSTEM,
    ) -> Series:
        """See ``Engine.samples``."""
        names = check_names("queues", queues)
        check_may_sample(caller)
        sample_query(names, from_us, to_us, step_seconds, to_us)  # checks them
        call = messages.SamplesCall(list(names), from_us, to_us, float(step_seconds), caller)
        return await self._channel.call(messages.SAMPLES, call)

    async def audit(self, entries: Sequence[AuditEntry], *, caller: Caller = SYSTEM) -> AuditHead:
        """See ``Engine.audit``."""
        checked = check_all("entries", entries, AuditEntry)
        for entry in checked:
            entry.check()
        _check_caller(caller)
        return await self._call_once(messages.AUDIT, messages.AuditCall(checked, caller))

    # --- lost replies ------------------------------------------------------------------------

    async def _call_once(self, verb: messages.Verb[Q, A], call: Q) -> A:
        try:
            return await self._channel.call_once(verb, call)
        except ConnectionBroken:
            raise Unavailable(
                f"the connection broke before the answer came, so it is unknown whether this "
                f"{verb.name} was done: look before you do it again"
            ) from None

    async def _enqueue_again(self, sent: SentEnqueue, once: Record | None) -> list[Receipt]:
        advice = f"ask for {_some(sent.jobs)} before you enqueue again"
        call = messages.EnqueueCall(sent.jobs, sent.caller, sent.on_duplicate, once)
        try:
            receipts = await self._channel.call_again(messages.ENQUEUE, call, advice)
        except DuplicateId as refused:
            if not sent.was_taken(refused, await self._known(sent.names(), sent.caller)):
                raise
            # The first call was recorded: skip the duplicates to get the receipts.
            call = replace(call, on_duplicate="skip")
            receipts = await self._channel.call_again(messages.ENQUEUE, call, advice)
        if all(receipt.admission is Admission.CREATED for receipt in receipts):
            return receipts
        return sent.restored(receipts, await self._known(sent.names(), sent.caller))

    async def _settled_again(
        self,
        outcomes: Sequence[Outcome],
        answer: Sequence[messages.LostLease | None],
        caller: Caller,
        sent_at_us: int,
    ) -> list[LeaseLost | None]:
        answers = [messages.lease_lost(lost) for lost in answer]
        names = [
            (outcome.tenant, outcome.id)
            for outcome, refused in zip(outcomes, answers, strict=True)
            if refused is not None
        ]
        if names:
            answers = accepted(outcomes, answers, await self._known(names, caller), sent_at_us)
        return self._counted(answers)

    async def _known(self, names: Sequence[tuple[str, str]], caller: Caller) -> Known:
        known: dict[tuple[str, str], Job] = {}
        for tenant in dict.fromkeys(tenant for tenant, _id in names):
            ids = [job_id for whose, job_id in names if whose == tenant]
            for job in await self.get(ids, tenant=tenant, caller=caller):
                if job is not None:
                    known[job.tenant, job.id] = job
        return known

    def _release_abandoned(self, status: int, body: bytes) -> None:
        """Release the jobs of a claim that was cancelled after it was sent."""
        if status != messages.OK:
            return
        with contextlib.suppress(*messages.UNREADABLE):
            jobs = messages.CLAIM.read_answer(body).jobs
            if jobs:
                task = asyncio.get_running_loop().create_task(self._release(jobs))
                self._releases.add(task)
                task.add_done_callback(self._releases.discard)

    async def _release(self, jobs: Sequence[Job]) -> None:
        with contextlib.suppress(HoldfastError):  # then their leases expire
            await self.settle([release(job) for job in jobs])

    def _counted(self, answers: list[LeaseLost | None]) -> list[LeaseLost | None]:
        for answer in answers:
            if answer is not None:
                self.leases_refused += 1
        return answers


def _socket(path: str) -> SocketEndpoint:
    if (
        type(path) is not str
        or "\0" in path
        or not 0 < len(os.fsencode(path)) <= LONGEST_ADDRESS_BYTES
    ):
        raise InvalidInput("path", f"{path!r} is not the path of a Unix socket")
    return SocketEndpoint(path)


def _to_send(
    jobs: Sequence[NewJob], now_us: int, random_bytes: Callable[[int], bytes]
) -> list[NewJob]:
    """Return the jobs with an id each and the payload as JSON. The owner checks the rest."""
    nameless = sum(new.id is None for new in jobs)
    fresh_ids = iter(uuid7s(now_us, random_bytes(RANDOM_BYTES * nameless)))
    encoded: list[NewJob] = []
    for new in jobs:
        payload = check_payload(encode_payload(new.payload), messages.MAX_BODY_BYTES)
        job_id = next(fresh_ids) if new.id is None else new.id
        encoded.append(replace(new, id=job_id, payload=payload))
        if not _keeps_its_types(encoded[-1]):
            _check_job(encoded[-1], now_us)
    return encoded


def _keeps_its_types(new: NewJob) -> bool:
    """Whether a message leaves the values as they are: it would turn an Enum or UUID into text."""
    if not _SENT_TYPES.issuperset(map(type, astuple(new))):
        return False
    needed: object = new.depends_on
    return not needed or (
        isinstance(needed, tuple | list) and all(type(one) is str for one in needed)
    )


def _check_job(new: NewJob, now_us: int) -> None:
    """Raise ``InvalidInput`` naming the bad field, as the owner would if it could read the job."""
    admit(new, check_id(new.id or ""), now_us, 0, messages.MAX_BODY_BYTES)


def _lease_refs(leases: Sequence[HeldJob]) -> list[messages.LeaseRef]:
    return [
        messages.LeaseRef(lease.tenant, lease.id, lease.token, lease.max_processing_seconds)
        for lease in leases
    ]


def _checked(outcomes: list[Outcome]) -> list[Outcome]:
    for outcome in outcomes:
        outcome.check()
    return outcomes


def _some(jobs: Sequence[NewJob]) -> str:
    named = ", ".join(repr(new.id) for new in jobs[:5])
    return f"{named} and {len(jobs) - 5} more" if len(jobs) > 5 else named


def _check_caller(caller: Caller) -> None:
    if type(caller) is not Caller:
        raise InvalidInput("caller", f"a {type(caller).__name__} is not a Caller")
