"""A pool of slots that serve the same queues: claims jobs for them, runs and settles these.

One call settles finished jobs and claims the next ones. It is sent when an outcome is ready or a
slot is free, and no call is in flight. While a claim only waits for work, outcomes are sent on
their own. With a server two claims may be in flight, and outcomes beside them: each claim is then
for a part of the slots, and the next one is sent before the claimed jobs run.
"""

from __future__ import annotations

import asyncio
import contextvars
import enum
from collections import deque
from collections.abc import Callable, Hashable, Sequence

from msgspec.structs import replace

from holdfast.engines.contract import MAX_CLAIM, Claim, Engine, Renewal
from holdfast.engines.structured_log import StructuredLog
from holdfast.model import lifecycle
from holdfast.model.effects import Died
from holdfast.model.errors import (
    DurabilityLost,
    EngineClosed,
    LeaseLost,
    StorageFull,
    Unavailable,
)
from holdfast.model.job import CAP_MARGIN_SECONDS, MICROSECONDS, Job
from holdfast.model.outcome import Outcome, cancelled, release

from .attempt import Attempt
from .builtin_tasks import BY_TYPE, by_type
from .clock_jumps import ClockJumps
from .executor import Executor
from .idle_slots import IdleSlots
from .options import WorkerOptions
from .outcome_buffer import RETRY_SECONDS, OutcomeBuffer
from .registry import Registry
from .timeouts import Timeouts

log = StructuredLog("holdfast.worker")

_CHILD_START_SECONDS = 60.0
"""How long a child process may take to start and to import the application."""
_SHARE_OF_CAP = 0.75
"""For how much of the cap on processing an attempt may wait for an earlier one to end."""
LOOK_AFTER_SECONDS = 0.5
"""How long an attempt runs before it is asked whether its cancellation was requested."""
GRACE_SECONDS = 1.0
"""How long a cancelled attempt may take to end."""


class StopReason(enum.Enum):
    """Why an attempt was stopped from outside."""

    TIMEOUT = "timeout"
    LOST = "lost"
    DRAINED = "drained"
    CANCELLED = "cancelled"


