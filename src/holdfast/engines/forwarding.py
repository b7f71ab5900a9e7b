"""An engine that forwards every verb to another: subclasses override some."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence

from holdfast.engines.read_models.contract import ReadModelStore
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
from holdfast.model.effects import ScheduleState
from holdfast.model.errors import LeaseLost
from holdfast.model.event import Event, EventReceipt, NewEvent
from holdfast.model.event_search import EVERY_EVENT, EventFilter, EventPage
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
from holdfast.model.job import Edit, Job, JobRef, NewJob
from holdfast.model.operation import NewOperation, Operation, OperationChange, OperationStep
from holdfast.model.outage import DependencyReport, Outage, OutageUpdate
from holdfast.model.outcome import Outcome
from holdfast.model.policy import QueuePolicy
from holdfast.model.projection import ProjectionState
from holdfast.model.record import Record
from holdfast.model.samples import SAMPLE_SECONDS, Series
from holdfast.model.search import EVERYTHING, Count, FailureGroup, Filter, Order, Page
from holdfast.model.subscription import Subscription

from .contract import (
    DEFAULT_LEASE_SECONDS,
    AdminResult,
    Capabilities,
    Claim,
    Counts,
    Engine,
    HeldJob,
    OnDuplicate,
    Receipt,
    Reclaim,
    Renewal,
)
from .dump.format import DumpRecord


class ForwardingEngine:
    """See ``Engine``, for each verb."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @property
    def capabilities(self) -> Capabilities:
        """What the engine below can do."""
        return self.engine.capabilities

    @property
    def leases_refused(self) -> int:
        """How many leases the engine below refused."""
        return self.engine.leases_refused

    async def enqueue(
        self,
        jobs: Sequence[NewJob],
        *,
        caller: Caller = SYSTEM,
        on_duplicate: OnDuplicate = "refuse",
        once: Record | None = None,
    ) -> list[Receipt]:
        """See ``Engine.enqueue``."""
        return await self.engine.enqueue(jobs, caller=caller, on_duplicate=on_duplicate, once=once)

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
        return await self.engine.claim(
            queues=queues,
            worker=worker,
            tasks=tasks,
            limit=limit,
            lease_seconds=lease_seconds,
            wait_seconds=wait_seconds,
            settle=settle,
            chain=chain,
            caller=caller,
        )

    async def settle(
        self, outcomes: Sequence[Outcome], *, caller: Caller = SYSTEM
    ) -> list[LeaseLost | None]:
        """See ``Engine.settle``."""
        return await self.engine.settle(outcomes, caller=caller)

    async def extend(
        self, held: Sequence[HeldJob], *, lease_seconds: float, caller: Caller = SYSTEM
    ) -> list[Renewal | LeaseLost]:
        """See ``Engine.extend``."""
        return await self.engine.extend(held, lease_seconds=lease_seconds, caller=caller)

    async def leases(
        self, held: Sequence[HeldJob], *, caller: Caller = SYSTEM
    ) -> list[Renewal | LeaseLost]:
        """See ``Engine.leases``."""
        return await self.engine.leases(held, caller=caller)

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
        return await self.engine.reclaim(
            limit=limit,
            forced=forced,
            attribution=attribution,
            every_seconds=every_seconds,
            caller=caller,
        )

    async def get(
        self, ids: Sequence[str], *, tenant: str = DEFAULT_TENANT, caller: Caller = SYSTEM
    ) -> list[Job | None]:
        """See ``Engine.get``."""
        return await self.engine.get(ids, tenant=tenant, caller=caller)

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
        return await self.engine.find(
            wanted, cursor=cursor, limit=limit, order=order, caller=caller
        )

    async def count(
        self, wanted: Filter = EVERYTHING, *, cap: int = 10_000, caller: Caller = SYSTEM
    ) -> Count:
        """See ``Engine.count``."""
        return await self.engine.count(wanted, cap=cap, caller=caller)

    async def counts(self, *, caller: Caller = SYSTEM) -> Mapping[str, Counts]:
        """See ``Engine.counts``."""
        return await self.engine.counts(caller=caller)

    async def queues(self, *, caller: Caller = SYSTEM) -> list[str]:
        """See ``Engine.queues``."""
        return await self.engine.queues(caller=caller)

    async def groups(
        self, wanted: Filter = EVERYTHING, *, caller: Caller = SYSTEM
    ) -> list[FailureGroup]:
        """See ``Engine.groups``."""
        return await self.engine.groups(wanted, caller=caller)

    async def history(
        self, ids: Sequence[str], *, tenant: str = DEFAULT_TENANT, caller: Caller = SYSTEM
    ) -> list[History | None]:
        """See ``Engine.history``."""
        return await self.engine.history(ids, tenant=tenant, caller=caller)

    async def explain(
        self, ids: Sequence[str], *, tenant: str = DEFAULT_TENANT, caller: Caller = SYSTEM
    ) -> list[Explanation | None]:
        """See ``Engine.explain``."""
        return await self.engine.explain(ids, tenant=tenant, caller=caller)

    async def validate(self) -> list[str]:
        """See ``Engine.validate``."""
        return await self.engine.validate()

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
        return await self.engine.operate(action, wanted, attribution, limit=limit, caller=caller)

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
        return await self.engine.edit(job, changes, attribution, version=version, caller=caller)

    async def append(
        self,
        events: Sequence[NewEvent],
        *,
        caller: Caller = SYSTEM,
        once: Record | None = None,
    ) -> list[EventReceipt]:
        """See ``Engine.append``."""
        return await self.engine.append(events, caller=caller, once=once)

    async def get_events(
        self, ids: Sequence[str], *, tenant: str = DEFAULT_TENANT, caller: Caller = SYSTEM
    ) -> list[Event | None]:
        """See ``Engine.get_events``."""
        return await self.engine.get_events(ids, tenant=tenant, caller=caller)

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
        return await self.engine.find_events(
            wanted, cursor=cursor, limit=limit, newest=newest, caller=caller
        )

    async def count_events(
        self, wanted: EventFilter = EVERY_EVENT, *, caller: Caller = SYSTEM
    ) -> int:
        """See ``Engine.count_events``."""
        return await self.engine.count_events(wanted, caller=caller)

    async def subscriptions(self) -> Mapping[str, Subscription]:
        """See ``Engine.subscriptions``."""
        return await self.engine.subscriptions()

    async def set_subscription(
        self,
        name: str,
        subscription: Subscription | None,
        attribution: Attribution,
        *,
        caller: Caller = SYSTEM,
    ) -> Subscription | None:
        """See ``Engine.set_subscription``."""
        return await self.engine.set_subscription(name, subscription, attribution, caller=caller)

    @property
    def read_models(self) -> ReadModelStore:
        """See ``Engine.read_models``."""
        return self.engine.read_models

    async def projections(self) -> Mapping[str, ProjectionState]:
        """See ``Engine.projections``."""
        return await self.engine.projections()

    async def set_projection(
        self,
        state: ProjectionState,
        attribution: Attribution,
        *,
        expected: ProjectionState | None,
        caller: Caller = SYSTEM,
    ) -> None:
        """See ``Engine.set_projection``."""
        await self.engine.set_projection(state, attribution, expected=expected, caller=caller)

    async def fanout_settled(self, version: int) -> bool:
        """See ``Engine.fanout_settled``."""
        return await self.engine.fanout_settled(version)

    async def policies(self) -> Mapping[str, QueuePolicy]:
        """See ``Engine.policies``."""
        return await self.engine.policies()

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

    async def flags(self) -> Mapping[str, bool]:
        """See ``Engine.flags``."""
        return await self.engine.flags()

    async def records(self, kind: str, names: Sequence[str] = ()) -> list[Record]:
        """See ``Engine.records``."""
        return await self.engine.records(kind, names)

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
        await self.engine.set_record(
            kind, name, after, attribution, expected=expected, caller=caller
        )

    async def set_flag(
        self, name: str, attribution: Attribution, *, on: bool | None, caller: Caller = SYSTEM
    ) -> None:
        """See ``Engine.set_flag``."""
        await self.engine.set_flag(name, attribution, on=on, caller=caller)

    async def schedules(self) -> Mapping[str, ScheduleState]:
        """See ``Engine.schedules``."""
        return await self.engine.schedules()

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

    async def outages(self, *, ended: bool = False) -> list[Outage]:
        """See ``Engine.outages``."""
        return await self.engine.outages(ended=ended)

    async def report_outage(self, reports: Sequence[DependencyReport] = ()) -> OutageUpdate:
        """See ``Engine.report_outage``."""
        return await self.engine.report_outage(reports)

    async def set_outage(
        self, dependency: str, attribution: Attribution, *, on: bool, caller: Caller = SYSTEM
    ) -> Outage:
        """See ``Engine.set_outage``."""
        return await self.engine.set_outage(dependency, attribution, on=on, caller=caller)

    async def changes(self, *, caller: Caller = SYSTEM) -> ChangeMarks:
        """See ``Engine.changes``."""
        return await self.engine.changes(caller=caller)

    async def now_us(self) -> int:
        """See ``Engine.now_us``."""
        return await self.engine.now_us()

    async def start_operation(
        self, new: NewOperation, attribution: Attribution, *, caller: Caller = SYSTEM
    ) -> Operation:
        """See ``Engine.start_operation``."""
        return await self.engine.start_operation(new, attribution, caller=caller)

    async def advance_operation(self, operation_id: str) -> OperationStep:
        """See ``Engine.advance_operation``."""
        return await self.engine.advance_operation(operation_id)

    async def operations(
        self, *, running: bool = False, limit: int = 100, caller: Caller = SYSTEM
    ) -> list[Operation]:
        """See ``Engine.operations``."""
        return await self.engine.operations(running=running, limit=limit, caller=caller)

    async def operation(self, operation_id: str, *, caller: Caller = SYSTEM) -> Operation:
        """See ``Engine.operation``."""
        return await self.engine.operation(operation_id, caller=caller)

    async def change_operation(
        self,
        operation_id: str,
        change: OperationChange,
        attribution: Attribution,
        *,
        caller: Caller = SYSTEM,
    ) -> Operation:
        """See ``Engine.change_operation``."""
        return await self.engine.change_operation(operation_id, change, attribution, caller=caller)

    async def set_group(
        self,
        group_id: str,
        change: GroupChange,
        attribution: Attribution,
        *,
        caller: Caller = SYSTEM,
    ) -> FailureGroup | None:
        """See ``Engine.set_group``."""
        return await self.engine.set_group(group_id, change, attribution, caller=caller)

    async def announce(
        self,
        process: WorkerProcess,
        *,
        ttl_seconds: float,
        answers: Sequence[CommandAnswer] = (),
    ) -> list[SentCommand]:
        """See ``Engine.announce``."""
        return await self.engine.announce(process, ttl_seconds=ttl_seconds, answers=answers)

    async def depart(self, process_id: str) -> None:
        """See ``Engine.depart``."""
        await self.engine.depart(process_id)

    async def workers(self, *, gone: bool = False) -> list[WorkerEntry]:
        """See ``Engine.workers``."""
        return await self.engine.workers(gone=gone)

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
        return await self.engine.command(
            command, process_ids, attribution, ttl_seconds=ttl_seconds, caller=caller
        )

    async def answers(self, command_id: str) -> list[CommandAnswer]:
        """See ``Engine.answers``."""
        return await self.engine.answers(command_id)

    async def take_sample(
        self, *, every_seconds: float = SAMPLE_SECONDS, caller: Caller = SYSTEM
    ) -> float:
        """See ``Engine.take_sample``."""
        return await self.engine.take_sample(every_seconds=every_seconds, caller=caller)

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
        return await self.engine.samples(
            queues, from_us=from_us, to_us=to_us, step_seconds=step_seconds, caller=caller
        )

    async def audit(self, entries: Sequence[AuditEntry], *, caller: Caller = SYSTEM) -> AuditHead:
        """See ``Engine.audit``."""
        return await self.engine.audit(entries, caller=caller)

    def dump(self) -> AsyncIterator[Sequence[DumpRecord]]:
        """See ``Engine.dump``."""
        return self.engine.dump()

    async def audited(
        self,
        wanted: AuditFilter = WHOLE_AUDIT,
        *,
        after: int = 0,
        limit: int = 100,
        newest: bool = False,
    ) -> list[AuditRecord]:
        """See ``Engine.audited``."""
        return await self.engine.audited(wanted, after=after, limit=limit, newest=newest)

    async def close(self) -> None:
        """See ``Engine.close``."""
        await self.engine.close()
