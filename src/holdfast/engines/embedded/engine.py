"""The engine that keeps its state in this process: every verb of the contract.

A verb checks its arguments, has a part decide, and answers when the answer is durable. Subclasses
supply the state (how fast it finds jobs), the log (what survives) and the history (where finished
work goes).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path

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
    for_states,
)
from holdfast.engines.clock import Clock
from holdfast.engines.contract import (
    DEFAULT_LEASE_SECONDS,
    MAX_CLAIM,
    MAX_EXPLAINED,
    AdminResult,
    Capabilities,
    Claim,
    Counts,
    EngineOptions,
    HeldJob,
    OnDuplicate,
    Receipt,
    Reclaim,
    Renewal,
)
from holdfast.engines.dump.format import DumpRecord
from holdfast.engines.outages import check_reports, check_set_outage
from holdfast.engines.queue_stats import StoreStats
from holdfast.engines.read_models.sqlite_store import SqliteReadModels
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
from holdfast.model.cursor import page_of, read_cursor
from holdfast.model.effects import ScheduleState
from holdfast.model.errors import AccessDenied, InvalidInput, LeaseLost
from holdfast.model.event import Event, EventReceipt, NewEvent
from holdfast.model.event_search import (
    EVERY_EVENT,
    EventFilter,
    EventPage,
    event_page,
    read_event_cursor,
)
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
from holdfast.model.job import (
    MAX_LEASE_SECONDS,
    MICROSECONDS,
    Edit,
    Job,
    JobRef,
    NewJob,
    check_id,
    check_seconds,
    check_size,
)
from holdfast.model.operation import NewOperation, Operation, OperationChange, OperationStep
from holdfast.model.outage import DependencyReport, Outage, OutageUpdate
from holdfast.model.outcome import Outcome
from holdfast.model.policy import DEFAULT_POLICY, QueuePolicy
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

from .admin import Admin
from .admission import EnqueueBatcher
from .commands import Commands
from .core import CommitLog, EmbeddedCore, WorkState
from .event_log import EventLog
from .event_store import EventStore
from .fleet import Fleet
from .history import HistoryStore
from .operation_steps import OperationSteps
from .outages import OutageCommands
from .queries import Queries
from .sampler import MemorySamples, Sampler, SampleStore


class EmbeddedEngine:
    """See ``Engine``, for each verb."""

    core_type: type[EmbeddedCore] = EmbeddedCore
    commands_type: type[Commands] = Commands
    admin_type: type[Admin] = Admin
    operations_type: type[OperationSteps] = OperationSteps
    fleet_type: type[Fleet] = Fleet
    event_log_type: type[EventLog] = EventLog

    def __init__(
        self,
        capabilities: Capabilities,
        state: WorkState,
        log: CommitLog,
        history: HistoryStore,
        events: EventStore,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        options: EngineOptions,
        samples: SampleStore | None = None,
        read_models: Path | None = None,
        threads: Callable[[int, str], Executor] | None = None,
    ) -> None:
        """Take where read models are, and what runs them; None: in memory, on the event loop."""
        self.capabilities = capabilities
        self._core = self.core_type(capabilities, state, log, history, clock, random_bytes, options)
        self._commands = self.commands_type(self._core)
        self._queries = Queries(self._core, events)
        self._admin = self.admin_type(self._core, self._queries)
        self._outages = OutageCommands(self._core)
        self._operations = self.operations_type(self._core, self._queries, self._admin)
        self._fleet = self.fleet_type(random_bytes)
        self._events = events
        self._event_log = self.event_log_type(self._core, events)
        self.read_models = SqliteReadModels(read_models, self, threads)
        self._sampler = Sampler(
            samples or MemorySamples(), self.survey, self._core.flows, clock.now_us()
        )
        self._enqueue_batcher = EnqueueBatcher(self._commands.enqueue_batch, log.durable_future)

    @property
    def leases_refused(self) -> int:
        """How many settles and extensions were refused for a stale token since opening."""
        return self._commands.leases_refused

    # --- move work ---------------------------------------------------------------------------

    async def enqueue(
        self,
        jobs: Sequence[NewJob],
        *,
        caller: Caller = SYSTEM,
        on_duplicate: OnDuplicate = "refuse",
        once: Record | None = None,
    ) -> list[Receipt]:
        """See ``Engine.enqueue``."""
        core = self._core
        core.check_open()
        jobs = check_all("jobs", jobs, NewJob)
        if on_duplicate not in ("refuse", "skip"):
            raise InvalidInput("on_duplicate", f"{on_duplicate!r} is not refuse or skip")
        check_once(once)
        if once is None and (core.log.many_callers or self._enqueue_batcher.waiting):
            return await self._enqueue_batcher.add(jobs, caller, on_duplicate)
        return await core.answer(
            lambda now: self._commands.enqueue(jobs, caller, on_duplicate, now, once)
        )

    async def settle(
        self, outcomes: Sequence[Outcome], *, caller: Caller = SYSTEM
    ) -> list[LeaseLost | None]:
        """See ``Engine.settle``."""
        checked = check_all("outcomes", outcomes, Outcome)
        return await self._core.answer(lambda now: self._commands.settle(checked, caller, now))

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
        queues = check_names("queues", queues)
        tasks = None if tasks is None else check_names("tasks", tasks)
        outcomes = check_all("settle", settle, Outcome)
        if wait_seconds != 0:
            check_seconds("wait_seconds", wait_seconds)
        core, commands = self._core, self._commands
        give_up_us = core.now_us() + int(wait_seconds * MICROSECONDS)
        while True:
            if not outcomes:
                await core.history.room()  # outcomes do not wait: their leases would run out
            core.check_open()
            now_us = core.now_us()
            jobs: list[Job] = []
            answer_now = True
            try:
                settled = commands.settle(outcomes, caller, now_us)
                if not core.history.behind:
                    jobs = commands.claim(
                        queues, tasks, limit, chain, worker, lease_seconds, caller, now_us
                    )
                answer_now = bool(jobs or outcomes or now_us >= give_up_us)
            finally:
                if answer_now:
                    await commands.durable_or_hand_back(jobs)
            if answer_now:
                return Claim(jobs, settled)
            # No await between looking and waiting: no work can arrive unseen.
            due_us = core.state.next_due_us(queues, now_us)
            until_us = give_up_us if due_us is None else min(give_up_us, due_us)
            await core.waiters.wait(queues, tasks, until_us - core.ahead_us)

    async def extend(
        self, held: Sequence[HeldJob], *, lease_seconds: float, caller: Caller = SYSTEM
    ) -> list[Renewal | LeaseLost]:
        """See ``Engine.extend``."""
        check_seconds("lease_seconds", lease_seconds, MAX_LEASE_SECONDS)
        leases = check_held(held)
        return await self._core.answer(
            lambda now: self._commands.extend(leases, lease_seconds, caller, now)
        )

    async def leases(
        self, held: Sequence[HeldJob], *, caller: Caller = SYSTEM
    ) -> list[Renewal | LeaseLost]:
        """See ``Engine.leases``."""
        leases = check_held(held)
        return await self._core.answer(lambda _now: self._commands.leases(leases, caller))

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
        del every_seconds  # no other process reclaims here
        check_limit(limit)
        refs = check_all("forced", forced, JobRef)  # type: ignore[type-abstract]
        if attribution is not None:
            check_attribution(attribution)
        return await self._core.answer(
            lambda now: self._commands.reclaim(limit, refs, attribution, caller, now)
        )

    # --- look --------------------------------------------------------------------------------

    async def get(
        self, ids: Sequence[str], *, tenant: str = DEFAULT_TENANT, caller: Caller = SYSTEM
    ) -> list[Job | None]:
        """See ``Engine.get``."""
        check_id(tenant, "tenant")
        return await self._queries.get(check_all("ids", ids, str), tenant, caller)

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
        check_page(limit)
        wanted, order = check_filter(wanted), check_order(order)
        after = read_cursor(cursor, wanted, order)
        listed = order.of_listed(wanted)
        jobs = await self._queries.matching(listed, after, limit + 1, caller, order)
        return page_of(jobs, limit, wanted, order)

    async def count(
        self, wanted: Filter = EVERYTHING, *, cap: int = 10_000, caller: Caller = SYSTEM
    ) -> Count:
        """See ``Engine.count``."""
        check_cap(cap)
        wanted = check_filter(wanted)
        return Count.of(await self._queries.count(wanted, cap + 1, caller), cap)

    async def counts(self, *, caller: Caller = SYSTEM) -> Mapping[str, Counts]:
        """See ``Engine.counts``."""
        return await self._queries.counts(caller)

    async def queues(self, *, caller: Caller = SYSTEM) -> list[str]:
        """See ``Engine.queues``."""
        return await self._core.answer(lambda _now: self._queries.queues(caller))

    def survey(self) -> StoreStats:
        """Return every queue as it is in memory, for a scrape; it may not be durable yet.

        Jobs that finished too long ago may still be counted.
        """
        now_us = self._core.now_us()
        state = self._core.state
        out = {name: outage.since_us for name, outage in state.outages.active.items()}
        return StoreStats(now_us, state.survey(now_us), out)

    async def groups(
        self, wanted: Filter = EVERYTHING, *, caller: Caller = SYSTEM
    ) -> list[FailureGroup]:
        """See ``Engine.groups``."""
        return await self._queries.groups(check_filter(wanted), caller)

    async def history(
        self, ids: Sequence[str], *, tenant: str = DEFAULT_TENANT, caller: Caller = SYSTEM
    ) -> list[History | None]:
        """See ``Engine.history``."""
        check_id(tenant, "tenant")
        names = check_all("ids", ids, str)
        check_size("ids", len(names), 0, MAX_CLAIM)
        return await self._queries.history(names, tenant, caller)

    async def explain(
        self, ids: Sequence[str], *, tenant: str = DEFAULT_TENANT, caller: Caller = SYSTEM
    ) -> list[Explanation | None]:
        """See ``Engine.explain``."""
        check_id(tenant, "tenant")
        names = check_all("ids", ids, str)
        check_size("ids", len(names), 0, MAX_EXPLAINED)
        return await self._queries.explain(names, tenant, caller)

    async def validate(self) -> list[str]:
        """See ``Engine.validate``."""
        return await self._core.answer(lambda _now: self._core.state.problems())

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
        check_attribution(attribution)
        check_limit(limit)
        wanted = for_states(wanted, action.states)
        return await self._admin.operate(action, wanted, attribution, limit, caller)

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
        check_edit(changes, self._core.options.max_payload_bytes)
        check_id(job.id)
        check_id(job.tenant, "tenant")
        check_attribution(attribution)
        return await self._admin.edit(job, changes, attribution, version, caller)

    async def policies(self) -> Mapping[str, QueuePolicy]:
        """See ``Engine.policies``."""
        return await self._core.answer(lambda _now: dict(self._core.state.policies))

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
        _check_may_set("queue", queue, attribution, caller)
        new = None if policy == DEFAULT_POLICY else policy
        await self._core.answer(
            lambda now: self._admin.set_policy(queue, new, expected, attribution, now)
        )
        self._core.waiters.wake((), [queue])

    async def flags(self) -> Mapping[str, bool]:
        """See ``Engine.flags``."""
        return await self._core.answer(lambda _now: dict(self._core.state.flags))

    async def set_flag(
        self, name: str, attribution: Attribution, *, on: bool | None, caller: Caller = SYSTEM
    ) -> None:
        """See ``Engine.set_flag``."""
        check_id(name, "name")
        check_switch(on)
        _check_may_set("flag", name, attribution, caller)
        await self._core.answer(lambda now: self._admin.set_flag(name, attribution, now, on=on))

    async def schedules(self) -> Mapping[str, ScheduleState]:
        """See ``Engine.schedules``."""
        return await self._core.answer(lambda _now: dict(self._core.state.schedules))

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
        _check_may_set("schedule", name, attribution, caller)
        await self._core.answer(
            lambda now: self._admin.set_schedule(name, schedule, expected, attribution, now)
        )

    # --- outages -----------------------------------------------------------------------------

    async def outages(self, *, ended: bool = False) -> list[Outage]:
        """See ``Engine.outages``."""
        return await self._core.answer(lambda _now: self._core.state.outages.all(ended=ended))

    async def report_outage(self, reports: Sequence[DependencyReport] = ()) -> OutageUpdate:
        """See ``Engine.report_outage``."""
        checked = check_reports(reports)
        return await self._core.answer(lambda now: self._outages.report(checked, now))

    async def set_outage(
        self, dependency: str, attribution: Attribution, *, on: bool, caller: Caller = SYSTEM
    ) -> Outage:
        """See ``Engine.set_outage``."""
        check_set_outage(dependency, attribution, caller, on=on)
        return await self._core.answer(
            lambda now: self._outages.set(dependency, attribution, now, on=on)
        )

    # --- operations --------------------------------------------------------------------------

    async def now_us(self) -> int:
        """See ``Engine.now_us``."""
        return await self._core.answer(lambda now: now)

    async def start_operation(
        self, new: NewOperation, attribution: Attribution, *, caller: Caller = SYSTEM
    ) -> Operation:
        """See ``Engine.start_operation``."""
        check_operation(new, attribution)
        return await self._operations.start(new, attribution, caller)

    async def advance_operation(self, operation_id: str) -> OperationStep:
        """See ``Engine.advance_operation``."""
        return await self._operations.advance(check_id(operation_id, "operation"))

    async def operations(
        self, *, running: bool = False, limit: int = 100, caller: Caller = SYSTEM
    ) -> list[Operation]:
        """See ``Engine.operations``."""
        check_page(limit)
        return await self._core.answer(
            lambda _now: self._operations.listed(caller, running=running, limit=limit)
        )

    async def operation(self, operation_id: str, *, caller: Caller = SYSTEM) -> Operation:
        """See ``Engine.operation``."""
        check_id(operation_id, "operation")
        return await self._core.answer(lambda _now: self._operations.get(operation_id, caller))

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
        return await self._operations.change(operation_id, change, attribution, caller)

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
        _check_may_set("group", group_id, attribution, caller)
        return await self._admin.set_group(group_id, change, attribution)

    # --- events ------------------------------------------------------------------------------

    async def append(
        self,
        events: Sequence[NewEvent],
        *,
        caller: Caller = SYSTEM,
        once: Record | None = None,
    ) -> list[EventReceipt]:
        """See ``Engine.append``."""
        news = check_events(events)
        check_once(once)
        self._core.check_open()
        await self._events.room()
        return await self._core.answer(lambda now: self._event_log.append(news, caller, now, once))

    async def get_events(
        self, ids: Sequence[str], *, tenant: str = DEFAULT_TENANT, caller: Caller = SYSTEM
    ) -> list[Event | None]:
        """See ``Engine.get_events``."""
        check_id(tenant, "tenant")
        names = check_all("ids", ids, str)
        check_size("ids", len(names), 0, MAX_CLAIM)
        self._core.check_open()
        found = await self._events.get(tenant, [name.lower() for name in names])
        await self._core.durable()  # some may be in memory only
        return [one if one and caller.can_access(one.tenant, one.scope) else None for one in found]

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
        after = read_event_cursor(cursor, wanted, newest=newest)
        self._core.check_open()
        await self._events.flush()
        found = await self._events.find(wanted, caller, after, limit + 1, newest=newest)
        return event_page(found, limit, wanted, newest=newest)

    async def count_events(
        self, wanted: EventFilter = EVERY_EVENT, *, caller: Caller = SYSTEM
    ) -> int:
        """See ``Engine.count_events``."""
        wanted = check_event_filter(wanted)
        self._core.check_open()
        await self._events.flush()
        return await self._events.count(wanted, caller)

    async def subscriptions(self) -> Mapping[str, Subscription]:
        """See ``Engine.subscriptions``."""
        return await self._core.answer(
            lambda _now: dict(sorted(self._core.state.subscriptions.items()))
        )

    async def set_subscription(
        self,
        name: str,
        subscription: Subscription | None,
        attribution: Attribution,
        *,
        caller: Caller = SYSTEM,
    ) -> Subscription | None:
        """See ``Engine.set_subscription``."""
        check_subscription(name, subscription, attribution, caller)
        return await self._core.answer(
            lambda now: self._event_log.set_subscription(name, subscription, attribution, now)
        )

    # --- projections -------------------------------------------------------------------------

    async def projections(self) -> Mapping[str, ProjectionState]:
        """See ``Engine.projections``."""
        return await self._core.answer(lambda _now: dict(self._core.state.projections))

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
        _check_may_set("projection", state.name, attribution, caller)
        await self._core.answer(
            lambda now: self._event_log.set_projection(state, expected, attribution, now)
        )

    async def fanout_settled(self, version: int) -> bool:  # noqa: ARG002 - a commit is a moment
        """See ``Engine.fanout_settled``: one process appends, so no transaction is ever open."""
        return True

    async def changes(self, *, caller: Caller = SYSTEM) -> ChangeMarks:
        """See ``Engine.changes``."""
        found = await self._core.answer(self._core.changes.marks)
        return found.within(caller)

    # --- records -----------------------------------------------------------------------------

    async def records(self, kind: str, names: Sequence[str] = ()) -> list[Record]:
        """See ``Engine.records``."""
        check_record_names(kind, names)
        return await self._core.answer(lambda now: self._core.records.find(kind, names, now))

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
        _check_may_set(kind, name, attribution, caller)
        await self._core.answer(
            lambda now: self._admin.set_record(kind, name, after, expected, attribution, now)
        )

    # --- the fleet ---------------------------------------------------------------------------

    async def announce(
        self,
        process: WorkerProcess,
        *,
        ttl_seconds: float,
        answers: Sequence[CommandAnswer] = (),
    ) -> list[SentCommand]:
        """See ``Engine.announce``."""
        checked = check_process(process, ttl_seconds, answers)
        self._core.check_open()
        return self._fleet.announce(process, ttl_seconds, checked, self._core.now_us())

    async def depart(self, process_id: str) -> None:
        """See ``Engine.depart``."""
        self._core.check_open()
        self._fleet.depart(check_id(process_id, "process_id"))

    async def workers(self, *, gone: bool = False) -> list[WorkerEntry]:
        """See ``Engine.workers``."""
        self._core.check_open()
        return self._fleet.workers(self._core.now_us(), gone=gone)

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
        targets = check_command(command, process_ids, attribution, ttl_seconds, caller)
        # Sent when its audit is durable.
        await self._core.answer(
            lambda now: self._admin.audit(attribution.audit, now, attribution.once)
        )
        who = attribution.by, attribution.why
        return self._fleet.command(command, targets, who, ttl_seconds, self._core.now_us())

    async def answers(self, command_id: str) -> list[CommandAnswer]:
        """See ``Engine.answers``."""
        self._core.check_open()
        return self._fleet.answers(check_id(command_id, "command_id"))

    # --- samples -----------------------------------------------------------------------------

    async def take_sample(
        self, *, every_seconds: float = SAMPLE_SECONDS, caller: Caller = SYSTEM
    ) -> float:
        """See ``Engine.take_sample``."""
        check_sampling(every_seconds, caller)
        self._core.check_open()
        return await self._sampler.take(every_seconds, self._core.clock.now_us())

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
        self._core.check_open()
        query = sample_query(names, from_us, to_us, step_seconds, self._core.now_us())
        return await self._sampler.store.read(query)

    # --- keep --------------------------------------------------------------------------------

    async def audit(self, entries: Sequence[AuditEntry], *, caller: Caller = SYSTEM) -> AuditHead:
        """See ``Engine.audit``."""
        if not caller.unlimited:
            raise AccessDenied("audit", "entries")
        checked = check_all("entries", entries, AuditEntry)
        for entry in checked:
            entry.check()
        return await self._core.answer(lambda now: self._admin.audit(checked, now))

    def dump(self) -> AsyncIterator[Sequence[DumpRecord]]:
        """See ``Engine.dump``."""
        return self._queries.dump()

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
        core = self._core
        core.check_open()
        await core.durable()
        await core.history.flush()
        return list(await core.history.audit(after, limit, wanted, newest=newest))

    async def close(self) -> None:
        """See ``Engine.close``."""
        core = self._core
        if core.closed:
            return
        self._enqueue_batcher.decide()
        core.closed = True
        core.waiters.wake_all()
        await self._sampler.store.close()
        await self.read_models.close()
        try:
            try:
                await self._events.close()
            finally:
                await core.history.close()
        finally:
            await core.log.close()


def _check_may_set(what: str, name: str, attribution: Attribution, caller: Caller) -> None:
    check_attribution(attribution)
    if not caller.unlimited:
        raise AccessDenied(what, name)  # it affects every tenant's work