class SlotPool:
    """Slots, the queues that they serve, and the attempts that they run."""

    def __init__(
        self,
        engine: Engine,
        executor: Executor,
        registry: Registry,
        *,
        worker: str,
        queues: Callable[[], Sequence[str]],
        size: int,
        options: WorkerOptions,
        observe: Callable[[Job, Outcome], None] = lambda _job, _outcome: None,
    ) -> None:
        """``observe`` takes every outcome of an attempt."""
        self.size = size
        self.options = options
        """May be replaced at any time; attempts that run keep their timeout."""
        self.running: dict[Hashable, Attempt] = {}
        self._engine = engine
        self._calls = engine.capabilities.calls_at_once
        self._executor = executor
        self._registry = registry
        self._worker = worker
        self._queues = queues
        self._observe = observe
        self._loop = asyncio.get_running_loop()
        self._ready: deque[tuple[list[Job], float]] = deque()
        """What a slot runs next: one job, or those of a batch."""
        self._slots: dict[int, asyncio.Task[None]] = {}
        self._abandoned: set[asyncio.Task[None]] = set()
        self._next_slot = 0
        self._idle = IdleSlots(self._loop)
        self._stop_reasons: dict[Hashable, StopReason] = {}
        self._timeouts = Timeouts(lambda slot: self._stop_attempt(slot, StopReason.TIMEOUT))
        self._wakeup = asyncio.Event()
        self._waiting = False
        self._buffer = OutcomeBuffer(engine, worker, self._wakeup.set)
        self._stopping = False
        self._draining = False
        self._dispatchers: list[asyncio.Task[None]] = []
        self._requested = 0  # jobs that claims in flight ask for
        self._clock_jumps = ClockJumps(self._loop.time)

    @property
    def refused(self) -> int:
        """How many outcomes were refused because their lease was lost."""
        return self._buffer.refused

    @property
    def internal(self) -> bool:
        """Whether it runs what is not a task of the user's, so that its slots do not count."""
        return False

    @property
    def busy(self) -> int:
        """How many slots run something."""
        return len(self.running)

    @property
    def abandoned(self) -> int:
        """How many attempts ignore their cancellation and run on without a slot."""
        return len(self._abandoned)

    def start(self) -> None:
        """Start to claim."""
        self.resize(self.size)
        for number in range(self._calls):
            dispatch = self._dispatch(waits=number == 0)
            self._dispatchers.append(self._loop.create_task(dispatch, name="holdfast-dispatch"))

    def resize(self, size: int) -> None:
        """Set the number of slots; surplus slots end when they become free."""
        self.size = size
        while len(self._slots) < size:
            self._add_slot()
        self._idle.wake_all()
        self._wakeup.set()

    def drain(self) -> None:
        """Stop claiming; running attempts continue, jobs without a slot are released."""
        self._draining = True
        for job in self._take_ready():
            self._add_outcome(release(job))

    def resume(self) -> None:
        """Claim again."""
        self._draining = False
        self._wakeup.set()

    async def heartbeat(self, *, everything: bool = False) -> None:
        """Renew leases that are due; stop attempts that have lost theirs."""
        now = self._loop.time()
        lease_seconds = self.options.lease_seconds
        everything = self._clock_jumps.take() or everything
        held: list[tuple[Hashable, Attempt]] = []
        for slot, attempt in list(self.running.items()):
            if everything or attempt.lease_ends - now < lease_seconds * 2 / 3:
                held.append((slot, attempt))
        if not held:
            return
        try:
            answers = await self._engine.extend(
                [
                    replace(attempt.job, max_processing_seconds=self._cap_seconds(attempt))
                    for _slot, attempt in held
                ],
                lease_seconds=lease_seconds,
            )
        except (Unavailable, StorageFull) as error:
            # Outcome unknown: run on until the known lease ends.
            log.emit("worker.heartbeat_failed", worker=self._worker, running=len(held), error=error)
            answers = [Renewal(_until_us(attempt)) for _slot, attempt in held]
        for (slot, attempt), answer in zip(held, answers, strict=True):
            if self.running.get(slot) is not attempt:
                continue
            if isinstance(answer, LeaseLost):
                self._stop_attempt(slot, StopReason.LOST)
                continue
            claimed_at = answer.lease_until_us / MICROSECONDS - lease_seconds
            self._clock_jumps.observe(claimed_at, lease_seconds)
            # The engine's clock may have jumped: by ours the lease lasts no longer than from now.
            ends = local_end(attempt.job, answer.lease_until_us, attempt.claim_sent)
            attempt.lease_ends = min(ends, now + lease_seconds)
            if attempt.lease_ends <= self._loop.time():
                self._stop_attempt(slot, StopReason.LOST)
            elif answer.stop_requested:
                self._stop_attempt(slot, StopReason.CANCELLED)

    async def look_for_cancellations(self) -> None:
        """Stop attempts whose cancellation was requested; a heartbeat may be long in coming."""
        now = self._loop.time()
        held = [
            (slot, attempt)
            for slot, attempt in list(self.running.items())
            if now - attempt.started >= LOOK_AFTER_SECONDS and slot not in self._stop_reasons
        ]
        if not held:
            return
        try:
            answers = await self._engine.leases([attempt.job for _slot, attempt in held])
        except Unavailable:
            return  # the heartbeats tell of it
        for (slot, attempt), answer in zip(held, answers, strict=True):
            if self.running.get(slot) is not attempt:
                continue
            if isinstance(answer, LeaseLost):
                self._stop_attempt(slot, StopReason.LOST)
            elif answer.stop_requested:
                self._stop_attempt(slot, StopReason.CANCELLED)

    def has_overdue(self) -> bool:
        """Whether a running attempt's lease has ended by our clock and can still be renewed."""
        now = self._loop.time()
        return any(
            attempt.lease_ends <= now
            for slot, attempt in self.running.items()
            if slot not in self._stop_reasons
        )

    async def stop(self, drain_seconds: float) -> None:
        """Stop claiming, wait for running attempts, release the rest, settle everything."""
        self._stopping = True
        give_up = self._loop.time() + drain_seconds
        self._buffer.add(release(job) for job in self._take_ready())
        self._wakeup.set()
        if self._dispatchers:
            if self._waiting:
                self._dispatchers[0].cancel()  # a claim that only waits settles nothing
            await asyncio.wait(self._dispatchers)
        await self._wait_for_running(drain_seconds)
        for slot in list(self.running):
            self._stop_attempt(slot, StopReason.DRAINED)
        await self._wait_for_running(GRACE_SECONDS)
        # Attempts that ignore their cancellation are released while they run.
        self._buffer.add(release(attempt.job) for attempt in self.running.values())
        self.running.clear()
        for task in self._slots.values():
            task.cancel()
        self._timeouts.close()
        await self._buffer.flush_until(give_up)

    # --- claim and settle --------------------------------------------------------------------

    async def _dispatch(self, *, waits: bool) -> None:
        """Call the engine, one call after another; with ``waits``, claims may wait for work."""
        while not self._stopping:
            self._wakeup.clear()
            demand = 0 if self._draining else self._demand()
            if not self._should_call(demand, waits=waits):
                await self._wakeup.wait()
                continue
            outcomes: list[Outcome] = []
            try:
                if demand <= 0:
                    await self._buffer.flush()
                else:
                    outcomes = self._buffer.take()
                    await self._claim(demand, outcomes)
            except (EngineClosed, DurabilityLost) as error:
                log.emit("worker.stopped_claiming", worker=self._worker, error=error)
                return
            except Exception as error:  # noqa: BLE001 - logged, and retried
                self._buffer.put_back(outcomes)
                log.emit("worker.claim_failed", worker=self._worker, error=error)
                if outcomes and not isinstance(error, Unavailable | StorageFull):
                    # Too large for one call, or an outcome is invalid: settle without a claim.
                    await self._buffer.try_flush()
                if self._buffer or not outcomes:
                    await asyncio.sleep(RETRY_SECONDS)

    def _should_call(self, demand: int, *, waits: bool) -> bool:
        claims = demand > 0 and waits
        if self._buffer.flushing:
            return claims and self._calls > 1
        return claims or bool(self._buffer)

    def _demand(self) -> int:
        """Return how many jobs the next claim may take."""
        free = self.size - len(self.running) - len(self._ready) - self._requested
        return free if self._calls == 1 else min(free, -(-self.size // self._calls))

    async def _claim(self, demand: int, outcomes: list[Outcome]) -> None:
        sent = self._loop.time()
        limit = min(demand, self.options.batch_size or MAX_CLAIM, MAX_CLAIM)
        waits = not outcomes
        if waits:
            self._waiting = True
        self._requested += demand
        try:
            claim = await self._request(limit, outcomes)
        finally:
            self._requested -= demand
            if waits:
                self._waiting = False
            self._wakeup.set()  # another dispatcher may find free slots now
        self._buffer.count_refused(claim.settled)
        if not claim.jobs:
            return
        if self._stopping or self._draining:
            self._buffer.add(release(job) for job in claim.jobs)
            return
        self._clock_jumps.observe(
            claim.jobs[0].claimed_at_us / MICROSECONDS, self.options.lease_seconds
        )
        self._accept(claim.jobs, sent)
        if len(claim.jobs) == limit and self._demand() > 0:
            # There is more: send the next claim first, so that the store works while these run.
            self._loop.call_soon(self._idle.wake_one)
        else:
            self._idle.wake_one()

    async def _request(self, limit: int, outcomes: list[Outcome]) -> Claim:
        return await self._engine.claim(
            queues=self._queues(),
            tasks=self._registry.single_tasks,
            worker=self._worker,
            limit=limit,
            lease_seconds=self.options.lease_seconds,
            wait_seconds=0.0 if outcomes else self.options.poll_interval_seconds,
            settle=outcomes,
        )

    def _accept(self, jobs: Sequence[Job], sent: float) -> None:
        """Take jobs that were claimed; the claim was sent then."""
        self._ready.extend(([job], sent) for job in jobs)

    def _take_ready(self) -> list[Job]:
        """Remove and return the jobs that no slot runs yet."""
        ready, self._ready = self._ready, deque()
        return [job for jobs, _sent in ready for job in jobs]

    def _add_outcome(self, outcome: Outcome) -> None:
        self._buffer.add([outcome])
        if self._waiting:
            self._buffer.start_flush()
        self._wakeup.set()

    # --- slots -------------------------------------------------------------------------------

    def _add_slot(self) -> None:
        slot = self._next_slot
        self._next_slot += 1
        # A context of its own: context variables must not leak into the next pool.
        task = self._loop.create_task(self._serve(slot), context=contextvars.Context())
        self._slots[slot] = task

    async def _serve(self, slot: int) -> None:
        clean, myself = contextvars.copy_context(), _current_task()
        while slot in self._slots and len(self._slots) <= self.size and not self._must_exit():
            if not self._ready:
                await self._idle.wait()
                continue
            jobs, sent = self._ready.popleft()
            if self._ready:
                self._idle.wake_one()
            try:
                await self._run(slot, jobs, sent, myself)
            except Exception as error:  # noqa: BLE001 - a bug of ours: the slot must go on
                log.emit("worker.slot_failed", about=jobs[0], foreign=error)
            if contextvars.copy_context() != clean:
                break  # the task changed its context: a new slot takes over
        if self._slots.pop(slot, None) is not None and not self._stopping:
            self.resize(self.size)

    async def _run(
        self, slot: int, jobs: list[Job], sent: float, myself: asyncio.Task[object]
    ) -> None:
        [job] = jobs
        task = self._registry.tasks[job.task]
        if job.task == BY_TYPE:
            task, payload = by_type(self._registry, job.payload)
            job = replace(job, payload=payload, task=task.name)
        timeout_seconds = task.timeout_seconds or self.options.task_timeout_seconds
        attempt = Attempt(job, task, timeout_seconds, sent, self._loop.time)
        attempt.lease_ends = local_end(job, job.lease_until_us, sent)
        attempt.waits = self._executor.still_runs(attempt)
        self.running[slot] = attempt
        self._timeouts.set(slot, attempt.started + self._limit_seconds(attempt))
        outcome: Outcome | None
        try:
            if attempt.waits:
                outcome = await self._wait_for_thread(attempt)
            else:
                outcome = await self._executor.run(attempt, self._child_started)
        except asyncio.CancelledError as error:
            outcome = self._after_cancel(attempt, slot, error)
        finally:
            self._timeouts.remove(slot)
            held = self.running.pop(slot, None)
            self._stop_reasons.pop(slot, None)
        while myself.cancelling():
            myself.uncancel()  # the attempt was cancelled, not the slot
        if held is None:
            return  # it was released or abandoned meanwhile
        if outcome is None:
            self._wakeup.set()
        else:
            self._observe(job, outcome)
            self._conclude(job, outcome)

    def _cap_seconds(self, attempt: Attempt) -> float:
        """Return how long the job may stay claimed."""
        cap_seconds = attempt.job.max_processing_seconds or self.options.max_processing_seconds
        return cap_seconds or (attempt.timeout_seconds or 0.0) + CAP_MARGIN_SECONDS

    def _limit_seconds(self, attempt: Attempt) -> float:
        """Return how long an attempt may take from now, with what comes before its start."""
        timeout_seconds = attempt.timeout_seconds or 0.0
        if attempt.waits:
            return _SHARE_OF_CAP * self._cap_seconds(attempt)
        if self._executor.in_child(attempt):
            return timeout_seconds + _CHILD_START_SECONDS
        return timeout_seconds

    async def _wait_for_thread(self, attempt: Attempt) -> Outcome:
        """Wait until the thread that an earlier attempt left behind returns; then release the job.

        So it is claimed again, and has its whole time from then on.
        """
        log.emit("worker.waits_for_thread", about=attempt.job)
        await self._executor.earlier_returned(attempt)
        return release(attempt.job)

    def _child_started(self, attempt: Attempt) -> None:
        """Start the timeout now: starting the child process does not count."""
        attempt.started = self._loop.time()
        for slot, running in self.running.items():
            if running is attempt and slot not in self._stop_reasons:
                self._timeouts.set(slot, attempt.started + (attempt.timeout_seconds or 0.0))

    def _conclude(self, job: Job, outcome: Outcome) -> None:
        # An attempt that makes the job dead is logged as that, once, when it is recorded.
        dies = isinstance(lifecycle.settle(job, outcome, 0), Died)
        if outcome.failure is not None and not dies:
            log.emit(
                "job.failed",
                about=job,
                error_reason=outcome.failure.error_reason,
                failure_class=outcome.failure.failure_class.value,
                outcome=outcome.kind.value,
            )
        self._add_outcome(outcome)

    def _after_cancel(
        self, attempt: Attempt, slot: int, error: asyncio.CancelledError
    ) -> Outcome | None:
        reason = self._stop_reasons.get(slot)
        if reason is None:
            if slot not in self.running or self._loop_shuts_down():
                raise error  # the slot itself was cancelled
            return self._executor.failed(attempt, error)  # the task cancelled itself
        return self._stopped_outcome(reason, attempt)

    def _stopped_outcome(self, reason: StopReason, attempt: Attempt) -> Outcome | None:
        if reason is StopReason.TIMEOUT:
            seconds = attempt.timeout_seconds or 0.0
            error = TimeoutError(f"the attempt exceeded its time-out of {seconds:g} s")
            if attempt.waits:
                error = TimeoutError("an earlier run that timed out still runs in this process")
            return self._executor.failed(attempt, error)
        if reason is StopReason.CANCELLED:
            return cancelled(attempt.job)
        return release(attempt.job) if reason is StopReason.DRAINED else None

    def _must_exit(self) -> bool:
        return self._stopping or self._loop_shuts_down()

    def _loop_shuts_down(self) -> bool:
        """Whether the event loop is being shut down without a call of ``stop``."""
        if self._stopping:
            return False  # ``stop`` has cancelled the waiting claim
        return bool(self._dispatchers) and self._dispatchers[0].cancelling() > 0

    def _stop_attempt(self, slot: Hashable, reason: StopReason) -> None:
        if not isinstance(slot, int):
            return
        task = self._slots.get(slot)
        if task is not None and slot in self.running and slot not in self._stop_reasons:
            self._stop_reasons[slot] = reason
            task.cancel()
            if reason is not StopReason.DRAINED:
                self._loop.call_later(GRACE_SECONDS, self._abandon, slot, self.running[slot])

    def _abandon(self, slot: int, attempt: Attempt) -> None:
        """Replace the slot of an attempt that ignores its cancellation."""
        if self.running.get(slot) is not attempt:
            return
        job = attempt.job
        log.emit("worker.task_abandoned", about=job)
        del self.running[slot]
        task = self._slots.pop(slot)
        self._abandoned.add(task)
        task.add_done_callback(self._abandoned.discard)
        outcome = self._stopped_outcome(self._stop_reasons.pop(slot), attempt)
        if outcome is not None:
            self._observe(job, outcome)
            self._conclude(job, outcome)
        if not self._stopping:
            self.resize(self.size)

    async def _wait_for_running(self, seconds: float) -> None:
        give_up = self._loop.time() + seconds
        while self.running and (left := give_up - self._loop.time()) > 0:
            self._wakeup.clear()  # before the flush: the last attempt may end during it
            if not self._buffer.flushing:
                await self._buffer.try_flush()
            try:
                async with asyncio.timeout(left):
                    await self._wakeup.wait()
            except TimeoutError:
                return


def local_end(job: Job, until_us: int, claim_sent: float) -> float:
    """Return when a lease ends by our clock, counted from when the claim was sent."""
    return claim_sent + (until_us - job.claimed_at_us) / MICROSECONDS


def _until_us(attempt: Attempt) -> int:
    job = attempt.job
    return job.claimed_at_us + int((attempt.lease_ends - attempt.claim_sent) * MICROSECONDS)


def _current_task() -> asyncio.Task[object]:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a slot runs in a task")
    return task
