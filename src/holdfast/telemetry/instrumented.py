"""An engine that counts: the only place where verbs update metrics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from holdfast.engines.clock import SystemClock, monotonic
from holdfast.engines.contract import (
    DEFAULT_LEASE_SECONDS,
    AdminResult,
    Admission,
    Claim,
    Engine,
    HeldJob,
    OnDuplicate,
    Receipt,
    Reclaim,
    Renewal,
)
from holdfast.engines.outages import outage_retry_at_us
from holdfast.engines.structured_log import StructuredLog
from holdfast.model import effects as fx
from holdfast.model import lifecycle
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.actions import AnyAction, CancelJobs
from holdfast.model.audit import Attribution
from holdfast.model.errors import LeaseLost
from holdfast.model.event import EventReceipt, NewEvent
from holdfast.model.failure import Failure
from holdfast.model.fleet import WorkerCommand
from holdfast.model.job import MICROSECONDS, Job, JobRef, NewJob, State
from holdfast.model.operation import OperationStep
from holdfast.model.outage import (
    DEFAULT_OUTAGE_MAX_SECONDS,
    DependencyReport,
    Outage,
    OutageUpdate,
)
from holdfast.model.outcome import Outcome, OutcomeKind
from holdfast.model.projection import ProjectionState
from holdfast.model.record import Record
from holdfast.model.search import Filter

from .counters import Metrics
from .operation_logging import OperationLoggingEngine
from .projection_metrics import ProjectionLog

log = StructuredLog("holdfast.jobs")

_COUNTER_OF: Mapping[type[fx.Effect], str] = {
    fx.Cancelled: "cancelled",
    fx.Retried: "retried",
    fx.Lost: "retried",
    fx.Released: "released",
    fx.Snoozed: "released",
}
_STATE_AFTER_LOSS = {fx.Died: State.DEAD, fx.Cancelled: State.CANCELLED}
_COMPLETED = OutcomeKind.COMPLETED


class InstrumentedEngine(OperationLoggingEngine):
    """Forwards every verb and counts its results."""

    def __init__(
        self,
        engine: Engine,
        metrics: Metrics,
        held: Iterable[Job] = (),
        now_us: int = 0,
        *,
        outage_max_seconds: float = DEFAULT_OUTAGE_MAX_SECONDS,
    ) -> None:
        """Take the jobs that workers ``held`` across a restart."""
        super().__init__(engine)
        self._out: dict[str, Outage] = {}
        self._outage_max_seconds = outage_max_seconds
        self.metrics = metrics
        engine.read_models.on_settled = self._settled
        self.on_command: Callable[[], None] = lambda: None
        """Called after a command to processes was sent: it may be for this one."""
        metrics.operations_running = lambda: self.operation_log.running
        self.projection_log = ProjectionLog(metrics)
        metrics.projections = lambda: self.projection_log.states
        now = monotonic()
        self._held: dict[int, tuple[Job, float]] = {
            job.token: (job, now - max(0, now_us - job.claimed_at_us) / MICROSECONDS)
            for job in held
        }

    async def projections(self) -> Mapping[str, ProjectionState]:
        """See ``Engine.projections``."""
        found = await self.engine.projections()
        self.projection_log.listed(found)
        return found

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
        self.projection_log.changed(expected, state, await self.engine.now_us())

    def held_by(self, worker: str) -> list[Job]:
        """Return the unsettled jobs of this worker."""
        return [job for job, _seconds in self.held_for(worker)]

    def held_for(self, *workers: str) -> list[tuple[Job, float]]:
        """Return the unsettled jobs of these workers, and for how many seconds each is held."""
        now = monotonic()
        return [(job, now - since) for job, since in self._held.values() if job.worker in workers]

    async def enqueue(
        self,
        jobs: Sequence[NewJob],
        *,
        caller: Caller = SYSTEM,
        on_duplicate: OnDuplicate = "refuse",
        once: Record | None = None,
    ) -> list[Receipt]:
        """See ``Engine.enqueue``."""
        receipts = await self.engine.enqueue(
            jobs, caller=caller, on_duplicate=on_duplicate, once=once
        )
        created, queue = 0, ""
        for new, receipt in zip(jobs, receipts, strict=True):
            if receipt.admission is Admission.CREATED:
                if new.queue != queue:
                    if created:
                        self.metrics.queue(queue).created += created
                    created, queue = 0, new.queue
                created += 1
        if created:
            self.metrics.queue(queue).created += created
        if log.enabled_for("job.enqueued"):
            self._log_enqueued(jobs, receipts)
        return receipts

    async def append(
        self,
        events: Sequence[NewEvent],
        *,
        caller: Caller = SYSTEM,
        once: Record | None = None,
    ) -> list[EventReceipt]:
        """See ``Engine.append``."""
        receipts = await self.engine.append(events, caller=caller, once=once)
        self.metrics.events_appended += sum(receipt.created for receipt in receipts)
        return receipts

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
        claim = await self.engine.claim(
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
        if settle:
            self._settled(settle, claim.settled)
        if claim.jobs:
            self._claimed(claim.jobs)
        self.metrics.claims["jobs" if claim.jobs else "empty"] += 1
        return claim

    async def settle(
        self, outcomes: Sequence[Outcome], *, caller: Caller = SYSTEM
    ) -> list[LeaseLost | None]:
        """See ``Engine.settle``."""
        answers = await self.engine.settle(outcomes, caller=caller)
        self._settled(outcomes, answers)
        return answers

    async def extend(
        self, held: Sequence[HeldJob], *, lease_seconds: float, caller: Caller = SYSTEM
    ) -> list[Renewal | LeaseLost]:
        """See ``Engine.extend``."""
        answers = await self.engine.extend(held, lease_seconds=lease_seconds, caller=caller)
        refused = sum(isinstance(answer, LeaseLost) for answer in answers)
        self.metrics.late["extend"] += refused
        return answers

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
        found = await self.engine.reclaim(
            limit=limit,
            forced=forced,
            attribution=attribution,
            every_seconds=every_seconds,
            caller=caller,
        )
        named = {(ref.tenant, ref.id) for ref in forced}
        for job in found.lost:
            if (job.tenant, job.id) not in named:
                self.metrics.queue(job.queue).timeout += 1
        self.count_lost(found.lost)
        for job in found.expired:
            self._died(job, job.failure, job.losses)
        return found

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
        command_id = await super().command(
            command, process_ids, attribution, ttl_seconds=ttl_seconds, caller=caller
        )
        self.on_command()
        return command_id

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
        done = await super().operate(action, wanted, attribution, limit=limit, caller=caller)
        if isinstance(action, CancelJobs):
            self._cancelled(done.jobs)
        return done

    async def advance_operation(self, operation_id: str) -> OperationStep:
        """See ``Engine.advance_operation``."""
        step = await super().advance_operation(operation_id)
        if step.acted:
            self.metrics.operation_members[step.operation.action.name] += step.acted
        for queue, count in step.cancelled.items():
            self.metrics.queue(queue).cancelled += count
        return step

    async def outages(self, *, ended: bool = False) -> list[Outage]:
        """See ``Engine.outages``."""
        found = await self.engine.outages(ended=ended)
        self._know(found)
        return found

    async def report_outage(self, reports: Sequence[DependencyReport] = ()) -> OutageUpdate:
        """See ``Engine.report_outage``."""
        update = await self.engine.report_outage(reports)
        self._know(update.outages)
        return update

    def _know(self, outages: Iterable[Outage]) -> None:
        """Remember the outages that last: their failures kill nothing. Workers ask every second."""
        self._out = {outage.dependency: outage for outage in outages if outage.active}

    # --- count -------------------------------------------------------------------------------

    def count_lost(self, jobs: Iterable[Job]) -> None:
        """Count jobs, in their new state, whose lease ended without an outcome."""
        for job in jobs:
            held, _since = self._held.pop(job.token, (job, 0.0))
            numbers, failure = self.metrics.queue(job.queue), job.failure
            if failure is not None:
                self.metrics.attempt_failed(job.queue, job.task, failure.error_reason)
            self._lost(held, failure, job.losses, job.state)
            if job.state is State.DEAD:
                self._died(held, failure, job.losses)
            elif job.state is State.CANCELLED:
                numbers.cancelled += 1
            else:
                numbers.retried += 1

    def _cancelled(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            known = self._held.get(job.token) if job.state is State.IN_FLIGHT else None
            if known is not None:
                self._held[job.token] = replace(known[0], stop_requested=True), known[1]
            elif job.state is State.CANCELLED:
                self.metrics.queue(job.queue).cancelled += 1

    def _claimed(self, jobs: Sequence[Job]) -> None:
        now, held, queue = monotonic(), self._held, ""
        numbers = self.metrics.queue(jobs[0].queue)
        for job in jobs:
            held[job.token] = job, now
            if job.queue != queue:
                queue = job.queue
                numbers = self.metrics.queue(queue)
            numbers.dispatched += 1
        if log.enabled_for("job.dispatched"):
            for job in jobs:
                log.emit("job.dispatched", about=job)

    def _settled(self, outcomes: Sequence[Outcome], answers: Sequence[LeaseLost | None]) -> None:
        now, take, queue = monotonic(), self._held.pop, None
        numbers, logged = self.metrics.queue, log.enabled_for("job.settled")
        for outcome, refusal in zip(outcomes, answers, strict=True):
            if refusal is not None:
                self.metrics.late["settle"] += 1
                continue
            known = take(outcome.token, None)
            if known is None:
                continue  # claimed by another process
            job, since = known
            if queue is None or job.queue != queue[0]:
                queue = job.queue, numbers(job.queue)
            queue[1].durations.observe(now - since)
            ending = outcome.kind.value
            if outcome.kind is _COMPLETED:
                queue[1].completed += 1
            elif isinstance(self._ended(job, outcome), fx.Died):
                ending = OutcomeKind.DEAD.value  # a retry past the budget
            if logged:
                log.emit(
                    "job.settled",
                    about=job,
                    outcome=ending,
                    seconds=round(now - since, 6),
                )

    def _ended(self, job: Job, outcome: Outcome) -> fx.Effect:
        """Count the end of an attempt that did not complete; return what comes of it."""
        now_us = SystemClock().now_us()
        retry_at_us = outage_retry_at_us(self._out, job, outcome, now_us, self._outage_max_seconds)
        effect = lifecycle.settle(job, outcome, 0, retry_at_us)
        numbers, failure = self.metrics.queue(job.queue), outcome.failure
        if failure is not None:
            self.metrics.attempt_failed(job.queue, job.task, failure.error_reason)
            numbers.timeout += failure.error_reason == "timeout"
        if outcome.kind is OutcomeKind.LOST:
            state = _STATE_AFTER_LOSS.get(type(effect), State.PENDING)
            self._lost(job, failure, job.losses + 1, state)
        if isinstance(effect, fx.Died):
            self._died(job, effect.failure, effect.losses)
        else:
            name = _COUNTER_OF[type(effect)]
            setattr(numbers, name, getattr(numbers, name) + 1)
        return effect

    def _lost(self, job: Job, failure: Failure | None, losses: int, state: State) -> None:
        self.metrics.queue(job.queue).lost += 1
        log.emit(
            "job.lease_lost",
            about=job,
            error_reason=None if failure is None else failure.error_reason,
            losses=losses,
            state=state.value,
        )

    def _died(self, job: Job, failure: Failure | None, losses: int) -> None:
        reason = "unexpected" if failure is None else failure.error_reason
        self.metrics.job_died(job.queue, reason)
        log.emit(
            "job.dead",
            about=job,
            error_reason=reason,
            failure_class=None if failure is None else failure.failure_class.value,
            losses=losses,
        )

    @staticmethod
    def _log_enqueued(jobs: Sequence[NewJob], receipts: Sequence[Receipt]) -> None:
        for new, receipt in zip(jobs, receipts, strict=True):
            if receipt.admission is Admission.CREATED:
                log.emit(
                    "job.enqueued",
                    job=receipt.id,
                    task=new.task,
                    queue=new.queue,
                    tenant=new.tenant,
                )
