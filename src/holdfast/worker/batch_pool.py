"""The slots of one batch task: each runs a batch, with a lease for each item."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence

from holdfast.engines.contract import Claim, Engine
from holdfast.engines.structured_log import StructuredLog
from holdfast.model.failure import FailureClass
from holdfast.model.job import Job
from holdfast.model.outcome import Outcome, OutcomeKind, release

from .attempt import Attempt
from .batch_call import BatchCall, CallResult, Settled, key_of
from .executor import Executor
from .options import WorkerOptions
from .registry import Registry, TaskSpec
from .slot_pool import GRACE_SECONDS, SlotPool, StopReason, local_end

log = StructuredLog("holdfast.worker")

BATCHES_AT_ONCE = 2
"""How many batches of one task a worker process runs at once: one is claimed while one runs."""


class RunningBatch:
    """A batch that a slot runs."""

    def __init__(self, members: list[Attempt], calls: BatchCall) -> None:
        self.members = members
        self.calls = calls


class BatchPool(SlotPool):
    """Claims the jobs of a batch task, as many at once as a call gets, and runs them together.

    A claim is never divided: the jobs of a key that it returns are in one batch, in order.
    """

    def __init__(
        self,
        engine: Engine,
        executor: Executor,
        registry: Registry,
        task: TaskSpec,
        *,
        worker: str,
        queues: Callable[[], Sequence[str]],
        size: int,
        options: WorkerOptions,
        observe: Callable[[Job, Outcome], None] = lambda _job, _outcome: None,
    ) -> None:
        """Serve this task in these queues."""
        super().__init__(
            engine,
            executor,
            registry,
            worker=worker,
            queues=queues,
            size=size,
            options=options,
            observe=observe,
        )
        self._task = task
        self._batch_size = task.batch
        """Smaller than the task says after a time-out, or a job that was lost."""
        self._forming: list[Job] = []
        self._forming_sent = 0.0
        self._linger: asyncio.TimerHandle | None = None
        self._batches: dict[int, RunningBatch] = {}

    @property
    def internal(self) -> bool:
        """See ``SlotPool.internal``: a projection has a slot beside those that were asked for."""
        return self._task.runner is not None

    @property
    def busy(self) -> int:
        """How many slots run a batch."""
        return len(self._batches)

    # --- claim -------------------------------------------------------------------------------

    def _demand(self) -> int:
        room = self._batch_size - len(self._forming)
        claims = -(-self._requested // self._batch_size)
        busy = len(self._batches) + len(self._ready) + bool(self._forming)
        if self.size - busy - claims > 0 or (self._forming and not claims):
            return room
        return 0

    async def _request(self, limit: int, outcomes: list[Outcome]) -> Claim:
        return await self._engine.claim(
            queues=self._queues(),
            tasks=[self._task.name],
            worker=self._worker,
            limit=limit,
            lease_seconds=self.options.lease_seconds,
            wait_seconds=0.0 if outcomes else self.options.poll_interval_seconds,
            settle=outcomes,
            chain=limit,
        )

    def _accept(self, jobs: Sequence[Job], sent: float) -> None:
        """Put the jobs into the batch that is being formed; one that must be alone is alone."""
        lost = next((job for job in jobs if job.losses), None)
        if lost is not None:
            # It may be what ends its workers, and another crash must cost no other job a loss.
            self._buffer.add(release(job) for job in jobs if job is not lost)
            self._close_batch()
            self._batch_size = 1
            jobs = [lost]
        together: list[Job] = []
        for job in jobs:
            self.running[_name(job)] = self._attempt(job, sent)
            if _runs_unbatched(job):
                self._ready.append(([job], sent))
            else:
                together.append(job)
        if not together:
            return
        if len(self._forming) + len(together) > self._batch_size:
            self._close_batch()
        if not self._forming:
            self._forming_sent = sent
        self._forming += together
        if len(self._forming) >= self._batch_size or not self._task.linger_seconds:
            self._close_batch()
        elif self._linger is None:
            self._linger = self._loop.call_later(self._task.linger_seconds, self._close_batch)

    def _close_batch(self) -> None:
        """Let a slot run the batch that is being formed."""
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        if self._forming:
            self._ready.append((self._forming, self._forming_sent))
            self._forming = []
            self._idle.wake_one()

    def _take_ready(self) -> list[Job]:
        """Remove and return the jobs that no slot runs yet, of the batch that is formed too."""
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        jobs = [*super()._take_ready(), *self._forming]
        self._forming = []
        # One whose lease was lost meanwhile is not ours to release.
        return [job for job in jobs if self.running.pop(_name(job), None) is not None]

    def _attempt(self, job: Job, sent: float) -> Attempt:
        timeout_seconds = self._task.timeout_seconds or self.options.task_timeout_seconds
        attempt = Attempt(job, self._task, timeout_seconds, sent, self._loop.time)
        attempt.lease_ends = local_end(job, job.lease_until_us, sent)
        return attempt

    # --- run ---------------------------------------------------------------------------------

    async def _run(
        self, slot: int, jobs: list[Job], sent: float, myself: asyncio.Task[object]
    ) -> None:
        del sent
        members = [found for job in jobs if (found := self.running.get(_name(job))) is not None]
        if not members:
            return
        ends = members[0].claim_sent + self._cap_seconds(members[0])
        calls = BatchCall(
            members,
            lambda part: self._call(slot, part),
            held=lambda one: self.running.get(_name(one.job)) is one,
            in_time=lambda: self._loop.time() + self._limit_seconds(members[0]) < ends,
        )
        batch = self._batches[slot] = RunningBatch(members, calls)
        try:
            await calls.run()
            self._batch_size = min(self._task.batch, self._batch_size * 2)
        except asyncio.CancelledError as error:
            self._after_stop(slot, batch, error)
        finally:
            self._timeouts.remove(slot)
            here = self._batches.pop(slot, None) is not None
            self._stop_reasons.pop(slot, None)
        while myself.cancelling():
            myself.uncancel()  # the batch was cancelled, not the slot
        if here:
            self._conclude_all(batch)

    async def _call(self, slot: int, part: list[Attempt]) -> CallResult:
        """Call the task with these items, within its time-out."""
        waiting = [one for one in part if self._executor.still_runs(one)]
        if waiting:
            error = TimeoutError("an earlier run that timed out still runs in this process")
            failed = dict(
                zip(
                    [one.token for one in waiting],
                    self._executor.batch_failed([one.job for one in waiting], error),
                    strict=True,
                )
            )
            return [failed.get(one.token) for one in part]
        for one in part:
            one.started = self._loop.time()
        self._timeouts.set(slot, self._loop.time() + self._limit_seconds(part[0]))
        return await self._executor.run_batch(part, lambda _attempt: self._call_started(slot, part))

    def _call_started(self, slot: int, part: list[Attempt]) -> None:
        """Start the timeout now: starting the child process does not count."""
        if slot not in self._stop_reasons:
            seconds = part[0].timeout_seconds or 0.0
            self._timeouts.set(slot, self._loop.time() + seconds)

    def _after_stop(self, slot: int, batch: RunningBatch, error: asyncio.CancelledError) -> None:
        """Give an outcome to the items of a batch that was stopped, unless they have one."""
        reason = self._stop_reasons.get(slot)
        if reason is None:
            if slot not in self._batches or self._loop_shuts_down():
                raise error  # the slot itself was cancelled
            batch.calls.end(batch.members, lambda job: self._failed(job, error))
        else:
            self._end_stopped(batch, reason)

    def _end_stopped(self, batch: RunningBatch, reason: StopReason) -> None:
        if reason is StopReason.TIMEOUT:
            seconds = batch.members[0].timeout_seconds or 0.0
            error = TimeoutError(f"the batch exceeded its time-out of {seconds:g} s")
            self._batch_size = max(1, len(batch.members) // 2)
            batch.calls.end(batch.members, lambda job: self._failed(job, error))
        else:
            # If its cancellation was requested, an item that is released is cancelled.
            batch.calls.end(batch.members, release)

    def _failed(self, job: Job, error: BaseException) -> Outcome:
        return self._executor.batch_failed([job], error)[0]

    def _conclude_all(self, batch: RunningBatch) -> None:
        """Settle every item that still has its lease."""
        observed: set[bool] = set()
        gone: set[tuple[str, str, str] | None] = set()
        for one in batch.members:
            name = _name(one.job)
            self._stop_reasons.pop(name, None)
            key = key_of(one.job)
            if self.running.get(name) is not one:
                gone.add(key)  # its lease was lost, or it was released meanwhile
                continue
            del self.running[name]
            found = batch.calls.results.get(one.token) or release(one.job)
            if key is not None and key in gone and isinstance(found, Outcome):
                found = release(one.job)
            outcome = found.outcome if isinstance(found, Settled) else found
            failed = outcome.failure is not None
            if failed not in observed and outcome.kind is not OutcomeKind.RELEASE:
                observed.add(failed)  # one call says one thing about its dependency
                self._observe(one.job, outcome)
            if outcome is found:
                self._conclude(one.job, outcome)
        self._wakeup.set()

    # --- stop --------------------------------------------------------------------------------

    def _stop_attempt(self, slot: Hashable, reason: StopReason) -> None:
        """Stop a batch; or one item of it, and the batch if that was the last one."""
        if isinstance(slot, int):
            self._stop_batch(slot, reason)
            return
        attempt = self.running.get(slot)
        if attempt is None:
            return
        number = next((n for n, one in self._batches.items() if attempt in one.members), None)
        if reason is StopReason.LOST:
            del self.running[slot]
            self._stop_reasons.pop(slot, None)
        elif reason is StopReason.CANCELLED:
            self._stop_reasons[slot] = reason
        if number is None:
            return
        left = [
            name
            for one in self._batches[number].members
            if (name := _name(one.job)) in self.running
        ]
        if reason is StopReason.DRAINED or all(name in self._stop_reasons for name in left):
            self._stop_batch(number, reason)

    def _stop_batch(self, slot: int, reason: StopReason) -> None:
        task = self._slots.get(slot)
        if task is not None and slot in self._batches and slot not in self._stop_reasons:
            self._stop_reasons[slot] = reason
            task.cancel()
            if reason is not StopReason.DRAINED:
                batch = self._batches[slot]
                self._loop.call_later(GRACE_SECONDS, self._abandon_batch, slot, batch)

    def _abandon_batch(self, slot: int, batch: RunningBatch) -> None:
        """Replace the slot of a batch that ignores its cancellation."""
        if self._batches.get(slot) is not batch:
            return
        log.emit("worker.task_abandoned", about=batch.members[0].job)
        del self._batches[slot]
        task = self._slots.pop(slot)
        self._abandoned.add(task)
        task.add_done_callback(self._abandoned.discard)
        self._end_stopped(batch, self._stop_reasons.pop(slot))
        self._conclude_all(batch)
        if not self._stopping:
            self.resize(self.size)


def _name(job: Job) -> tuple[str, int]:
    return "job", job.token


def _runs_unbatched(job: Job) -> bool:
    """Whether a job may harm its neighbours: it was lost, or failed for a reason of its own."""
    failure = job.failure
    return job.losses > 0 or (
        failure is not None and failure.failure_class is not FailureClass.TRANSIENT
    )
