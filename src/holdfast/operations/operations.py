"""Everything that people do: the command line, HTTP and the console all go through here.

Every change names who does it and why, and its audit entry is committed with it. Payloads are never
part of the audit.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.engines.contract import Admission, Engine, OnDuplicate, Receipt
from holdfast.model.access import DEFAULT_TENANT
from holdfast.model.actions import AnyAction, NoteJobs, ReplayJobs
from holdfast.model.audit import Attribution, AuditHead, follows, head_of
from holdfast.model.effects import ScheduleState
from holdfast.model.errors import (
    ChangedMeanwhile,
    IllegalTransition,
    InvalidInput,
    JobNotFound,
    UnknownSchedule,
)
from holdfast.model.failure import FailureClass
from holdfast.model.job import Edit, Job, State
from holdfast.model.policy import DEFAULT_POLICY, QueuePolicy, Rate
from holdfast.model.search import EVERYTHING, MAX_PAGE, Filter

from .attribution import MAX_NAMED_IDS, Author, attribution_of, entry_of
from .inputs import JobInput, new_jobs
from .views import (
    AuditView,
    GroupView,
    HistoryView,
    JobPage,
    JobView,
    OperationPreview,
    OperationResult,
    ProcessSlots,
    RunningAttempt,
    Status,
    WorkerView,
    status_of,
)

if TYPE_CHECKING:
    from holdfast.worker.registry import Registry

T = TypeVar("T")
OnProgress = Callable[[int], None]
"""Called with the number of jobs done so far."""

CHUNK = 1_000
"""How many jobs one commit of a long operation changes."""
_MAX_TRIES = 20


class ReplayPace(msgspec.Struct, frozen=True):
    """The most jobs per commit, and the pause between commits."""

    at_once: int = CHUNK
    pause_seconds: float = 0.0

    @classmethod
    def of(cls, rate: Rate) -> ReplayPace:
        """Return the pace for this rate: about one commit per second."""
        each_seconds = rate.per_seconds / rate.count
        at_once = min(CHUNK, max(1, round(1 / each_seconds)))
        return cls(at_once, at_once * each_seconds)


class WorkerControl(Protocol):
    """The worker beside the operations: of one process, or of a daemon."""

    @property
    def slots(self) -> Mapping[str, int]:
        """The number of slots in each process, by the queue that they serve."""

    @property
    def processes(self) -> Mapping[str, ProcessSlots | None]:
        """The slots of each process by its number; None: it has not reported yet."""

    @property
    def draining(self) -> bool:
        """Whether it claims no more."""

    def running(self) -> list[RunningAttempt]:
        """Return the running attempts."""

    def check_resize(self, slots: int, queue: str = "") -> None:
        """Raise ``InvalidInput`` if there cannot be this many slots."""

    def resize(self, slots: int, queue: str = "") -> None:
        """Set the number of slots in each process."""

    def drain(self) -> None:
        """Stop claiming."""

    def resume(self) -> None:
        """Claim again."""


class Operations:
    """What people can do with an engine, with or without a worker beside it."""

    def __init__(
        self,
        engine: Engine,
        registry: Registry | None = None,
        worker: WorkerControl | None = None,
        *,
        default_max_attempts: int = 3,
        totals: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        """Without a registry no task is known here."""
        self.engine = engine
        self._registry = registry
        self._worker = worker
        self.default_max_attempts = default_max_attempts
        self._totals = totals

    # --- look --------------------------------------------------------------------------------

    async def status(self) -> Status:
        """Count everything."""
        counts = await self.engine.counts()
        if self._worker is None:
            return status_of(counts)
        return status_of(
            counts,
            self._worker.running(),
            self._worker.slots,
            self._worker.processes,
            self._totals(),
            [] if self._registry is None else self._registry.tasks,
            draining=self._worker.draining,
        )

    async def show(self, job_id: str, tenant: str = DEFAULT_TENANT) -> JobView:
        """Return one job, or raise ``JobNotFound``."""
        job = (await self.engine.get([job_id], tenant=tenant))[0]
        if job is None:
            raise JobNotFound(job_id)
        return JobView.of(job, self._running_attempt(job_id))

    async def history(self, job_id: str, tenant: str = DEFAULT_TENANT) -> HistoryView:
        """Return one job with every attempt and note, or raise ``JobNotFound``."""
        found = (await self.engine.history([job_id], tenant=tenant))[0]
        if found is None:
            raise JobNotFound(job_id)
        return HistoryView.of(found, self._running_attempt(job_id))

    async def page(
        self, wanted: Filter = EVERYTHING, *, cursor: str = "", limit: int = 100, newest: bool
    ) -> JobPage:
        """Return a page of the jobs that a filter finds."""
        page = await self.engine.find(wanted, cursor=cursor, limit=limit, newest=newest)
        return JobPage([JobView.of(job) for job in page.jobs], page.cursor)

    async def groups(self, wanted: Filter = EVERYTHING) -> list[GroupView]:
        """Return the dead letters that a filter finds, in groups."""
        return [GroupView.of(group) for group in await self.engine.groups(wanted)]

    async def workers(self) -> list[WorkerView]:
        """Return every worker that holds leases, the largest number first."""
        held: defaultdict[str, list[Job]] = defaultdict(list)
        cursor = ""
        while True:
            page = await self.engine.find(
                Filter(states=(State.IN_FLIGHT,)), cursor=cursor, limit=MAX_PAGE
            )
            for job in page.jobs:
                held[job.worker].append(job)
            cursor = page.cursor
            if not cursor:
                break
        found = [WorkerView.of(worker, jobs) for worker, jobs in held.items()]
        return sorted(found, key=lambda one: (-one.leases, one.worker))

    async def audit(self, *, after: int = 0, limit: int = 100) -> list[AuditView]:
        """Return the entries of the audit after this number."""
        return [AuditView.of(one) for one in await self.engine.audited(after=after, limit=limit)]

    async def verify_audit(
        self, on_progress: OnProgress = lambda _count: None
    ) -> tuple[AuditHead, str]:
        """Verify the chain of the audit; return its last valid head, and the problem, if any."""
        head = AuditHead()
        while records := await self.engine.audited(after=head.count, limit=MAX_PAGE):
            for record in records:
                if not follows(head, record):
                    return head, f"entry {record.number} does not follow from the one before it"
                head = head_of(record)
            on_progress(head.count)
        return head, ""

    # --- enqueue -----------------------------------------------------------------------------

    async def enqueue(
        self, inputs: Sequence[JobInput], on_duplicate: OnDuplicate = "refuse"
    ) -> list[Receipt]:
        """Enqueue all of these, or none; an error names the place of the wrong one."""
        jobs = new_jobs(inputs, self._registry, self.default_max_attempts)
        return await self.engine.enqueue(jobs, on_duplicate=on_duplicate)

    # --- operate on jobs ---------------------------------------------------------------------

    async def operate(
        self,
        action: AnyAction,
        wanted: Filter,
        who: Author,
        *,
        limit: int,
        on_progress: OnProgress = lambda _count: None,
        pace: ReplayPace | None = None,
    ) -> OperationResult:
        """Apply an action to jobs, oldest first, up to this many, a thousand in one commit."""
        fixed = action.fixed if isinstance(action, ReplayJobs) else ""
        changes: dict[str, object] = {"fixed": fixed} if fixed else {}
        total = kept = 0
        ids: list[str] = []
        pace = pace or ReplayPace()
        size = min(CHUNK, pace.at_once)
        for some in _chunks(wanted, size):
            more, kept_here = True, 0
            while more and total < limit:
                if total and pace.pause_seconds:
                    await asyncio.sleep(pace.pause_seconds)
                attribution = attribution_of(f"job.{action.name}", "job", some, who, changes)
                found = await self.engine.operate(
                    action, some, attribution, limit=min(limit - total, size)
                )
                total += len(found.jobs)
                ids += _some_ids(found.jobs)[: MAX_NAMED_IDS - len(ids)]
                kept_here = found.kept
                on_progress(total)
                # Jobs that are named and done must not be named again.
                done = {job.id for job in found.jobs}
                left = tuple(one for one in some.ids if one not in done)
                more = found.more and bool(found.jobs) and bool(left or not some.ids)
                some = replace(some, ids=left)  # noqa: PLW2901
            kept += kept_here
        return OperationResult(total, kept, ids)

    async def preview(self, action: AnyAction, wanted: Filter, *, limit: int) -> OperationPreview:
        """Return what an action would change at this moment; nothing is changed."""
        asked = frozenset(wanted.states) & action.states if wanted.states else action.states
        if not asked:
            names = ", ".join(sorted(action.states))
            raise InvalidInput("status", f"this works on jobs that are {names}")
        wanted = replace(wanted, states=tuple(sorted(asked)))
        jobs: list[Job] = []
        kept, cursor = 0, ""
        if isinstance(action, ReplayJobs) and not action.fixed and not wanted.ids:
            wanted, kept = await self._without_deterministic(wanted)
        while wanted.created_to_us != 0:
            page = await self.engine.find(wanted, cursor=cursor, limit=MAX_PAGE)
            others = [job for job in page.jobs if not action.skips(job, named=False)]
            kept += len(page.jobs) - len(others)
            jobs += others
            cursor = page.cursor
            if not cursor or len(jobs) >= limit:
                break
        jobs = jobs[:limit]
        return OperationPreview(len(jobs), kept, [JobView.of(job) for job in jobs[:MAX_NAMED_IDS]])

    async def _without_deterministic(self, wanted: Filter) -> tuple[Filter, int]:
        """Return a filter without deterministic failures, and how many of those there are."""
        asked = set(wanted.classes or FailureClass)
        others = asked - {FailureClass.DETERMINISTIC}
        if others == asked:
            return wanted, 0
        wrong = replace(wanted, classes=(FailureClass.DETERMINISTIC,))
        kept = sum(group.count for group in await self.engine.groups(wrong))
        if not others:
            return replace(wanted, created_to_us=0), kept  # matches no job
        return replace(wanted, classes=tuple(sorted(others))), kept

    async def note(self, wanted: Filter, text: str, by: str) -> OperationResult:
        """Add a note to the history of these jobs."""
        attribution = attribution_of("job.note", "job", wanted, Author(by, text))
        done = await self.engine.operate(NoteJobs(text), wanted, attribution, limit=MAX_PAGE)
        return OperationResult(len(done.jobs), done.kept, _some_ids(done.jobs))

    async def edit(
        self, job_id: str, tenant: str, changes: Edit, who: Author, version: int | None
    ) -> JobView:
        """Change a job that is not running; return it as it is now."""
        named = [field for field in Edit.__struct_fields__ if getattr(changes, field) is not None]
        entry = entry_of("job.edit", "job", job_id, who, {"changed": named}, tenant)
        attribution = Attribution(who.by, who.why, (entry,))
        wanted = _Ref(tenant, job_id)
        return JobView.of(
            await self.engine.edit(wanted, changes, attribution, version=version),
            self._running_attempt(job_id),
        )

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
        self, queue: str, changes: Mapping[str, object], who: Author
    ) -> QueuePolicy:
        """Change some of the policy of a queue; return it as it is now."""
        fields = {name: msgspec.to_builtins(value) for name, value in changes.items()}
        entry = entry_of("queue.policy", "queue", queue, who, fields)
        attribution = Attribution(who.by, who.why, (entry,))

        async def change() -> QueuePolicy:
            before = (await self.engine.policies()).get(queue, DEFAULT_POLICY)
            policy = replace(before, **changes)
            policy.check()
            await self.engine.set_policy(queue, policy, attribution, expected=before)
            return policy

        return await _with_retries(change)

    async def set_flag(self, name: str, who: Author, *, on: bool | None) -> None:
        """Set a flag; None removes it."""
        entry = entry_of("flag.set", "flag", name, who, {"on": on})
        await self.engine.set_flag(name, Attribution(who.by, who.why, (entry,)), on=on)

    async def change_schedule(
        self, name: str, who: Author, change: Callable[[ScheduleState], ScheduleState]
    ) -> ScheduleState:
        """Change which ticks of a schedule are skipped; return it as it is now."""

        async def set_changed() -> ScheduleState:
            known = await self.engine.schedules()
            if name not in known:
                raise UnknownSchedule(name, known)
            before, state = known[name], change(known[name])
            changes: dict[str, object] = {
                "paused": state.paused,
                "skip_until_us": state.skip_until_us,
            }
            entry = entry_of("schedule.set", "schedule", name, who, changes)
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

    # --- workers -----------------------------------------------------------------------------

    async def resize(self, slots: int, who: Author, *, queue: str = "") -> None:
        """Change how many jobs the worker runs at once."""
        worker = self._local_worker()
        worker.check_resize(slots, queue)
        changes: dict[str, object] = {"slots": slots, "queue": queue}
        await self.engine.audit([entry_of("worker.resize", "worker", "", who, changes)])
        worker.resize(slots, queue)

    async def drain(self, who: Author, *, on: bool) -> None:
        """Make the worker stop claiming, or claim again."""
        worker = self._local_worker()
        action = "worker.drain" if on else "worker.resume"
        await self.engine.audit([entry_of(action, "worker", "", who, {})])
        if on:
            worker.drain()
        else:
            worker.resume()

    async def note_reload(self, changed: Sequence[str], who: Author) -> None:
        """Record in the audit which settings are about to change, without their values."""
        entry = entry_of("config.reload", "config", "", who, {"changed": list(changed)})
        await self.engine.audit([entry])

    def _local_worker(self) -> WorkerControl:
        if self._worker is None:
            raise InvalidInput("workers", "no worker runs here")
        return self._worker

    def _running_attempt(self, job_id: str) -> RunningAttempt | None:
        running = [] if self._worker is None else self._worker.running()
        return next((run for run in running if run.job_id == job_id), None)


async def _with_retries(change: Callable[[], Awaitable[T]]) -> T:
    """Read and change; retry a few times if another change came in between."""
    for _try in range(_MAX_TRIES - 1):
        with contextlib.suppress(ChangedMeanwhile):
            return await change()
    return await change()


def created(receipts: Sequence[Receipt]) -> int:
    """How many of these are new jobs."""
    return sum(receipt.admission is Admission.CREATED for receipt in receipts)


def _chunks(wanted: Filter, size: int) -> list[Filter]:
    """Return the filter, split if it names more jobs than one commit may change."""
    if len(wanted.ids) <= size:
        return [wanted]
    return [
        replace(wanted, ids=wanted.ids[start : start + size])
        for start in range(0, len(wanted.ids), size)
    ]


class _Ref(msgspec.Struct, frozen=True):
    tenant: str
    id: str


def _some_ids(jobs: Sequence[Job]) -> list[str]:
    return [job.id for job in jobs[:MAX_NAMED_IDS]]
