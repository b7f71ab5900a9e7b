"""A crew: slots that serve the same queues. It claims for them, runs, and settles.

Settling what is done and claiming what is next is one call. It goes out when an outcome is ready or
a slot is free, and nothing is in the air; while a claim only waits for work, outcomes go out by
themselves. With a server two claims may be in the air, and outcomes beside them; then each claim is
for a part of the slots, and the next one goes out before what came is run.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Hashable, Sequence

from msgspec.structs import replace

from holdfast.engines.contract import MAX_CLAIM, Engine, Renewal
from holdfast.engines.structured_log import StructuredLog
from holdfast.model.errors import (
    DurabilityLost,
    EngineClosed,
    LeaseLost,
    StorageFull,
    Unavailable,
)
from holdfast.model.job import MICROSECONDS, Job
from holdfast.model.outcome import Outcome, cancelled, release

from .attempt import Attempt
from .builtin_tasks import BY_TYPE, by_type
from .clock_jumps import ClockJumps
from .executor import Executor
from .idle_slots import IdleSlots
from .outcome_buffer import PATIENCE_SECONDS, OutcomeBuffer
from .registry import Registry
from .slot_options import SlotOptions, StopReason
from .timeouts import Timeouts

log = StructuredLog("holdfast.worker")

_CHILD_SECONDS = 60.0
"""How long a child process may take to start and to import the application."""
_GRACE_SECONDS = 1.0
"""How long an attempt that was told to end may take for it."""


class SlotPool:
    """Some slots, the queues that they serve, and what they are at."""

    def __init__(
        self,
        engine: Engine,
        executor: Executor,
        definition: Registry,
        *,
        worker: str,
        queues: Callable[[], Sequence[str]],
        size: int,
        terms: SlotOptions,
    ) -> None:
        self.size = size
        self.running: dict[Hashable, Attempt] = {}
        self._engine = engine
        self._calls = engine.capabilities.calls_at_once
        self._executor = executor
        self._definition = definition
        self._worker = worker
        self._queues = queues
        self._terms = terms
        self._loop = asyncio.get_running_loop()
        self._ready: deque[tuple[Job, float]] = deque()
        self._slots: dict[int, asyncio.Task[None]] = {}
        self._abandoned: set[asyncio.Task[None]] = set()
        self._next_slot = 0
        self._resting = IdleSlots(self._loop)
        self._ended: dict[Hashable, StopReason] = {}
        self._deadlines = Timeouts(lambda slot: self._end(slot, StopReason.TIMEOUT))
        self._stirred = asyncio.Event()
        self._waiting = False
        self._settling = OutcomeBuffer(engine, worker, self._stirred.set)
        self._stopping = False
        self._draining = False
        self._dispatchers: list[asyncio.Task[None]] = []
        self._asked = 0  # for how many slots work is on its way
        self._leaps = ClockJumps(self._loop.time, terms)

    @property
    def refused(self) -> int:
        """How many outcomes came too late."""
        return self._settling.refused

    @property
    def abandoned(self) -> int:
        """How many attempts go on without a slot because they would not end."""
        return len(self._abandoned)

    def start(self) -> None:
        """Begin to claim."""
        self.resize(self.size)
        for number in range(self._calls):
            dispatch = self._dispatch(waits=number == 0)
            self._dispatchers.append(self._loop.create_task(dispatch, name="holdfast-dispatch"))

    def resize(self, size: int) -> None:
        """Have this many slots; those too many end when they are free."""
        self.size = size
        while len(self._slots) < size:
            self._add_slot()
        self._resting.wake_all()
        self._stirred.set()

    def drain(self) -> None:
        """Claim no more; what runs goes on, and what waits for a slot here is handed back."""
        self._draining = True
        ready, self._ready = self._ready, deque()
        for job, _sent in ready:
            self._done(release(job))

    def resume(self) -> None:
        """Claim again."""
        self._draining = False
        self._stirred.set()

    async def heartbeat(self, *, everything: bool = False) -> None:
        """Renew the leases of what is running, where it is time; end what has lost its own."""
        now = self._loop.time()
        lease_seconds = self._terms.lease_seconds
        everything = self._leaps.seen() or everything
        held: list[tuple[Hashable, Attempt]] = []
        for slot, attempt in list(self.running.items()):
            if everything or attempt.lease_ends - now < lease_seconds * 2 / 3:
                held.append((slot, attempt))
        if not held:
            return
        try:
            answers = await self._engine.extend(
                [attempt.job for _slot, attempt in held], lease_seconds=lease_seconds
            )
        except (Unavailable, StorageFull) as error:
            # Unknown: go on until the lease that is known to be held runs out.
            log.emit("worker.heartbeat_failed", worker=self._worker, running=len(held), error=error)
            answers = [Renewal(_until_us(attempt)) for _slot, attempt in held]
        for (slot, attempt), answer in zip(held, answers, strict=True):
            if self.running.get(slot) is not attempt:
                continue
            if isinstance(answer, LeaseLost):
                self._end(slot, StopReason.LOST)
                continue
            self._leaps.look(answer.lease_until_us / MICROSECONDS - lease_seconds)
            # The engine's clock may have leapt meanwhile: on ours it is a lease from now at most.
            ends = _local_end(attempt.job, answer.lease_until_us, attempt.claim_sent)
            attempt.lease_ends = min(ends, now + lease_seconds)
            if attempt.lease_ends <= self._loop.time():
                self._end(slot, StopReason.LOST)
            elif answer.stop_requested:
                self._end(slot, StopReason.STOPPED)

    def has_overdue(self) -> bool:
        """Whether a lease of what is running has run out, by our clock, and can be renewed."""
        now = self._loop.time()
        return any(
            attempt.lease_ends <= now
            for slot, attempt in self.running.items()
            if slot not in self._ended
        )

    async def stop(self, drain_seconds: float) -> None:
        """Claim no more, wait for what is running, hand back the rest, settle everything."""
        self._stopping = True
        give_up = self._loop.time() + drain_seconds
        self._settling.add(release(job) for job, _sent in self._ready)
        self._ready.clear()
        self._stirred.set()
        if self._dispatchers:
            if self._waiting:
                self._dispatchers[0].cancel()  # nothing is settled by a claim that only waits
            await asyncio.wait(self._dispatchers)
        await self._wait_for_running(drain_seconds)
        for slot in list(self.running):
            self._end(slot, StopReason.DRAINED)
        await self._wait_for_running(_GRACE_SECONDS)
        # What would not even be cancelled is handed back over its head.
        self._settling.add(release(attempt.job) for attempt in self.running.values())
        self.running.clear()
        for task in self._slots.values():
            task.cancel()
        self._deadlines.close()
        await self._settling.by(give_up)

    # --- claim and settle --------------------------------------------------------------------

    async def _dispatch(self, *, waits: bool) -> None:
        """Make calls, one after another; who never waits for work only calls with outcomes."""
        while not self._stopping:
            self._stirred.clear()
            demand = 0 if self._draining else self._demand()
            if not self._may_call(demand, waits=waits):
                await self._stirred.wait()
                continue
            outcomes: list[Outcome] = []
            try:
                if demand <= 0:
                    await self._settling.all()
                else:
                    outcomes = self._settling.take()
                    await self._claim(demand, outcomes)
            except (EngineClosed, DurabilityLost) as error:
                log.emit("worker.stopped_claiming", worker=self._worker, error=error)
                return
            except Exception as error:  # noqa: BLE001 - said, and tried again
                self._settling.put_back(outcomes)
                log.emit("worker.claim_failed", worker=self._worker, error=error)
                if outcomes and not isinstance(error, Unavailable | StorageFull):
                    # Too much for one step, or one that cannot be recorded: not with a claim.
                    await self._settling.quietly()
                if self._settling or not outcomes:
                    await asyncio.sleep(PATIENCE_SECONDS)

    def _may_call(self, demand: int, *, waits: bool) -> bool:
        claims = demand > 0 and waits
        if self._settling.under_way:
            return claims and self._calls > 1
        return claims or bool(self._settling)

    def _demand(self) -> int:
        """How many jobs the next claim may take."""
        free = self.size - len(self.running) - len(self._ready) - self._asked
        return free if self._calls == 1 else min(free, -(-self.size // self._calls))

    async def _claim(self, demand: int, outcomes: list[Outcome]) -> None:
        sent = self._loop.time()
        limit = min(demand, self._terms.batch_size or MAX_CLAIM, MAX_CLAIM)
        waits = not outcomes
        if waits:
            self._waiting = True
        self._asked += demand
        try:
            claim = await self._engine.claim(
                queues=self._queues(),
                tasks=list(self._definition.tasks),
                worker=self._worker,
                limit=limit,
                lease_seconds=self._terms.lease_seconds,
                wait_seconds=self._terms.poll_interval_seconds if not outcomes else 0.0,
                settle=outcomes,
            )
        finally:
            self._asked -= demand
            if waits:
                self._waiting = False
            self._stirred.set()  # who found all slots asked for may find some free
        self._settling.count(claim.settled)
        if not claim.jobs:
            return
        if self._stopping or self._draining:
            self._settling.add(release(job) for job in claim.jobs)
            return
        self._leaps.look(claim.jobs[0].claimed_at_us / MICROSECONDS)
        self._ready.extend((job, sent) for job in claim.jobs)
        if len(claim.jobs) == limit and self._demand() > 0:
            # There is more: the next claim goes first, and the store is at it while these run.
            self._loop.call_soon(self._resting.wake_one)
        else:
            self._resting.wake_one()

    def _done(self, outcome: Outcome) -> None:
        self._settling.add([outcome])
        if self._waiting:
            self._settling.begin()
        self._stirred.set()

    # --- slots -------------------------------------------------------------------------------

    def _add_slot(self) -> None:
        slot = self._next_slot
        self._next_slot += 1
        # A context of its own: what one job leaves in it must not reach the next crew.
        task = self._loop.create_task(self._serve(slot), context=contextvars.Context())
        self._slots[slot] = task

    async def _serve(self, slot: int) -> None:
        clean, myself = contextvars.copy_context(), _current_task()
        while slot in self._slots and len(self._slots) <= self.size and not self._leaving():
            if not self._ready:
                await self._resting.rest()
                continue
            job, sent = self._ready.popleft()
            if self._ready:
                self._resting.wake_one()
            try:
                await self._run(slot, job, sent, myself)
            except Exception as error:  # noqa: BLE001 - its lease will run out
                # A bug of ours: the slot must go on.
                log.emit("worker.slot_failed", about=job, foreign=error)
            if contextvars.copy_context() != clean:
                break  # the task left something in its context: this slot has served
        if self._slots.pop(slot, None) is not None and not self._stopping:
            self.resize(self.size)

    async def _run(self, slot: int, job: Job, sent: float, myself: asyncio.Task[object]) -> None:
        task = self._definition.tasks[job.task]
        if job.task == BY_TYPE:
            task, payload = by_type(self._definition, job.payload)
            job = replace(job, payload=payload, task=task.name)
        timeout_seconds = task.timeout_seconds or self._terms.task_timeout_seconds
        attempt = Attempt(job, task, timeout_seconds, sent, self._loop.time)
        attempt.lease_ends = _local_end(job, job.lease_until_us, sent)
        self.running[slot] = attempt
        patience_seconds = timeout_seconds
        if self._executor.in_child(attempt):
            patience_seconds += _CHILD_SECONDS
        self._deadlines.set(slot, attempt.started + patience_seconds)
        outcome: Outcome | None
        try:
            outcome = await self._executor.run(attempt, self._began)
        except asyncio.CancelledError as error:
            outcome = self._after_end(attempt, slot, error)
        finally:
            self._deadlines.take_off(slot)
            held = self.running.pop(slot, None)
            self._ended.pop(slot, None)
        while myself.cancelling():
            myself.uncancel()  # that was for the attempt: the slot goes on
        if held is None:
            return  # it was handed back, or abandoned, over its head
        if outcome is None:
            self._stirred.set()
        else:
            self._conclude(job, outcome)

    def _began(self, attempt: Attempt) -> None:
        """Count its time from now: its child process is up, and what that took is not its own."""
        attempt.started = self._loop.time()
        for slot, running in self.running.items():
            if running is attempt and slot not in self._ended:
                self._deadlines.set(slot, attempt.started + (attempt.timeout_seconds or 0.0))

    def _conclude(self, job: Job, outcome: Outcome) -> None:
        if outcome.failure is not None:
            log.emit(
                "job.failed",
                about=job,
                error_reason=outcome.failure.error_reason,
                failure_class=outcome.failure.failure_class.value,
                outcome=outcome.kind.value,
            )
        self._done(outcome)

    def _after_end(
        self, attempt: Attempt, slot: int, error: asyncio.CancelledError
    ) -> Outcome | None:
        end = self._ended.get(slot)
        if end is None:
            if slot not in self.running or self._torn_down():
                raise error  # the slot itself is to end
            return self._executor.failed(attempt, error)  # the task's own doing
        return self._outcome_of(end, attempt)

    def _outcome_of(self, end: StopReason, attempt: Attempt) -> Outcome | None:
        if end is StopReason.TIMEOUT:
            return self._timed_out(attempt)
        if end is StopReason.STOPPED:
            return cancelled(attempt.job)
        return release(attempt.job) if end is StopReason.DRAINED else None

    def _leaving(self) -> bool:
        return self._stopping or self._torn_down()

    def _torn_down(self) -> bool:
        """Whether whoever runs the event loop cancels everything in it, without a stop."""
        if self._stopping:
            return False  # it was a stop that cancelled the claim which waited
        return bool(self._dispatchers) and self._dispatchers[0].cancelling() > 0

    def _timed_out(self, attempt: Attempt) -> Outcome:
        seconds = attempt.timeout_seconds or 0.0
        return self._executor.failed(
            attempt, TimeoutError(f"it ran into its time-out of {seconds:g} s")
        )

    def _end(self, slot: Hashable, end: StopReason) -> None:
        if not isinstance(slot, int):
            return
        task = self._slots.get(slot)
        if task is not None and slot in self.running and slot not in self._ended:
            self._ended[slot] = end
            task.cancel()
            if end is not StopReason.DRAINED:
                self._loop.call_later(_GRACE_SECONDS, self._abandon, slot, self.running[slot])

    def _abandon(self, slot: int, attempt: Attempt) -> None:
        """Go on without an attempt that does not heed its cancellation: a new slot takes over."""
        if self.running.get(slot) is not attempt:
            return
        job = attempt.job
        log.emit("worker.task_abandoned", about=job)
        del self.running[slot]
        task = self._slots.pop(slot)
        self._abandoned.add(task)
        task.add_done_callback(self._abandoned.discard)
        outcome = self._outcome_of(self._ended.pop(slot), attempt)
        if outcome is not None:
            self._conclude(job, outcome)
        if not self._stopping:
            self.resize(self.size)

    async def _wait_for_running(self, seconds: float) -> None:
        give_up = self._loop.time() + seconds
        while self.running and (left := give_up - self._loop.time()) > 0:
            self._stirred.clear()  # before the settling: the last one may end meanwhile
            if not self._settling.under_way:
                await self._settling.quietly()
            try:
                async with asyncio.timeout(left):
                    await self._stirred.wait()
            except TimeoutError:
                return


def _local_end(job: Job, until_us: int, claim_sent: float) -> float:
    """When a lease ends on our clock, counted from when its claim was sent: never too late."""
    return claim_sent + (until_us - job.claimed_at_us) / MICROSECONDS


def _until_us(attempt: Attempt) -> int:
    job = attempt.job
    return job.claimed_at_us + int((attempt.lease_ends - attempt.claim_sent) * MICROSECONDS)


def _current_task() -> asyncio.Task[object]:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a slot runs in a task")
    return task
