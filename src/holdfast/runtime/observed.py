"""An engine that counts: the one place where the verbs meet the metrics."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holdfast.engines.base import (
    DEFAULT_LEASE_SECONDS,
    Admission,
    Claim,
    Engine,
    OnDuplicate,
    Receipt,
    Reclaim,
)
from holdfast.engines.clock import monotonic
from holdfast.engines.passing import PassingEngine
from holdfast.model import lifecycle
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.errors import LeaseLost
from holdfast.model.job import Job, JobRef, NewJob, State
from holdfast.model.operation import Operation
from holdfast.model.outcome import Outcome, OutcomeKind

from .metrics import Metrics

_COUNTER_OF = {
    OutcomeKind.COMPLETED: "queue_jobs_completed",
    OutcomeKind.CANCELLED: "queue_jobs_cancelled",
    OutcomeKind.RETRY: "queue_jobs_retried",
    OutcomeKind.RELEASE: "queue_jobs_released",
    OutcomeKind.SNOOZE: "queue_jobs_released",
    OutcomeKind.DEAD: "queue_jobs_dead",
    OutcomeKind.LOST: "queue_jobs_retried",
}


_ENDED = {State.DEAD: "queue_jobs_dead", State.CANCELLED: "queue_jobs_cancelled"}


class ObservedEngine(PassingEngine):
    """Passes every verb on and counts what came of it."""

    def __init__(self, engine: Engine, metrics: Metrics) -> None:
        super().__init__(engine)
        self.metrics = metrics
        self._held: dict[int, tuple[Job, float]] = {}

    def held_by(self, worker: str) -> list[Job]:
        """Return what this worker has claimed here and not settled."""
        return [job for job, _since in self._held.values() if job.worker == worker]

    async def enqueue(
        self,
        jobs: Sequence[NewJob],
        *,
        caller: Caller = SYSTEM,
        on_duplicate: OnDuplicate = "refuse",
    ) -> list[Receipt]:
        """See ``Engine.enqueue``."""
        receipts = await self.engine.enqueue(jobs, caller=caller, on_duplicate=on_duplicate)
        created = self.metrics.counters["queue_jobs_created"]
        for new, receipt in zip(jobs, receipts, strict=True):
            if receipt.admission is Admission.CREATED:
                created[new.queue] += 1
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
            caller=caller,
        )
        if settle:
            self._settled(settle, claim.settled)
        if claim.jobs:
            now, held = monotonic(), self._held
            dispatched = self.metrics.counters["queue_jobs_dispatched"]
            for job in claim.jobs:
                held[job.token] = job, now
                dispatched[job.queue] += 1
        return claim

    async def settle(
        self, outcomes: Sequence[Outcome], *, caller: Caller = SYSTEM
    ) -> list[LeaseLost | None]:
        """See ``Engine.settle``."""
        answers = await self.engine.settle(outcomes, caller=caller)
        self._settled(outcomes, answers)
        return answers

    async def reclaim(
        self,
        *,
        limit: int = 1_000,
        forced: Sequence[JobRef] = (),
        operation: Operation | None = None,
        caller: Caller = SYSTEM,
    ) -> Reclaim:
        """See ``Engine.reclaim``."""
        found = await self.engine.reclaim(
            limit=limit, forced=forced, operation=operation, caller=caller
        )
        for job in found.lost:
            self._held.pop(job.token, None)
            self.metrics.count("queue_jobs_timeout", job.queue)
            self.metrics.count(_ENDED.get(job.state, "queue_jobs_retried"), job.queue)
        for job in found.expired:
            self.metrics.count("queue_jobs_dead", job.queue)
        return found

    def _settled(self, outcomes: Sequence[Outcome], answers: Sequence[LeaseLost | None]) -> None:
        now = monotonic()
        metrics = self.metrics
        for outcome, refusal in zip(outcomes, answers, strict=True):
            known = self._held.pop(outcome.token, None)
            if refusal is not None or known is None:
                continue
            job, since = known
            metrics.observe(job.queue, now - since)
            name = _COUNTER_OF[outcome.kind]
            if name == "queue_jobs_retried" and _was_last(job, outcome):
                name = "queue_jobs_dead"
            metrics.counters[name][job.queue] += 1
            if outcome.failure is not None and outcome.failure.error_reason == "timeout":
                metrics.count("queue_jobs_timeout", job.queue)


def _was_last(job: Job, outcome: Outcome) -> bool:
    """Whether a retry or a loss buried the job."""
    if lifecycle.exhausted(job):
        return True
    return outcome.kind is OutcomeKind.LOST and lifecycle.runs_alone(job)
