"""An engine as somebody may use it: every verb is checked against the table of roles.

It is not a ``ForwardingEngine``: a verb that is not written here can't be called at all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence

from msgspec.structs import replace

from holdfast.engines.contract import (
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
from holdfast.engines.dump.format import DumpRecord
from holdfast.engines.read_models.contract import ReadModelStore
from holdfast.model.access import DEFAULT_TENANT, SYSTEM, Caller
from holdfast.model.actions import AnyAction, EditJobs
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
from holdfast.model.errors import AccessDenied, Forbidden, InvalidInput, LeaseLost
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
from holdfast.model.permissions import Permission
from holdfast.model.policy import QueuePolicy
from holdfast.model.principal import Principal
from holdfast.model.projection import ProjectionState, Rebuild
from holdfast.model.record import Record
from holdfast.model.samples import SAMPLE_SECONDS, Series
from holdfast.model.search import EVERYTHING, Count, FailureGroup, Filter, Order, Page
from holdfast.model.subscription import Subscription

from .denials import DenialLog
from .needed import needed_for, needed_for_entry, only_pauses
from .read_models import ConfinedReadModels

MAX_ITEMS = 10_000
"""How many names, ids, leases or outcomes one call by a key may have."""


class AuthorizedEngine:
    """See ``Engine``, for each verb. What is out of reach is treated as if it did not exist.

    Raise ``Forbidden`` where no role allows it, and ``AccessDenied`` where it concerns more than
    the reach; both are audited by ``denials``.
    """

    def __init__(self, engine: Engine, principal: Principal, denials: DenialLog) -> None:
        self.principal = principal
        self._engine = engine
        self._denials = denials

    @property
    def capabilities(self) -> Capabilities:
        """What the engine below can do."""
        return self._engine.capabilities

    @property
    def leases_refused(self) -> int:
        """How many leases the engine below refused."""
        return self._engine.leases_refused

    async def enqueue(
        self,
        jobs: Sequence[NewJob],
        *,
        caller: Caller = SYSTEM,
        on_duplicate: OnDuplicate = "refuse",
        once: Record | None = None,
    ) -> list[Receipt]:
        """See ``Engine.enqueue``."""
        await self._require(Permission.JOB_CREATE)
        await self._check_once(once)
        return await self._engine.enqueue(
            jobs, caller=self._reach(caller), on_duplicate=on_duplicate, once=once
        )

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
        await self._require(Permission.JOB_CLAIM)
        for field, items in (("queues", queues), ("tasks", tasks or ()), ("settle", settle)):
            self._check_number(field, items)
        return await self._engine.claim(
            queues=queues,
            worker=worker,
            tasks=tasks,
            limit=limit,
            lease_seconds=lease_seconds,
            wait_seconds=wait_seconds,
            settle=settle,
            chain=chain,
            caller=self._reach(caller),
        )

    async def settle(
        self, outcomes: Sequence[Outcome], *, caller: Caller = SYSTEM
    ) -> list[LeaseLost | None]:
        """See ``Engine.settle``."""
        await self._require(Permission.JOB_CLAIM)
        self._check_number("outcomes", outcomes)
        return await self._engine.settle(outcomes, caller=self._reach(caller))

    async def extend(
        self, held: Sequence[HeldJob], *, lease_seconds: float, caller: Caller = SYSTEM
    ) -> list[Renewal | LeaseLost]:
        """See ``Engine.extend``."""
        await self._require(Permission.JOB_CLAIM)
        self._check_number("held", held)
        return await self._engine.extend(
            held, lease_seconds=lease_seconds, caller=self._reach(caller)
        )

    async def leases(
        self, held: Sequence[HeldJob], *, caller: Caller = SYSTEM
    ) -> list[Renewal | LeaseLost]:
        """See ``Engine.leases``."""
        await self._require(Permission.JOB_CLAIM)
        self._check_number("held", held)
        return await self._engine.leases(held, caller=self._reach(caller))

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
        await self._require(Permission.JOB_RECLAIM if forced else Permission.JOB_CLAIM)
        found = await self._engine.reclaim(
            limit=limit,
            forced=forced,
            attribution=None if attribution is None else await self._signed(attribution),
            every_seconds=every_seconds,
            caller=self._reach(caller),
        )
        lost = [self._shown(job) for job in found.lost]
        return replace(found, lost=lost, expired=[self._shown(job) for job in found.expired])

    async def get(
        self, ids: Sequence[str], *, tenant: str = DEFAULT_TENANT, caller: Caller = SYSTEM
    ) -> list[Job | None]:
        """See ``Engine.get``: who may be given any job may also ask what became of it."""
        await self._require(self._seeing(Permission.JOB_READ))
        self._check_number("ids", ids)
        found = await self._engine.get(ids, tenant=tenant, caller=self._reach(caller))
        return [None if job is None else self._shown(job) for job in found]

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
        await self._require(Permission.JOB_READ)
        await self._require_for(wanted)
        page = await self._engine.find(
            wanted, cursor=cursor, limit=limit, order=order, caller=self._reach(caller)
        )
        return replace(page, jobs=[self._shown(job) for job in page.jobs])

    async def count(
        self, wanted: Filter = EVERYTHING, *, cap: int = 10_000, caller: Caller = SYSTEM
    ) -> Count:
        """See ``Engine.count``."""
        await self._require(Permission.JOB_READ)
        await self._require_for(wanted)
        return await self._engine.count(wanted, cap=cap, caller=self._reach(caller))

    async def counts(self, *, caller: Caller = SYSTEM) -> Mapping[str, Counts]:
        """See ``Engine.counts``."""
        await self._require(Permission.COUNTS_READ)
        return await self._engine.counts(caller=self._reach(caller))

    async def queues(self, *, caller: Caller = SYSTEM) -> list[str]:
        """See ``Engine.queues``; a worker has to know what it can claim from."""
        await self._require(self._seeing(Permission.COUNTS_READ))
        return await self._engine.queues(caller=self._reach(caller))

    async def groups(
        self, wanted: Filter = EVERYTHING, *, caller: Caller = SYSTEM
    ) -> list[FailureGroup]:
        """See ``Engine.groups``."""
        await self._require(Permission.JOB_READ)
        await self._require_for(wanted)
        return await self._engine.groups(wanted, caller=self._reach(caller))

    async def history(
        self, ids: Sequence[str], *, tenant: str = DEFAULT_TENANT, caller: Caller = SYSTEM
    ) -> list[History | None]:
        """See ``Engine.history``."""
        await self._require(Permission.JOB_READ)
        found = await self._engine.history(ids, tenant=tenant, caller=self._reach(caller))
        return [None if one is None else self._shown_history(one) for one in found]

    async def explain(
        self, ids: Sequence[str], *, tenant: str = DEFAULT_TENANT, caller: Caller = SYSTEM
    ) -> list[Explanation | None]:
        """See ``Engine.explain``."""
        await self._require(Permission.JOB_READ)
        reach = self._reach(caller)
        found = await self._engine.explain(ids, tenant=tenant, caller=reach)
        named = {other.job for one in found if one for other in one.blockers if other.job}
        seen: set[str] = set()
        if named and not reach.unlimited:
            others = await self._engine.get(sorted(named), tenant=tenant, caller=reach)
            seen = {one.id for one in others if one is not None}
        hidden = frozenset() if reach.unlimited else named - seen
        return [None if one is None else self._shown_explanation(one, hidden) for one in found]

    async def validate(self) -> list[str]:
        """See ``Engine.validate``."""
        await self._require(Permission.JOB_READ, everything=True)
        return await self._engine.validate()

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
        for needed in needed_for(action, limit):
            await self._require(needed)
        await self._require_for(wanted)
        done = await self._engine.operate(
            action, wanted, await self._signed(attribution), limit=limit, caller=self._reach(caller)
        )
        return replace(done, jobs=[self._shown(job) for job in done.jobs])

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
        await self._require(Permission.JOB_EDIT)
        edited = await self._engine.edit(
            job,
            changes,
            await self._signed(attribution),
            version=version,
            caller=self._reach(caller),
        )
        return self._shown(edited)

    async def append(
        self,
        events: Sequence[NewEvent],
        *,
        caller: Caller = SYSTEM,
        once: Record | None = None,
    ) -> list[EventReceipt]:
        """See ``Engine.append``."""
        await self._require(Permission.EVENT_APPEND)
        if any(event.supersedes for event in events):
            await self._require(Permission.EVENT_CORRECT)
        await self._check_once(once)
        return await self._engine.append(events, caller=self._reach(caller), once=once)

    async def get_events(
        self, ids: Sequence[str], *, tenant: str = DEFAULT_TENANT, caller: Caller = SYSTEM
    ) -> list[Event | None]:
        """See ``Engine.get_events``; an event comes without data that may not be seen."""
        await self._require(Permission.JOB_READ)
        self._check_number("ids", ids)
        found = await self._engine.get_events(ids, tenant=tenant, caller=self._reach(caller))
        return [None if event is None else self._shown_event(event) for event in found]

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
        await self._require(Permission.JOB_READ)
        page = await self._engine.find_events(
            wanted, cursor=cursor, limit=limit, newest=newest, caller=self._reach(caller)
        )
        return replace(page, events=[self._shown_event(event) for event in page.events])

    async def count_events(
        self, wanted: EventFilter = EVERY_EVENT, *, caller: Caller = SYSTEM
    ) -> int:
        """See ``Engine.count_events``."""
        await self._require(Permission.JOB_READ)
        return await self._engine.count_events(wanted, caller=self._reach(caller))

    async def subscriptions(self) -> Mapping[str, Subscription]:
        """See ``Engine.subscriptions``."""
        await self._require(Permission.JOB_READ)
        return await self._engine.subscriptions()

    async def set_subscription(
        self,
        name: str,
        subscription: Subscription | None,
        attribution: Attribution,
        *,
        caller: Caller = SYSTEM,
    ) -> Subscription | None:
        """See ``Engine.set_subscription``."""
        await self._require(Permission.PROJECTION_REBUILD)
        return await self._engine.set_subscription(
            name, subscription, await self._signed(attribution), caller=self._reach(caller)
        )

    @property
    def read_models(self) -> ReadModelStore:
        """See ``Engine.read_models``."""
        return ConfinedReadModels(self._engine.read_models, self.principal)

    async def projections(self) -> Mapping[str, ProjectionState]:
        """See ``Engine.projections``; rebuilds are of all tenants: of them the phase is seen."""
        await self._require(Permission.JOB_READ)
        found = await self._engine.projections()
        if self.principal.caller.unlimited:
            return found
        return {name: _without_figures(state) for name, state in found.items()}

    async def set_projection(
        self,
        state: ProjectionState,
        attribution: Attribution,
        *,
        expected: ProjectionState | None,
        caller: Caller = SYSTEM,
    ) -> None:
        """See ``Engine.set_projection``."""
        await self._require(Permission.PROJECTION_REBUILD)
        await self._engine.set_projection(
            state, await self._signed(attribution), expected=expected, caller=self._reach(caller)
        )

    async def fanout_settled(self, version: int) -> bool:
        """See ``Engine.fanout_settled``."""
        await self._require(Permission.JOB_READ)
        return await self._engine.fanout_settled(version)

    async def policies(self) -> Mapping[str, QueuePolicy]:
        """See ``Engine.policies``; who reaches one tenant sees those of queues with jobs of it."""
        await self._require(Permission.JOB_READ)
        found = await self._engine.policies()
        if self.principal.caller.unlimited:
            return found
        seen = await self._engine.counts(caller=self.principal.caller)
        return {queue: policy for queue, policy in found.items() if queue in seen}

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
        pauses = only_pauses(expected, policy)
        await self._require(Permission.QUEUE_PAUSE if pauses else Permission.QUEUE_POLICY)
        await self._engine.set_policy(
            queue,
            policy,
            await self._signed(attribution),
            expected=expected,
            caller=self._reach(caller),
        )

    async def flags(self) -> Mapping[str, bool]:
        """See ``Engine.flags``."""
        await self._require(self._seeing(Permission.JOB_READ), everything=True)
        return await self._engine.flags()

    async def records(self, kind: str, names: Sequence[str] = ()) -> list[Record]:
        """See ``Engine.records``."""
        await self._require_all(Permission.KEY_MANAGE)
        return await self._engine.records(kind, names)

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
        await self._require_all(Permission.KEY_MANAGE)
        await self._engine.set_record(
            kind,
            name,
            after,
            await self._signed(attribution),
            expected=expected,
            caller=self._reach(caller),
        )

    async def set_flag(
        self, name: str, attribution: Attribution, *, on: bool | None, caller: Caller = SYSTEM
    ) -> None:
        """See ``Engine.set_flag``."""
        await self._require(Permission.FLAG_SET)
        await self._engine.set_flag(
            name, await self._signed(attribution), on=on, caller=self._reach(caller)
        )

    async def schedules(self) -> Mapping[str, ScheduleState]:
        """See ``Engine.schedules``."""
        await self._require(Permission.JOB_READ, everything=True)
        return await self._engine.schedules()

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
        await self._require(Permission.SCHEDULE_SET)
        await self._engine.set_schedule(
            name,
            schedule,
            await self._signed(attribution),
            expected=expected,
            caller=self._reach(caller),
        )

    async def outages(self, *, ended: bool = False) -> list[Outage]:
        """See ``Engine.outages``."""
        await self._require(self._seeing(Permission.JOB_READ), everything=True)
        return await self._engine.outages(ended=ended)

    async def report_outage(self, reports: Sequence[DependencyReport] = ()) -> OutageUpdate:
        """See ``Engine.report_outage``."""
        await self._require(Permission.JOB_CLAIM, everything=True)
        return await self._engine.report_outage(reports)

    async def set_outage(
        self, dependency: str, attribution: Attribution, *, on: bool, caller: Caller = SYSTEM
    ) -> Outage:
        """See ``Engine.set_outage``."""
        await self._require(Permission.OUTAGE_SET)
        return await self._engine.set_outage(
            dependency, await self._signed(attribution), on=on, caller=self._reach(caller)
        )

    async def changes(self, *, caller: Caller = SYSTEM) -> ChangeMarks:
        """See ``Engine.changes``."""
        await self._require(Permission.COUNTS_READ)
        return await self._engine.changes(caller=self._reach(caller))

    async def now_us(self) -> int:
        """See ``Engine.now_us``."""
        return await self._engine.now_us()

    async def start_operation(
        self, new: NewOperation, attribution: Attribution, *, caller: Caller = SYSTEM
    ) -> Operation:
        """See ``Engine.start_operation``."""
        for needed in needed_for(new.action, new.limit):
            await self._require(needed)
        await self._require_for(new.wanted)
        return await self._engine.start_operation(
            new, await self._signed(attribution), caller=self._reach(caller)
        )

    async def advance_operation(self, operation_id: str) -> OperationStep:
        """See ``Engine.advance_operation``."""
        await self._require(Permission.JOB_REPLAY, everything=True)
        step = await self._engine.advance_operation(operation_id)
        return replace(step, operation=self._shown_operation(step.operation))

    async def operations(
        self, *, running: bool = False, limit: int = 100, caller: Caller = SYSTEM
    ) -> list[Operation]:
        """See ``Engine.operations``."""
        await self._require(Permission.JOB_READ)
        found = await self._engine.operations(
            running=running, limit=limit, caller=self._reach(caller)
        )
        return [self._shown_operation(one) for one in found]

    async def operation(self, operation_id: str, *, caller: Caller = SYSTEM) -> Operation:
        """See ``Engine.operation``."""
        await self._require(Permission.JOB_READ)
        found = await self._engine.operation(operation_id, caller=self._reach(caller))
        return self._shown_operation(found)

    async def change_operation(
        self,
        operation_id: str,
        change: OperationChange,
        attribution: Attribution,
        *,
        caller: Caller = SYSTEM,
    ) -> Operation:
        """See ``Engine.change_operation``."""
        operation = await self._engine.operation(operation_id, caller=self._reach(caller))
        for needed in needed_for(operation.action, 1):
            await self._require(needed)
        changed = await self._engine.change_operation(
            operation_id, change, await self._signed(attribution), caller=self._reach(caller)
        )
        return self._shown_operation(changed)

    async def set_group(
        self,
        group_id: str,
        change: GroupChange,
        attribution: Attribution,
        *,
        caller: Caller = SYSTEM,
    ) -> FailureGroup | None:
        """See ``Engine.set_group``."""
        await self._require(Permission.GROUP_SET)
        return await self._engine.set_group(
            group_id, change, await self._signed(attribution), caller=self._reach(caller)
        )

    async def announce(
        self,
        process: WorkerProcess,
        *,
        ttl_seconds: float,
        answers: Sequence[CommandAnswer] = (),
    ) -> list[SentCommand]:
        """See ``Engine.announce``."""
        await self._require(Permission.JOB_CLAIM, everything=True)
        return await self._engine.announce(process, ttl_seconds=ttl_seconds, answers=answers)

    async def depart(self, process_id: str) -> None:
        """See ``Engine.depart``."""
        await self._require(Permission.JOB_CLAIM, everything=True)
        await self._engine.depart(process_id)

    async def workers(self, *, gone: bool = False) -> list[WorkerEntry]:
        """See ``Engine.workers``."""
        await self._require(self._seeing(Permission.JOB_READ), everything=True)
        return await self._engine.workers(gone=gone)

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
        reload = command.action == "reload"
        await self._require(Permission.SETTINGS_RELOAD if reload else Permission.WORKER_COMMAND)
        return await self._engine.command(
            command,
            process_ids,
            await self._signed(attribution),
            ttl_seconds=ttl_seconds,
            caller=self._reach(caller),
        )

    async def answers(self, command_id: str) -> list[CommandAnswer]:
        """See ``Engine.answers``."""
        await self._require(Permission.WORKER_COMMAND, everything=True)
        return await self._engine.answers(command_id)

    async def take_sample(
        self, *, every_seconds: float = SAMPLE_SECONDS, caller: Caller = SYSTEM
    ) -> float:
        """See ``Engine.take_sample``."""
        await self._require(Permission.JOB_CLAIM)
        return await self._engine.take_sample(
            every_seconds=every_seconds, caller=self._reach(caller)
        )

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
        await self._require(Permission.COUNTS_READ)
        return await self._engine.samples(
            queues,
            from_us=from_us,
            to_us=to_us,
            step_seconds=step_seconds,
            caller=self._reach(caller),
        )

    async def audit(self, entries: Sequence[AuditEntry], *, caller: Caller = SYSTEM) -> AuditHead:
        """See ``Engine.audit``; who reaches one tenant may enter what they did there."""
        needed = {needed_for_entry(entry.action) for entry in entries} or {Permission.KEY_MANAGE}
        if Permission.KEY_MANAGE in needed:
            await self._require_all(Permission.KEY_MANAGE)
            return await self._engine.audit(entries, caller=self._reach(caller))
        for one in sorted(needed):
            await self._require(one)
        reach, who = self._reach(caller), self.principal
        if who.key_id and not who.unrestricted:
            entries = [replace(one, user_id=who.name) for one in entries]
        if {one.tenant for one in entries} == {reach.tenant}:
            return await self._engine.audit(entries)
        return await self._engine.audit(entries, caller=reach)

    def dump(self) -> AsyncIterator[Sequence[DumpRecord]]:
        """See ``Engine.dump``."""
        self.principal.require(Permission.STORE_DUMP)
        self.principal.require_everything(Permission.STORE_DUMP)
        return self._engine.dump()

    async def audited(
        self,
        wanted: AuditFilter = WHOLE_AUDIT,
        *,
        after: int = 0,
        limit: int = 100,
        newest: bool = False,
    ) -> list[AuditRecord]:
        """See ``Engine.audited``; of one tenant, or one's own acts, where more may not be seen.

        Entries do not name a scope: who reaches some scopes only sees their own acts.
        """
        await self._require(Permission.AUDIT_OWN)
        held = self.principal.caller
        if held.tenant is not None:
            if wanted.tenant not in (None, held.tenant):
                return []
            wanted = replace(wanted, tenant=held.tenant)
        if held.scopes or not self.principal.may(Permission.AUDIT_READ):
            if wanted.by and self.principal.name not in wanted.by:
                return []
            wanted = replace(wanted, by=(self.principal.name,))
        return await self._engine.audited(wanted, after=after, limit=limit, newest=newest)

    async def close(self) -> None:
        """See ``Engine.close``."""
        await self._engine.close()

    # --- checks ------------------------------------------------------------------------------

    async def _require(self, permission: Permission, *, everything: bool = False) -> None:
        """Raise ``Forbidden``, or with ``everything`` ``AccessDenied`` if the reach is limited."""
        try:
            self.principal.require(permission)
            if everything:
                self.principal.require_everything(permission)
        except (Forbidden, AccessDenied):
            await self._denials.denied(self.principal, permission)
            raise

    async def _require_all(self, permission: Permission) -> None:
        """Raise unless nothing is out of reach; over the network, unless nothing is forbidden.

        Keys and the audit are kept as they are given here: who may write them may do anything.
        """
        await self._require(permission, everything=True)
        if self.principal.key_id and not self.principal.unrestricted:
            await self._denials.denied(self.principal, permission)
            raise Forbidden(permission.value, [role.value for role in self.principal.roles])

    def _seeing(self, permission: Permission) -> Permission:
        """Return what is needed to see what a worker has to see."""
        return Permission.JOB_CLAIM if self.principal.may(Permission.JOB_CLAIM) else permission

    async def _check_once(self, once: Record | None) -> None:
        """Raise if somebody brings a record along who may not write records: it could be a key."""
        if once is not None:
            await self._require_all(Permission.KEY_MANAGE)

    def _check_number(self, field: str, items: Collection[object]) -> None:
        """Raise ``InvalidInput`` for more than one turn of the store should take for a key."""
        who = self.principal
        if len(items) > MAX_ITEMS and who.key_id and not who.unrestricted:
            raise InvalidInput(field, f"{len(items):,} of them: give at most {MAX_ITEMS:,}")

    async def _signed(self, attribution: Attribution) -> Attribution:
        """Return who does it as the key says: over the network nobody acts in another's name."""
        await self._check_once(attribution.once)
        who = self.principal
        if not who.key_id or who.unrestricted:
            return attribution
        tenant = who.caller.tenant
        entries = tuple(
            replace(entry, user_id=who.name, tenant=entry.tenant if tenant is None else tenant)
            for entry in attribution.audit
        )
        return replace(attribution, by=who.name, audit=entries)

    async def _require_for(self, wanted: Filter) -> None:
        """Raise ``Forbidden`` if a filter asks about payloads that may not be seen."""
        if wanted.about_payloads:
            await self._require(Permission.PAYLOAD_READ)

    def _reach(self, caller: Caller) -> Caller:
        """Return the reach of a call: never more than that of the principal."""
        held = self.principal.caller
        if held.unlimited:
            return caller
        if caller.unlimited:
            return held
        scopes = caller.scopes or held.scopes
        tenant = held.tenant if caller.tenant is None else caller.tenant
        if held.tenant is not None and tenant != held.tenant:
            raise AccessDenied("tenant", str(caller.tenant))
        for scope in scopes:
            if not held.can_access(tenant or "", scope) and held.scopes:
                raise AccessDenied("scope", scope)
        return Caller(tenant, scopes)

    def _shown(self, job: Job) -> Job:
        """Return a job as it may be seen."""
        if self.principal.may(Permission.PAYLOAD_READ):
            return job
        return replace(job, payload=b"", result=None)

    def _shown_history(self, found: History) -> History:
        """Return a history as it may be seen: a note on an edit has the payload before it."""
        if self.principal.may(Permission.PAYLOAD_READ):
            return found
        notes = [replace(note, before=None) for note in found.notes]
        return replace(found, job=self._shown(found.job), notes=notes)

    def _shown_explanation(self, found: Explanation, hidden: Collection[str]) -> Explanation:
        """Return an explanation as it may be seen: without the names and states of these jobs."""
        blockers = tuple(
            replace(one, job="", state=None) if one.job in hidden else one for one in found.blockers
        )
        return replace(found, job=self._shown(found.job), blockers=blockers)

    def _shown_operation(self, operation: Operation) -> Operation:
        """Return an operation as it may be seen: its filter and its edits tell of payloads."""
        if self.principal.may(Permission.PAYLOAD_READ):
            return operation
        action, wanted = operation.action, operation.wanted
        if isinstance(action, EditJobs):
            action = EditJobs()
        if wanted.about_payloads:
            wanted = replace(wanted, payload=(), without=())
        return replace(operation, action=action, wanted=wanted)

    def _shown_event(self, event: Event) -> Event:
        """Return an event as it may be seen."""
        if self.principal.may(Permission.PAYLOAD_READ):
            return event
        return replace(event, payload=b"{}", before=None, after=None, diff=None)


def _without_figures(state: ProjectionState) -> ProjectionState:
    """Return a projection without what its rebuilds say of other tenants."""

    def bare(rebuild: Rebuild) -> Rebuild:
        return Rebuild(
            id=rebuild.id,
            mode=rebuild.mode,
            generation=rebuild.generation,
            by="",
            started_at_us=rebuild.started_at_us,
            phase=rebuild.phase,
            ended_at_us=rebuild.ended_at_us,
        )

    rebuild = None if state.rebuild is None else bare(state.rebuild)
    return replace(state, rebuild=rebuild, past=tuple(map(bare, state.past)))
