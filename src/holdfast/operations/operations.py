"""Everything that people do: the command line, HTTP and the console all go through here.

Every change names who does it and why, and its audit entry is committed with it. Payloads are never
part of the audit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.engines.clock import SystemClock
from holdfast.engines.contract import Admission, Engine, OnDuplicate, Receipt
from holdfast.model.access import DEFAULT_TENANT
from holdfast.model.actions import AnyAction, ConfirmJobs, NoteJobs, ReplayJobs
from holdfast.model.audit import (
    WHOLE_AUDIT,
    Attribution,
    AuditFilter,
    AuditHead,
    follows,
    head_of,
)
from holdfast.model.cursor import write_cursor
from holdfast.model.effects import ScheduleState
from holdfast.model.errors import (
    AuditAltered,
    ChangedMeanwhile,
    IllegalTransition,
    InvalidInput,
    JobNotFound,
    UnknownQueue,
    UnknownSchedule,
)
from holdfast.model.fleet import RunningAttempt, WorkerProcess
from holdfast.model.job import DEFAULT_QUEUE, Edit, Job, State
from holdfast.model.outage import dependency_of
from holdfast.model.policy import DEFAULT_POLICY, QueuePolicy
from holdfast.model.principal import Principal, local_principal
from holdfast.model.retry import DEFAULT_MAX_ATTEMPTS
from holdfast.model.search import EVERYTHING, MAX_PAGE, Count, Filter, Order, place_of

from .access.denials import DenialLog
from .access.engine import AuthorizedEngine
from .attribution import MAX_NAMED_IDS, Author, attribution_of, entry_of
from .bulk import BulkOperations, OperationRequest
from .explain import explain_job
from .fleet import FleetOperations
from .groups import GroupOperations
from .inputs import JobInput, check_ids_differ, new_jobs
from .keys import KeyOperations
from .outages import OutageView, outage_views
from .payload_checks import PayloadCheck, check_payloads
from .samples import PointView, SeriesView, latest, series_of_queue, with_samples
from .tenants import TenantOperations
from .views import (
    AuditView,
    ExplanationView,
    HistoryView,
    JobPage,
    JobView,
    OperationResult,
    Status,
    status_of,
)

if TYPE_CHECKING:
    from holdfast.worker.registry import Registry

T = TypeVar("T")
OnProgress = Callable[[int], None]
"""Called with the number of jobs done so far."""

_MAX_TRIES = 20


class Operations:
    """What people can do with an engine, with or without a worker beside it."""

    def __init__(
        self,
        engine: Engine,
        registry: Registry | None = None,
        *,
        default_max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        this_process: Callable[[], WorkerProcess] | None = None,
        principal: Principal | None = None,
        denials: DenialLog | None = None,
    ) -> None:
        """Without a registry no task is known here.

        ``this_process`` is the process beside the operations that runs jobs, if there is one.
        ``principal`` is who asks: every verb is checked against what they may do and reach. None
        is Holdfast itself.
        """
        acting = principal or local_principal("holdfast")
        self.keys = KeyOperations(engine, acting)
        if principal is not None:
            engine = AuthorizedEngine(engine, principal, denials or DenialLog(engine))
        self.engine: Engine = engine
        self._registry = registry
        self.default_max_attempts = default_max_attempts
        self.fleet = FleetOperations(engine, this_process)
        self.bulk = BulkOperations(engine)
        self.groups = GroupOperations(engine)
        self.tenants = TenantOperations(engine, self.keys, acting)

    # --- look --------------------------------------------------------------------------------

    async def status(self) -> Status:
        """Count everything, and say who works on it."""
        counts = await self.engine.counts()
        status = status_of(counts, [entry.process for entry in await self.fleet.live()])
        now_us = SystemClock().now_us()
        outages = outage_views(await self.engine.outages(), counts, now_us)
        status = replace(status, outages=[outage.line for outage in outages])
        return with_samples(status, await latest(self.engine, now_us))

    async def outages(self, *, ended: bool = False) -> list[OutageView]:
        """Return the outages that last; with ``ended`` before them the last ones that do not."""
        found = await self.engine.outages(ended=ended)
        counts = await self.engine.counts() if found else {}
        return outage_views(found, counts, SystemClock().now_us())

    async def series(
        self, queue: str, since_seconds: float, step_seconds: float = 0.0
    ) -> list[PointView]:
        """Return how a queue was, from so many seconds ago until now."""
        now_us = SystemClock().now_us()
        return await series_of_queue(self.engine, queue, since_seconds, step_seconds, now_us)

    async def samples(
        self, queues: Collection[str], from_us: int, to_us: int, step_seconds: float = 0.0
    ) -> list[SeriesView]:
        """Return how queues were in some time, by name; none: all that were sampled."""
        found = await self.engine.samples(
            queues, from_us=from_us, to_us=to_us, step_seconds=step_seconds
        )
        return [SeriesView.of(queue, found[queue]) for queue in sorted(found)]

    async def show(self, job_id: str, tenant: str = DEFAULT_TENANT) -> JobView:
        """Return one job, or raise ``JobNotFound``."""
        job = (await self.engine.get([job_id], tenant=tenant))[0]
        if job is None:
            raise JobNotFound(job_id)
        return JobView.of(job, await self._running_attempt(job))

    async def history(self, job_id: str, tenant: str = DEFAULT_TENANT) -> HistoryView:
        """Return one job with every attempt and note and, if it waits, why.

        Raise ``JobNotFound``.
        """
        found = (await self.engine.history([job_id], tenant=tenant))[0]
        if found is None:
            raise JobNotFound(job_id)
        waits = found.job.state in (State.PENDING, State.BLOCKED)
        explanation = await self.explain(job_id, tenant) if waits else None
        return HistoryView.of(found, await self._running_attempt(found.job), explanation)

    async def explain(self, job_id: str, tenant: str = DEFAULT_TENANT) -> ExplanationView:
        """Return why a job does not run, or that it does; raise ``JobNotFound``."""
        return await explain_job(self.engine, self.fleet, job_id, tenant)

    async def page(
        self, wanted: Filter = EVERYTHING, *, cursor: str = "", limit: int = 100, order: Order
    ) -> JobPage:
        """Return a page of the jobs that a filter finds."""
        page = await self.engine.find(wanted, cursor=cursor, limit=limit, order=order)
        previous = ""
        if cursor and page.jobs and (opposite := order.opposite) is not None:
            previous = write_cursor(place_of(page.jobs[0], opposite), wanted, opposite)
        return JobPage([JobView.of(job) for job in page.jobs], page.cursor, previous)

    async def page_before(
        self, wanted: Filter = EVERYTHING, *, cursor: str, limit: int = 100, order: Order
    ) -> JobPage:
        """Return the page that ends where another one began, by its cursor ``previous``."""
        opposite = order.opposite
        if opposite is None:
            raise InvalidInput("cursor", f"a list in the order {order.value} has no way back")
        page = await self.engine.find(wanted, cursor=cursor, limit=limit, order=opposite)
        jobs = page.jobs[::-1]
        following = write_cursor(place_of(jobs[-1], order), wanted, order) if jobs else ""
        return JobPage([JobView.of(job) for job in jobs], following, page.cursor)

    async def count(self, wanted: Filter = EVERYTHING, *, cap: int) -> Count:
        """Count the jobs that a filter finds, up to a cap."""
        return await self.engine.count(wanted, cap=cap)

    async def audit(
        self,
        wanted: AuditFilter = WHOLE_AUDIT,
        *,
        after: int = 0,
        limit: int = 100,
        newest: bool = False,
    ) -> list[AuditView]:
        """Return a page of the audit; see ``Engine.audited``."""
        found = await self.engine.audited(wanted, after=after, limit=limit, newest=newest)
        return [AuditView.of(one) for one in found]

    async def verify_audit(
        self, expected: AuditHead | None = None, on_progress: OnProgress = lambda _count: None
    ) -> tuple[AuditHead, str]:
        """Verify the chain of the audit; return its last valid head, and the problem, if any.

        With ``expected`` an earlier head must be part of it.
        """
        head, problem = await self._verify_chain(on_progress)
        if problem or expected is None or not expected.count:
            return head, problem
        found = await self.engine.audited(after=expected.count - 1, limit=1)
        if not found or found[0].number != expected.count:
            problem = f"there is no entry {expected.count}: entries were removed"
        elif found[0].hash != expected.hash:
            problem = f"entry {expected.count} does not match the given head"
        return head, problem

    async def _verify_chain(self, on_progress: OnProgress) -> tuple[AuditHead, str]:
        head, limit, unreadable = AuditHead(), MAX_PAGE, ""
        while True:
            try:
                records = await self.engine.audited(after=head.count, limit=limit)
            except AuditAltered as error:
                unreadable = f"entry {error.number} cannot be read ({error.problem})"
                limit = error.number - 1 - head.count  # those before it
                if limit > 0:
                    continue
                return head, unreadable
            for record in records:
                if not follows(head, record):
                    return head, f"entry {record.number} does not follow from the one before it"
                head = head_of(record)
            on_progress(head.count)
            if unreadable or not records:
                return head, unreadable

    # --- enqueue -----------------------------------------------------------------------------

    async def enqueue(
        self, inputs: Sequence[JobInput], on_duplicate: OnDuplicate = "refuse"
    ) -> list[Receipt]:
        """Enqueue all of these, or none; an error names the place of the wrong one."""
        jobs = new_jobs(inputs, self._registry, self.default_max_attempts)
        if on_duplicate == "refuse":
            check_ids_differ(inputs)
        return await self.engine.enqueue(jobs, on_duplicate=on_duplicate)

    def check_input(self, wanted: JobInput) -> None:
        """Raise ``InvalidInput`` if this cannot be enqueued whatever is stored."""
        new_jobs([wanted], self._registry, self.default_max_attempts)

    # --- jobs: see ``bulk`` for operations on many -------------------------------------------

    async def confirm(self, wanted: Filter, who: Author) -> OperationResult:
        """Confirm the jobs that are named, a thousand in one commit."""
        done: list[Job] = []
        for start in range(0, len(wanted.ids), MAX_PAGE):
            some = replace(wanted, ids=wanted.ids[start : start + MAX_PAGE])
            attribution = attribution_of("job.confirm", "job", some, who)
            found = await self.engine.operate(ConfirmJobs(), some, attribution, limit=MAX_PAGE)
            done += found.jobs
        return OperationResult(len(done), 0, _some_ids(done))

    async def act(self, action: AnyAction, job_id: str, tenant: str, who: Author) -> JobView:
        """Act on one job; return it as it is now.

        Raise ``JobNotFound``, ``IllegalTransition`` if it is in another state, or ``InvalidInput``
        if it is left alone until somebody says what was fixed.
        """
        wanted = Filter(ids=(job_id,), tenant=tenant)
        attribution = attribution_of(f"job.{action.name}", "job", wanted, who)
        attribution.check()
        done = await self.engine.operate(action, wanted, attribution, limit=1)
        if done.jobs:
            return JobView.of(done.jobs[0])
        job = (await self.engine.get([job_id], tenant=tenant))[0]
        if job is None:
            raise JobNotFound(job_id)
        if job.state in action.states and isinstance(action, ReplayJobs) and not action.fixed:
            raise InvalidInput("fixed", "its failure would come again: say what was fixed")
        raise IllegalTransition(job_id, job.state, f"take part in {action.name}")

    async def note(self, wanted: Filter, text: str, by: str) -> OperationResult:
        """Add a note to the history of these jobs."""
        attribution = attribution_of("job.note", "job", wanted, Author(by, text))
        done = await self.engine.operate(NoteJobs(text), wanted, attribution, limit=MAX_PAGE)
        return OperationResult(len(done.jobs), done.kept, _some_ids(done.jobs))

    async def check_payloads(self, request: OperationRequest) -> PayloadCheck:
        """Check what an edit or a retarget would leave against the tasks that are known here."""
        return await check_payloads(self.engine, self._registry, request)

    async def edit(
        self, job_id: str, tenant: str, changes: Edit, who: Author, version: int | None
    ) -> JobView:
        """Change a job that is not running; return it as it is now."""
        entry = entry_of("job.edit", "job", job_id, who, {}, tenant)
        attribution = Attribution(who.by, who.why, (entry,))
        wanted = _Ref(tenant, job_id)
        return JobView.of(await self.engine.edit(wanted, changes, attribution, version=version))

    async def reclaim(self, job_id: str, tenant: str, who: Author) -> JobView:
        """End the lease of a job now: its worker loses it."""
        job = (await self.engine.get([job_id], tenant=tenant))[0]
        if job is None:
            raise JobNotFound(job_id)
        if job.state is not State.IN_FLIGHT:
            raise IllegalTransition(job_id, job.state, "lose a lease: it has none")
        changes: dict[str, object] = {"worker": job.worker, "attempt": job.attempt}
        entry = entry_of("job.reclaim", "job", job_id, who, changes, tenant)
        attribution = Attribution(who.by, who.why, (entry,))
        found = await self.engine.reclaim(limit=1, forced=[job], attribution=attribution)
        for lost in found.lost:
            if (lost.tenant, lost.id) == (tenant, job_id):
                return JobView.of(lost)
        raise IllegalTransition(job_id, job.state, "lose a lease: it has none")

    # --- what governs work -------------------------------------------------------------------

    async def policies(self) -> Mapping[str, QueuePolicy]:
        """Return the policies of queues that have one of their own."""
        return await self.engine.policies()

    async def change_policy(
        self,
        queue: str,
        changes: Mapping[str, object],
        who: Author,
        *,
        new: bool = False,
        also_known: Iterable[str] = (),
    ) -> QueuePolicy:
        """Change some of the policy of a queue; return it as it is now.

        Raise ``UnknownQueue`` unless it has jobs, limits or a task here, is one of ``also_known``,
        or is meant to be ``new``.
        """
        if not new:
            known = {DEFAULT_QUEUE, *await self.engine.counts(), *await self.engine.policies()}
            known.update(also_known, [] if self._registry is None else self._registry.queues)
            if queue not in known:
                raise UnknownQueue(queue, known)
        entry = entry_of("queue.policy", "queue", queue, who, {})
        attribution = Attribution(who.by, who.why, (entry,))

        async def change() -> QueuePolicy:
            before = (await self.engine.policies()).get(queue, DEFAULT_POLICY)
            policy = replace(before, **changes)
            policy.check()
            await self.engine.set_policy(queue, policy, attribution, expected=before)
            return policy

        return await _with_retries(change)

    async def replace_policy(
        self, queue: str, policy: QueuePolicy | None, who: Author, *, expected: QueuePolicy
    ) -> None:
        """Give a queue this policy, None the default one; raise ``ChangedMeanwhile``."""
        if policy is not None:
            policy.check()
        entry = entry_of("queue.policy", "queue", queue, who, {})
        attribution = Attribution(who.by, who.why, (entry,))
        await self.engine.set_policy(queue, policy, attribution, expected=expected)

    async def set_flag(self, name: str, who: Author, *, on: bool | None) -> None:
        """Set a flag; None removes it."""
        entry = entry_of("flag.set", "flag", name, who, {})
        await self.engine.set_flag(name, Attribution(who.by, who.why, (entry,)), on=on)

    async def set_outage(
        self,
        dependency: str,
        who: Author,
        *,
        on: bool,
        new: bool = False,
        also_known: Iterable[str] = (),
    ) -> OutageView:
        """Start an outage, or end one; return it as it is now.

        Raise ``InvalidInput`` if no queue that has jobs, limits or a task here, or is one of
        ``also_known``, needs the dependency, unless it is meant to be ``new``.
        """
        if on and not new:
            queues = {DEFAULT_QUEUE, *await self.engine.counts(), *await self.engine.policies()}
            queues.update(also_known, [] if self._registry is None else self._registry.queues)
            known = sorted({dependency_of(queue) for queue in queues})
            if dependency not in known:
                names = ", ".join(known)
                problem = (
                    f"no queue needs {dependency!r}; there are {names}. Say new if it is meant"
                )
                raise InvalidInput("dependency", problem)
        entry = entry_of(f"outage.{'start' if on else 'end'}", "outage", dependency, who, {})
        attribution = Attribution(who.by, who.why, (entry,))
        outage = await self.engine.set_outage(dependency, attribution, on=on)
        counts = await self.engine.counts()
        return outage_views([outage], counts, SystemClock().now_us())[0]

    async def change_schedule(
        self, name: str, who: Author, change: Callable[[ScheduleState], ScheduleState]
    ) -> ScheduleState:
        """Change which ticks of a schedule are skipped; return it as it is now."""

        async def set_changed() -> ScheduleState:
            known = await self.engine.schedules()
            if name not in known:
                raise UnknownSchedule(name, known)
            before, state = known[name], change(known[name])
            entry = entry_of("schedule.set", "schedule", name, who, {})
            attribution = Attribution(who.by, who.why, (entry,))
            await self.engine.set_schedule(name, state, attribution, expected=before)
            return state

        return await _with_retries(set_changed)

    async def run_schedule(self, name: str, who: Author, now_us: int) -> Receipt:
        """Enqueue the job of a schedule now, as if it were time; raise ``UnknownSchedule``."""
        known = {} if self._registry is None else self._registry.schedules
        if name not in known:
            raise UnknownSchedule(name, known)
        job = replace(known[name].job_at(now_us), id=f"cron/{name}/{now_us}")
        entry = entry_of("schedule.run", "schedule", name, who, {"job": job.id})
        receipt = (await self.engine.enqueue([job], on_duplicate="skip"))[0]
        await self.engine.audit([entry])
        return receipt

    # --- settings ----------------------------------------------------------------------------

    async def note_reload(self, changed: Sequence[str], who: Author) -> None:
        """Record in the audit which settings are about to change, without their values."""
        entry = entry_of("config.reload", "config", "", who, {"changed": list(changed)})
        await self.engine.audit([entry])

    async def _running_attempt(self, job: Job) -> RunningAttempt | None:
        if job.state is not State.IN_FLIGHT:
            return None
        for entry in await self.fleet.live():
            for run in entry.process.running:
                if (run.job_id, run.attempt) == (job.id, job.attempt):
                    return run
        return None


async def _with_retries(change: Callable[[], Awaitable[T]]) -> T:
    """Read and change; retry a few times if another change came in between."""
    for _try in range(_MAX_TRIES - 1):
        with contextlib.suppress(ChangedMeanwhile):
            return await change()
    return await change()


def created(receipts: Sequence[Receipt]) -> int:
    """How many of these are new jobs."""
    return sum(receipt.admission is Admission.CREATED for receipt in receipts)


class _Ref(msgspec.Struct, frozen=True):
    tenant: str
    id: str


def _some_ids(jobs: Sequence[Job]) -> list[str]:
    return [job.id for job in jobs[:MAX_NAMED_IDS]]
