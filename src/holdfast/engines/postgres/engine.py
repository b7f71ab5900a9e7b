"""The PostgreSQL engine: work kept by a server that many machines share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial

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
from holdfast.engines.clock import Clock, monotonic
from holdfast.engines.contract import (
    DEFAULT_LEASE_SECONDS,
    MAX_CLAIM,
    MAX_EXPLAINED,
    AdminResult,
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
from holdfast.engines.entropy import random_bytes
from holdfast.engines.histogram import Histogram
from holdfast.engines.outages import OutageChange, check_reports, check_set_outage, log_changes
from holdfast.engines.queue_stats import StoreMetrics, StoreStats
from holdfast.model import lifecycle
from holdfast.model.access import DEFAULT_TENANT, SYSTEM, Caller
from holdfast.model.actions import AnyAction, ReplayJobs
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
from holdfast.model.effects import Effect, ScheduleState
from holdfast.model.errors import AccessDenied, InvalidInput, LeaseLost, StaleVersion
from holdfast.model.event import Event, EventReceipt, NewEvent, is_event_id
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
from holdfast.model.ids import RANDOM_BYTES, rising_uuid7s
from holdfast.model.job import (
    MAX_LEASE_SECONDS,
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
    MAX_PAGE,
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
from holdfast.model.uniform_batch import UniformBatch

from . import dump, outages, rows
from .admin import access, actions, audit, fleet, operations, queries
from .admin import changes as change_verbs
from .admin import explain as explaining
from .admin import groups as failure_groups
from .admin import policies as policy_verbs
from .admin import projections as projection_verbs
from .admin import records as record_verbs
from .admin import samples as sampling
from .admin.access import ServerAccess
from .connection.sansio import execute, execute_all
from .events import append as append_verbs
from .events import open_fanouts
from .events import queries as event_queries
from .events import subscriptions as subscription_verbs
from .events.append import AppendRequest
from .events.queries import JobAudit, check_mark
from .jobs import settle_statements as settle_verbs
from .jobs.claim_statements import ClaimRequest
from .jobs.claimer import Claimer, random_nonce
from .jobs.enqueue_statements import EnqueueRequest, is_simple
from .jobs.enqueuer import Enqueuer
from .jobs.key_lines import KeyLines
from .jobs.notifier import Notifier
from .jobs.settler import Settler
from .maintenance.periodic_lock import PeriodicLock
from .maintenance.prune import Pruner, PruneResult
from .maintenance.reclaim import Reclaimer
from .options import PostgresOptions
from .read_models.store import PostgresReadModels
from .resources import EngineResources
from .restore.restore import refuse_unfinished_restore


class PostgresEngine:
    """Work kept by a PostgreSQL server. Open it with ``open``."""

    def __init__(
        self, url: str, options: PostgresOptions | None = None, clock: Clock | None = None
    ) -> None:
        """Take where the server is. ``clock`` is for tests: without it the server's time counts."""
        self.capabilities = Capabilities(
            name="postgres", durable=True, shared=True, calls_at_once=2
        )
        self._resources = resources = EngineResources(url, options, clock)
        self._database = resources.database
        self._context = resources.context
        self._notifier = Notifier(resources)
        self._enqueuer = Enqueuer(resources)
        self._settler = Settler(resources)
        self._lines = KeyLines(resources)
        self._claimer = Claimer(resources, self._settler, self._notifier, self._lines)
        self._reclaimer = Reclaimer(resources, self._lines)
        self._pruner = Pruner(resources.database)
        self._stats = StoreStats()
        self.read_models = PostgresReadModels(resources, self._settler)
        """The tables that projections fill."""

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        options: PostgresOptions | None = None,
        clock: Clock | None = None,
        reading: bool = False,
    ) -> PostgresEngine:
        """Connect; raise ``Unavailable`` with what is wrong.

        ``reading``: the user need not have the rights to change something.
        """
        engine = cls(url, options, clock)
        await engine._database.open(reading=reading)
        try:
            await refuse_unfinished_restore(engine._database)
        except BaseException:
            await engine.close()
            raise
        return engine

    async def close(self) -> None:
        """See ``Engine.close``."""
        await self._notifier.close()
        await self._claimer.abandoned.close(self.options.patience_seconds)
        self._database.refuse_calls()
        self._resources.waiters.wake_all()
        self.read_models.close()
        await self._database.close()

    @property
    def options(self) -> PostgresOptions:
        """The options it was opened with."""
        return self._resources.options

    @property
    def leases_refused(self) -> int:
        """See ``Engine.leases_refused``."""
        return self._settler.leases_refused

    # --- move --------------------------------------------------------------------------------

    async def enqueue(
        self,
        jobs: Sequence[NewJob],
        *,
        caller: Caller = SYSTEM,
        on_duplicate: OnDuplicate = "refuse",
        once: Record | None = None,
    ) -> list[Receipt]:
        """See ``Engine.enqueue``."""
        self._database.check_open()
        if not (type(jobs) is UniformBatch and is_simple(jobs.like)):
            jobs = check_all("jobs", jobs, NewJob)
        if on_duplicate not in ("refuse", "skip"):
            raise InvalidInput("on_duplicate", f"{on_duplicate!r} is not refuse or skip")
        check_once(once)
        now_us = self._resources.clock.now_us()
        ids = rising_uuid7s(now_us, random_bytes(RANDOM_BYTES * len(jobs)))
        request = EnqueueRequest(jobs, caller, on_duplicate, ids)
        if once is None:
            await self._enqueuer.batcher(request).add(request)
        else:
            await self._enqueuer.enqueue([request], once)
        return request.receipts()

    def claim(
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
    ) -> Coroutine[object, object, Claim]:
        """See ``Engine.claim``."""
        check_limit(limit)
        check_chain(chain)
        check_id(worker, "worker")
        check_seconds("lease_seconds", lease_seconds, MAX_LEASE_SECONDS)
        names = check_names("queues", queues)
        known = None if tasks is None else check_names("tasks", tasks)
        outcomes = _checked_outcomes("settle", settle)
        if wait_seconds != 0:
            check_seconds("wait_seconds", wait_seconds)
        request = ClaimRequest(
            names, known, limit, worker, random_nonce(), float(lease_seconds), caller, chain
        )
        return self._claimer.claim(request, outcomes, wait_seconds)

    async def settle(
        self, outcomes: Sequence[Outcome], *, caller: Caller = SYSTEM
    ) -> list[LeaseLost | None]:
        """See ``Engine.settle``."""
        self._database.check_open()
        checked = _checked_outcomes("outcomes", outcomes)
        if not checked:
            return []
        return self._settler.answers(checked, await self._settler.settle(checked, caller))

    async def extend(
        self, held: Sequence[HeldJob], *, lease_seconds: float, caller: Caller = SYSTEM
    ) -> list[Renewal | LeaseLost]:
        """See ``Engine.extend``."""
        check_seconds("lease_seconds", lease_seconds, MAX_LEASE_SECONDS)
        leases = check_held(held)
        self._database.check_open()
        if not leases:
            return []
        answers = await self._database.perform(
            lambda: settle_verbs.extend(leases, lease_seconds, caller, self._context()),
            idempotent=True,
        )
        self._settler.leases_refused += sum(isinstance(answer, LeaseLost) for answer in answers)
        return answers

    async def leases(
        self, held: Sequence[HeldJob], *, caller: Caller = SYSTEM
    ) -> list[Renewal | LeaseLost]:
        """See ``Engine.leases``."""
        leases = check_held(held)
        return await self._database.read(lambda: settle_verbs.read_leases(leases, caller))

    # --- look --------------------------------------------------------------------------------

    async def get(
        self, ids: Sequence[str], *, tenant: str = DEFAULT_TENANT, caller: Caller = SYSTEM
    ) -> list[Job | None]:
        """See ``Engine.get``."""
        check_id(tenant, "tenant")
        wanted = check_all("ids", ids, str)
        names = [(tenant, job_id) for job_id in wanted]
        found = await self._database.read(lambda: queries.get(names, caller, self._context()))
        return [found.get((tenant, job_id)) for job_id in wanted]

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
        jobs = await self._database.read(
            lambda: queries.find(listed, after, limit + 1, caller, self._context(), order)
        )
        return page_of(jobs, limit, wanted, order)

    async def count(
        self, wanted: Filter = EVERYTHING, *, cap: int = 10_000, caller: Caller = SYSTEM
    ) -> Count:
        """See ``Engine.count``."""
        check_cap(cap)
        wanted = check_filter(wanted)
        found = await self._database.read(
            lambda: queries.count(wanted, cap + 1, caller, self._context())
        )
        return Count.of(found, cap)

    async def counts(self, *, caller: Caller = SYSTEM) -> Mapping[str, Counts]:
        """See ``Engine.counts``."""
        return await self._database.read(lambda: queries.counts(caller, self._context()))

    async def queues(self, *, caller: Caller = SYSTEM) -> list[str]:
        """See ``Engine.queues``."""
        return await self._database.read(lambda: queries.queues(caller))

    async def groups(
        self, wanted: Filter = EVERYTHING, *, caller: Caller = SYSTEM
    ) -> list[FailureGroup]:
        """See ``Engine.groups``."""
        wanted = check_filter(wanted)
        return await self._database.read(
            lambda: failure_groups.groups(wanted, caller, self._context())
        )

    async def history(
        self, ids: Sequence[str], *, tenant: str = DEFAULT_TENANT, caller: Caller = SYSTEM
    ) -> list[History | None]:
        """See ``Engine.history``."""
        check_id(tenant, "tenant")
        wanted = check_all("ids", ids, str)
        check_size("ids", len(wanted), 0, MAX_CLAIM)
        names = [(tenant, job_id) for job_id in wanted]
        found = await self._database.read(lambda: queries.history(names, caller, self._context()))
        return [found.get((tenant, job_id)) for job_id in wanted]

    async def explain(
        self, ids: Sequence[str], *, tenant: str = DEFAULT_TENANT, caller: Caller = SYSTEM
    ) -> list[Explanation | None]:
        """See ``Engine.explain``."""
        check_id(tenant, "tenant")
        names = check_all("ids", ids, str)
        check_size("ids", len(names), 0, MAX_EXPLAINED)
        if self._database.may_write:
            await self._lines.line_up_all()  # as a claim does
        wanted = [(tenant, job_id) for job_id in names]
        found = await self._database.perform(
            lambda: explaining.explain_jobs(wanted, caller, self._context()), idempotent=True
        )
        return [found.get((tenant, job_id)) for job_id in names]

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
        return await self._database.read(lambda: audit.search(wanted, after, limit, newest=newest))

    async def validate(self) -> list[str]:
        """See ``Engine.validate``."""
        return await self._database.read(queries.problems)

    def dump(self) -> AsyncIterator[Sequence[DumpRecord]]:
        """See ``Engine.dump``."""
        self._database.check_open()
        return dump.records(self._database, self._context(), self.capabilities.name)

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
        matching = for_states(wanted, action.states)
        others, kept = matching, 0
        if isinstance(action, ReplayJobs) and not (action.fixed or matching.ids):
            others, kept = await self._database.read(
                lambda: actions.without_deterministic(matching, caller, self._context())
            )

        def change() -> actions.JobChange:
            changes = actions.change_of(action, attribution, named=bool(matching.ids))
            changes.kept = kept
            return changes

        return await self._operate(others, change, attribution, limit, caller)

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
        check_edit(changes, self.options.max_payload_bytes)

        def decide(found: Job, now_us: int) -> Effect:
            if version is not None and found.version != version:
                raise StaleVersion(found.id, version, found.version)
            return lifecycle.edit(found, now_us, changes, attribution.by, attribution.why)

        wanted = Filter(ids=(check_id(job.id),), tenant=check_id(job.tenant, "tenant"))
        change = actions.JobChange(lifecycle.EDITABLE, decide)
        done = await self._operate(wanted, lambda: change, attribution, 1, caller)
        return done.jobs[0]

    async def _operate(
        self,
        wanted: Filter,
        make: Callable[[], actions.JobChange],
        attribution: Attribution,
        limit: int,
        caller: Caller,
    ) -> AdminResult:
        """Apply a change to the jobs that a filter finds, in one commit.

        ``make`` is called for each try: a change may collect facts about the jobs.
        """
        check_attribution(attribution)
        check_limit(limit)
        matching = for_states(wanted, make().states)
        done, changes = await self._resources.perform_once(
            "operation",
            lambda: actions.operate(matching, make(), attribution, limit, caller, self._context()),
            once=attribution.once,
            changed=lambda done: bool(done[0].jobs),
        )
        self._resources.announce(changes)
        return done

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
        _check_unlimited("queue", queue, attribution, caller)
        wanted = None if policy == DEFAULT_POLICY else policy
        await self._resources.perform_once(
            "set_policy",
            lambda: policy_verbs.set_policy(queue, wanted, attribution, expected, self._context()),
            once=attribution.once,
        )
        self._resources.watermarks.forget()
        self._resources.waiters.wake((), [queue])

    async def flags(self) -> Mapping[str, bool]:
        """See ``Engine.flags``."""
        return await self._database.read(policy_verbs.flags)

    async def set_flag(
        self, name: str, attribution: Attribution, *, on: bool | None, caller: Caller = SYSTEM
    ) -> None:
        """See ``Engine.set_flag``."""
        check_id(name, "name")
        check_switch(on)
        _check_unlimited("flag", name, attribution, caller)
        await self._resources.perform_once(
            "set_flag",
            lambda: policy_verbs.set_flag(name, attribution, self._context(), to=on),
            once=attribution.once,
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
        _check_unlimited("schedule", name, attribution, caller)
        await self._resources.perform_once(
            "set_schedule",
            lambda: policy_verbs.set_schedule(
                name, schedule, attribution, expected, self._context()
            ),
            once=attribution.once,
        )

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
        _check_unlimited("group", group_id, attribution, caller)
        return await self._resources.perform_once(
            "set_group",
            lambda: failure_groups.set_group(group_id, change, attribution, self._context()),
            once=attribution.once,
        )

    async def audit(self, entries: Sequence[AuditEntry], *, caller: Caller = SYSTEM) -> AuditHead:
        """See ``Engine.audit``."""
        if not caller.unlimited:
            raise AccessDenied("audit", "entries")
        checked = check_all("entries", entries, AuditEntry)
        for entry in checked:
            entry.check()
        return await self._resources.perform_once(
            "audit", lambda: audit.add_audit_now(checked, self._context())
        )

    # --- events ------------------------------------------------------------------------------

    async def append(
        self,
        events: Sequence[NewEvent],
        *,
        caller: Caller = SYSTEM,
        once: Record | None = None,
    ) -> list[EventReceipt]:
        """See ``Engine.append``. It is safe to repeat: the ids tell what is stored."""
        news = check_events(events)
        check_once(once)
        self._database.check_open()
        now_us = self._resources.clock.now_us()
        ids = rising_uuid7s(now_us, random_bytes(RANDOM_BYTES * len(news)))
        request = AppendRequest(news, caller, ids, now_us)
        context = self._resources.enqueue_context(0)
        done = await self._resources.perform_once(
            "append",
            lambda: append_verbs.append(request, context),
            idempotent=True,
            once=once,
            changed=lambda done: any(receipt.created for receipt in done.receipts),
        )
        self._resources.take_times(context.created_us, done.jobs)
        if done.queues:
            self._resources.watermarks.forget()
            self._resources.waiters.wake((), done.queues)
        return done.receipts

    async def get_events(
        self, ids: Sequence[str], *, tenant: str = DEFAULT_TENANT, caller: Caller = SYSTEM
    ) -> list[Event | None]:
        """See ``Engine.get_events``."""
        check_id(tenant, "tenant")
        wanted = [one.lower() for one in check_all("ids", ids, str)]
        check_size("ids", len(wanted), 0, MAX_CLAIM)
        names = [(tenant, one) for one in wanted if is_event_id(one)]
        found = await self._database.read(lambda: append_verbs.get_events(names, caller))
        return [found.get((tenant, one)) for one in wanted]

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
        found = await self._database.read(
            lambda: event_queries.find_events(wanted, after, limit + 1, caller, newest=newest)
        )
        return event_page(found, limit, wanted, newest=newest)

    async def count_events(
        self, wanted: EventFilter = EVERY_EVENT, *, caller: Caller = SYSTEM
    ) -> int:
        """See ``Engine.count_events``."""
        wanted = check_event_filter(wanted)
        return await self._database.read(lambda: event_queries.count_events(wanted, caller))

    async def subscriptions(self) -> Mapping[str, Subscription]:
        """See ``Engine.subscriptions``."""
        return await self._database.read(subscription_verbs.subscriptions)

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
        return await self._resources.perform_once(
            "set_subscription",
            lambda: subscription_verbs.set_subscription(
                name, subscription, attribution, self._context()
            ),
            once=attribution.once,
        )

    async def open_fanouts(self, version: int) -> list[str]:
        """Return the transactions that may still commit an event of an earlier fan-out version.

        While there is one, the stored events of earlier versions are not complete. A sentence each.
        """
        check_size("version", version, 0)
        for step in (open_fanouts.open_snapshots, open_fanouts.open_transactions):
            found = await self._database.perform(partial(step, version), idempotent=True)
            if found:
                return found
        return []

    async def missing_jobs(self, *, mark: str = "", limit: int = 1_000) -> JobAudit:
        """Compare events with their jobs: unfinished, dead, or remembered in the history.

        Without a mark, all events whose jobs would be remembered; with the mark of an earlier
        audit, those that were committed since, and perhaps some more. A job that was purged is
        missing too.
        """
        check_limit(limit)
        if mark != "":
            check_mark(mark)
        return await self._database.read(
            lambda: event_queries.missing_jobs(mark, limit, self._context())
        )

    # --- projections -------------------------------------------------------------------------

    async def projections(self) -> Mapping[str, ProjectionState]:
        """See ``Engine.projections``."""
        return await self._database.read(projection_verbs.projections)

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
        _check_unlimited("projection", state.name, attribution, caller)
        await self._resources.perform_once(
            "set_projection",
            lambda: projection_verbs.set_projection(state, expected, attribution, self._context()),
            once=attribution.once,
        )

    async def fanout_settled(self, version: int) -> bool:
        """See ``Engine.fanout_settled``."""
        return not await self.open_fanouts(version)

    async def changes(self, *, caller: Caller = SYSTEM) -> ChangeMarks:
        """See ``Engine.changes``."""
        return (await self._database.read(change_verbs.changes)).within(caller)

    # --- records -----------------------------------------------------------------------------

    async def records(self, kind: str, names: Sequence[str] = ()) -> list[Record]:
        """See ``Engine.records``."""
        check_record_names(kind, names)
        return await self._database.read(lambda: record_verbs.records(kind, names, self._context()))

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
        _check_unlimited(kind, name, attribution, caller)
        await self._resources.perform_once(
            "set_record",
            lambda: record_verbs.set_record(
                kind, name, after, expected, attribution, self._context()
            ),
            once=attribution.once,
        )

    # --- outages -----------------------------------------------------------------------------

    async def outages(self, *, ended: bool = False) -> list[Outage]:
        """See ``Engine.outages``."""
        return await self._database.read(lambda: outages.read_outages(ended=ended))

    async def report_outage(self, reports: Sequence[DependencyReport] = ()) -> OutageUpdate:
        """See ``Engine.report_outage``."""
        checked = check_reports(reports)
        changes, update = await self._database.perform(
            lambda: outages.report(checked, self._context()), idempotent=True
        )
        self._outages_changed(changes)
        return update

    async def set_outage(
        self, dependency: str, attribution: Attribution, *, on: bool, caller: Caller = SYSTEM
    ) -> Outage:
        """See ``Engine.set_outage``."""
        check_set_outage(dependency, attribution, caller, on=on)
        change = await self._resources.perform_once(
            "set_outage",
            lambda: outages.set_outage(dependency, attribution, self._context(), on=on),
            once=attribution.once,
        )
        self._outages_changed([change])
        return change.after

    def _outages_changed(self, changes: Sequence[OutageChange]) -> None:
        """Log changes, and wake the claims of this process; others poll."""
        if changes:
            log_changes(changes, self._resources.clock.now_us())
            self._resources.watermarks.forget()
            self._resources.waiters.wake_all()

    # --- operations --------------------------------------------------------------------------

    async def now_us(self) -> int:
        """See ``Engine.now_us``."""
        [[[now_us]]] = await self._database.read(lambda: execute_all(self._context().now()))
        return int(now_us)

    async def start_operation(
        self, new: NewOperation, attribution: Attribution, *, caller: Caller = SYSTEM
    ) -> Operation:
        """See ``Engine.start_operation``. It is safe to repeat: the caller chose the id."""
        check_operation(new, attribution)
        return await self._resources.perform_once(
            "start_operation",
            lambda: operations.start(new, attribution, caller, self._context()),
            idempotent=True,
            once=attribution.once,
        )

    async def advance_operation(self, operation_id: str) -> OperationStep:
        """See ``Engine.advance_operation``. It is safe to repeat: a step is taken once."""
        check_id(operation_id, "operation")
        step, changes = await self._database.perform(
            lambda: operations.advance(operation_id, self._context()), idempotent=True
        )
        if changes is not None:
            self._resources.announce(changes)
        return step

    async def operations(
        self, *, running: bool = False, limit: int = 100, caller: Caller = SYSTEM
    ) -> list[Operation]:
        """See ``Engine.operations``."""
        check_page(limit)
        return await self._database.read(
            lambda: operations.listed(caller, running=running, limit=limit)
        )

    async def operation(self, operation_id: str, *, caller: Caller = SYSTEM) -> Operation:
        """See ``Engine.operation``."""
        check_id(operation_id, "operation")
        return await self._database.read(lambda: operations.get(operation_id, caller))

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
        return await self._resources.perform_once(
            "change_operation",
            lambda: operations.change(operation_id, change, attribution, caller, self._context()),
            once=attribution.once,
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
        beat = lambda: fleet.renew(process, ttl_seconds, checked, self._context())
        waiting = await self._database.perform(beat, idempotent=True)
        if waiting is None:
            enter = lambda: fleet.enter(process, ttl_seconds, checked, self._context())
            waiting = await self._database.perform(enter, idempotent=True)
        return waiting

    async def depart(self, process_id: str) -> None:
        """See ``Engine.depart``."""
        check_id(process_id, "process_id")
        await self._database.perform(lambda: fleet.depart(process_id), idempotent=True)

    async def workers(self, *, gone: bool = False) -> list[WorkerEntry]:
        """See ``Engine.workers``."""
        return await self._database.read(lambda: fleet.workers(self._context(), gone=gone))

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
        sent = SentCommand(random_bytes(16).hex(), command, attribution.by, attribution.why)
        await self._resources.perform_once(
            "command",
            lambda: fleet.send(sent, targets, ttl_seconds, attribution.audit, self._context()),
            once=attribution.once,
        )
        return sent.id

    async def answers(self, command_id: str) -> list[CommandAnswer]:
        """See ``Engine.answers``."""
        check_id(command_id, "command_id")
        return await self._database.read(lambda: fleet.answers(command_id))

    # --- samples -----------------------------------------------------------------------------

    async def take_sample(
        self, *, every_seconds: float = SAMPLE_SECONDS, caller: Caller = SYSTEM
    ) -> float:
        """See ``Engine.take_sample``."""
        check_sampling(every_seconds, caller)
        return await sampling.take(self._database, every_seconds, self._context())

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
        now_us = self._resources.clock.now_us()
        query = sample_query(names, from_us, to_us, step_seconds, now_us)
        return await self._database.read(lambda: sampling.read(query))

    # --- maintain ----------------------------------------------------------------------------

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
        check_limit(limit)
        refs = check_all("forced", forced, JobRef)  # type: ignore[type-abstract]
        if attribution is not None:
            check_attribution(attribution)
        if every_seconds != 0:
            check_seconds("every_seconds", every_seconds)
        if every_seconds and not refs:
            return await self._reclaimer.reclaim_in_turn(limit, every_seconds, caller)
        return await self._reclaimer.reclaim(limit, refs, attribution, caller)

    async def prune(self, *, every_seconds: float = 0.0) -> PruneResult:
        """Forget what need not be kept, and make the partitions of the days to come.

        A loop gives its interval as ``every_seconds``: one process of the cluster does the work.
        """
        if every_seconds != 0:
            check_seconds("every_seconds", every_seconds)
        return await self._pruner.prune(self._context(), every_seconds)

    async def take_unlogged_audit(self, *, every_seconds: float) -> list[AuditRecord]:
        """Return the next audit records that are to be logged: each to one process, once.

        A loop gives its interval: one process of the cluster takes them each time.
        """
        check_seconds("every_seconds", every_seconds)
        lock = PeriodicLock("audit_log", every_seconds)
        take = lambda: audit.take_unlogged(MAX_PAGE)
        return await lock.run(self._database, take, self._context()) or []

    # --- observe -----------------------------------------------------------------------------

    def figures(self) -> StoreMetrics:
        """Return the queue statistics that ``refresh_stats`` read last."""
        return StoreMetrics(self._stats, Histogram(()), Histogram(()))

    async def refresh_stats(self) -> float:
        """Read the statistics of every queue; return how many seconds that took."""
        began = monotonic()
        self._stats = await self._database.read(lambda: queries.queue_stats(self._context()))
        return monotonic() - began

    async def server_settings(self) -> Mapping[str, str]:
        """Return the settings of the server that decide whether acknowledged work survives."""
        return dict(await self._database.read(lambda: execute("read_server_settings")))

    async def access(self) -> ServerAccess:
        """Return who may do what on the server."""
        return await self._database.read(lambda: access.read_access(self.options.schema))

    @property
    def may_write(self) -> bool:
        """Whether the user has the rights to change something."""
        return self._database.may_write

    @property
    def unencrypted_host(self) -> str:
        """The host that is reached over a network without TLS; empty if none is."""
        return self._database.unencrypted_host

    async def held_by(self, worker: str) -> list[Job]:
        """Return the jobs that this worker holds."""
        found = await self._database.read(lambda: execute("find_held", worker=worker))
        return [rows.job_of(row) for row in found]


def _checked_outcomes(field: str, outcomes: Sequence[Outcome]) -> list[Outcome]:
    checked = check_all(field, outcomes, Outcome)
    for outcome in checked:
        outcome.check()
    return checked


def _check_unlimited(what: str, name: str, attribution: Attribution, caller: Caller) -> None:
    check_attribution(attribution)
    if not caller.unlimited:
        raise AccessDenied(what, name)  # it governs the work of every tenant
