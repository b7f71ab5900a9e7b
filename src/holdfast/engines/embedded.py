"""The verbs of an engine that keeps its state in this process.

Each verb decides on the state, hands the effects to the log, folds them into the state, and
answers once everything that the answer rests on is durable. What differs between engines is the
state (how fast it finds things) and the log (what survives).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from holdfast.model import lifecycle
from holdfast.model.access import DEFAULT_TENANT, SYSTEM, Caller
from holdfast.model.effects import Effect
from holdfast.model.errors import (
    DurabilityLost,
    EngineClosed,
    InvalidInput,
    LeaseLost,
    StorageFull,
    TooLarge,
)
from holdfast.model.ids import RANDOM_BYTES, uuid7s
from holdfast.model.job import (
    MAX_LEASE_SECONDS,
    MICROSECONDS,
    Job,
    JobRef,
    NewJob,
    State,
    check_id,
    check_seconds,
)
from holdfast.model.outcome import Outcome, release

from .arrivals import Arrivals
from .base import (
    DEFAULT_LEASE_SECONDS,
    Capabilities,
    Claim,
    Counts,
    EngineOptions,
    HeldJob,
    OnDuplicate,
    Receipt,
    Reclaim,
)
from .checks import check_all, check_limit, check_names
from .clock import Clock
from .intake import Gathering, Intake, Request

T = TypeVar("T")


class WorkState(Protocol):
    """Everything that is kept, and the questions that the verbs ask of it."""

    seq: int
    """The sequence number of the last effect folded in."""
    last_at_us: int
    """When that effect happened."""
    forget_before_us: int
    """Completed and cancelled jobs that finished before this are as if they were not there."""

    def fold(self, effect: Effect, seq: int) -> Job:
        """Take in the effect of this sequence number; return the job as it is now."""

    def get(self, tenant: str, job_id: str) -> Job | None:
        """Return the job, finished ones included while they are kept."""

    def unfinished(self, tenant: str, queue: str, unique: str) -> Job | None:
        """Return the unfinished job that has this unique key."""

    def holder(self, token: int) -> Job | None:
        """Return the job in flight under this token."""

    def claimable(
        self,
        queues: Collection[str],
        tasks: Collection[str] | None,
        caller: Caller,
        limit: int,
        now_us: int,
    ) -> list[Job]:
        """Return the next jobs to hand out, in order: due, unexpired, within reach."""

    def next_due_us(self, now_us: int) -> int | None:
        """Return when the next job that is not yet due becomes so."""

    def overdue(self, limit: int, caller: Caller, now_us: int) -> list[Job]:
        """Return jobs in flight whose lease has ended, those that ended first first."""

    def expired(self, limit: int, caller: Caller, now_us: int) -> list[Job]:
        """Return unclaimed jobs whose ``expires_at`` has passed, oldest first."""

    def jobs(self) -> Iterable[Job]:
        """Return every job that is kept."""

    def counts(self, caller: Caller) -> Mapping[str, Counts]:
        """Return the counts of each queue."""

    def problems(self) -> list[str]:
        """Return what is inconsistent, a sentence each."""


class Log(Protocol):
    """What makes effects durable."""

    def add(self, effects: Sequence[Effect], first_seq: int, *, essential: bool) -> None:
        """Take effects in, or raise ``StorageFull`` or ``TooLarge`` and take none.

        Essential ones (all but new work) may use the space held in reserve.
        """

    def stop(self, error: BaseException) -> None:
        """Take nothing more in: the state may not be what the log says."""

    @property
    def crowded(self) -> bool:
        """Whether several callers share a flush, so that it pays to decide for them together."""

    def landing(self, callers: int = 1) -> asyncio.Future[None] | None:
        """Send off what was added; return a future of its own for when it is durable.

        None when it is already; ``callers`` is how many wait for it. Raise ``DurabilityLost``, at
        once or in the future, if it never will be.
        """

    async def close(self) -> None:
        """Make everything durable and let go."""


class EmbeddedEngine:
    """Every verb of the contract over a state, a log and a clock."""

    def __init__(
        self,
        capabilities: Capabilities,
        state: WorkState,
        log: Log,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        options: EngineOptions,
    ) -> None:
        self.capabilities = capabilities
        self.leases_refused = 0
        self._state = state
        self._log = log
        self._clock = clock
        self._random_bytes = random_bytes
        self._options = options
        self._remember_us = int(options.remember_seconds * MICROSECONDS)
        self._arrivals = Arrivals(clock)
        self._gathering = Gathering(self._enqueue_all, log.landing)
        self._ahead_us = 0
        """How far the engine's time is ahead of the clock: it never goes back, and never stops."""
        self._token_offset = 0
        self._closed = False

    # --- move --------------------------------------------------------------------------------

    async def enqueue(
        self,
        jobs: Sequence[NewJob],
        *,
        caller: Caller = SYSTEM,
        on_duplicate: OnDuplicate = "refuse",
    ) -> list[Receipt]:
        """See ``Engine.enqueue``."""
        self._check_open()
        jobs = check_all("jobs", jobs, NewJob)
        if on_duplicate not in ("refuse", "skip"):
            raise InvalidInput("on_duplicate", f"{on_duplicate!r} is not refuse or skip")
        if self._log.crowded or self._gathering.waiting:
            return await self._gathering.add(jobs, caller, on_duplicate)
        return await self._answer(lambda now: self._enqueue(jobs, caller, on_duplicate, now))

    async def settle(
        self, outcomes: Sequence[Outcome], *, caller: Caller = SYSTEM
    ) -> list[LeaseLost | None]:
        """See ``Engine.settle``."""
        checked = check_all("outcomes", outcomes, Outcome)
        return await self._answer(lambda now: self._settle(checked, caller, now))

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
        check_limit(limit)
        check_id(worker, "worker")
        check_seconds("lease_seconds", lease_seconds, MAX_LEASE_SECONDS)
        queues = check_names("queues", queues)
        tasks = None if tasks is None else check_names("tasks", tasks)
        outcomes = check_all("settle", settle, Outcome)
        if wait_seconds != 0:
            check_seconds("wait_seconds", wait_seconds)
        give_up_us = self._now_us() + int(wait_seconds * MICROSECONDS)
        while True:
            self._check_open()
            now_us = self._now_us()
            jobs: list[Job] = []
            answer_now = True
            try:
                settled = self._settle(outcomes, caller, now_us)
                jobs = self._claim(queues, tasks, limit, worker, lease_seconds, caller, now_us)
                answer_now = bool(jobs or outcomes or now_us >= give_up_us)
            finally:
                if answer_now:
                    await self._durable_or_hand_back(jobs)
            if answer_now:
                return Claim(jobs, settled)
            # No await between looking and waiting: nothing can arrive unseen.
            due_us = self._state.next_due_us(now_us)
            until_us = give_up_us if due_us is None else min(give_up_us, due_us)
            await self._arrivals.wait(queues, tasks, until_us - self._ahead_us)

    async def extend(
        self, held: Sequence[HeldJob], *, lease_seconds: float, caller: Caller = SYSTEM
    ) -> list[int | LeaseLost]:
        """See ``Engine.extend``."""
        check_seconds("lease_seconds", lease_seconds, MAX_LEASE_SECONDS)
        leases = check_all("held", held, HeldJob)  # type: ignore[type-abstract]
        return await self._answer(lambda now: self._extend(leases, lease_seconds, caller, now))

    async def reclaim(
        self,
        *,
        limit: int = 1_000,
        forced: Sequence[JobRef] = (),
        caller: Caller = SYSTEM,
    ) -> Reclaim:
        """See ``Engine.reclaim``."""
        check_limit(limit)
        refs = check_all("forced", forced, JobRef)  # type: ignore[type-abstract]
        return await self._answer(lambda now: self._reclaim(limit, refs, caller, now))

    # --- look --------------------------------------------------------------------------------

    async def get(
        self, ids: Sequence[str], *, tenant: str = DEFAULT_TENANT, caller: Caller = SYSTEM
    ) -> list[Job | None]:
        """See ``Engine.get``."""
        check_id(tenant, "tenant")
        wanted = check_all("ids", ids, str)
        return await self._answer(lambda _now: [self._find(tenant, i, caller) for i in wanted])

    async def counts(self, *, caller: Caller = SYSTEM) -> Mapping[str, Counts]:
        """See ``Engine.counts``."""
        return await self._answer(lambda _now: self._state.counts(caller))

    async def validate(self) -> list[str]:
        """See ``Engine.validate``."""
        return await self._answer(lambda _now: self._state.problems())

    async def close(self) -> None:
        """See ``Engine.close``."""
        if self._closed:
            return
        self._gathering.decide()
        self._closed = True
        self._arrivals.announce_end()
        await self._log.close()

    # --- decide ------------------------------------------------------------------------------

    def _enqueue(
        self, jobs: Sequence[NewJob], caller: Caller, on_duplicate: OnDuplicate, now_us: int
    ) -> list[Receipt]:
        intake = self._intake(len(jobs), now_us)
        receipts = intake.take(jobs, caller, on_duplicate)
        self._commit(intake.effects, essential=False)
        return receipts

    def _intake(self, count: int, now_us: int) -> Intake:
        fresh_ids = uuid7s(now_us, self._random_bytes(RANDOM_BYTES * count))
        return Intake(self._state, now_us, iter(fresh_ids), self._options.max_payload_bytes)

    def _enqueue_all(self, requests: Sequence[Request]) -> None:
        """Decide on requests that came together: one commit, an answer each."""
        now_us = self._now_us()
        intake = self._intake(sum(len(request.jobs) for request in requests), now_us)
        for request in requests:
            try:
                request.answer = intake.take(request.jobs, request.caller, request.on_duplicate)
            except Exception as error:  # noqa: BLE001 - it is this request's own answer
                request.answer = error
        try:
            self._commit(intake.effects, essential=False)
        except (TooLarge, StorageFull):
            self._enqueue_singly(requests, now_us)

    def _enqueue_singly(self, requests: Sequence[Request], now_us: int) -> None:
        """Decide on requests for which there is no room together: there may be for some."""
        for request in requests:
            try:
                request.answer = self._enqueue(
                    request.jobs, request.caller, request.on_duplicate, now_us
                )
            except Exception as error:  # noqa: BLE001 - it is this request's own answer
                request.answer = error

    def _claim(
        self,
        queues: Collection[str],
        tasks: Collection[str] | None,
        limit: int,
        worker: str,
        lease_seconds: float,
        caller: Caller,
        now_us: int,
    ) -> list[Job]:
        terms = lifecycle.LeaseTerms(now_us, lease_seconds, self._options.max_processing_seconds)
        # A token is the number of its claim, above all that an earlier life issued: it only grows.
        token = self._state.seq + self._token_offset
        effects: list[Effect] = []
        for job in self._state.claimable(queues, tasks, caller, limit, now_us):
            token += 1
            effects.append(lifecycle.claim(job, token, worker, terms))
        return self._commit_most(effects)

    def _settle(
        self, outcomes: Sequence[Outcome], caller: Caller, now_us: int
    ) -> list[LeaseLost | None]:
        effects: list[Effect] = []
        answers: list[LeaseLost | None] = []
        spent: set[int] = set()
        for outcome in outcomes:
            outcome.check()
            job = self._held(outcome, caller)
            if job is None or outcome.token in spent:
                answers.append(LeaseLost(outcome.id, outcome.token))
                continue
            spent.add(outcome.token)
            effects.append(lifecycle.settle(job, outcome, now_us))
            answers.append(None)
        self._commit(effects)
        self.leases_refused += len(answers) - len(effects)
        return answers

    def _extend(
        self, held: Sequence[HeldJob], lease_seconds: float, caller: Caller, now_us: int
    ) -> list[int | LeaseLost]:
        terms = lifecycle.LeaseTerms(now_us, lease_seconds, self._options.max_processing_seconds)
        effects: list[Effect] = []
        answers: list[int | LeaseLost] = []
        for lease in held:
            job = self._held(lease, caller)
            if job is None:
                answers.append(LeaseLost(lease.id, lease.token))
                continue
            effect = lifecycle.extend(job, terms)
            effects.append(effect)
            answers.append(effect.lease_until_us)
        self._commit(effects)
        self.leases_refused += len(answers) - len(effects)
        return answers

    def _reclaim(
        self, limit: int, forced: Sequence[JobRef], caller: Caller, now_us: int
    ) -> Reclaim:
        lost: list[Effect] = []
        named: set[tuple[str, str]] = set()
        for ref in forced:
            job = self._find(ref.tenant, ref.id, caller)
            if (
                job is not None
                and job.state is State.IN_FLIGHT
                and (job.tenant, job.id) not in named
            ):
                named.add((job.tenant, job.id))
                lost.append(lifecycle.lose(job, now_us, "stuck", "an operator ended its lease"))
        for job in self._state.overdue(limit, caller, now_us):
            if (job.tenant, job.id) not in named:
                reason, message = self._why_overdue(job)
                lost.append(lifecycle.lose(job, now_us, reason, message))
        unclaimed: list[Effect] = [
            lifecycle.expire(job, now_us) for job in self._state.expired(limit, caller, now_us)
        ]
        jobs = self._commit_most([*lost, *unclaimed])
        return Reclaim(jobs[: len(lost)], jobs[len(lost) :])

    def _why_overdue(self, job: Job) -> tuple[str, str]:
        cap_seconds = job.max_processing_seconds or self._options.max_processing_seconds
        if job.lease_until_us >= job.claimed_at_us + int(cap_seconds * MICROSECONDS):
            return "stuck", f"{job.worker} held it for max_processing_seconds ({cap_seconds:g})"
        return "worker_lost", f"{job.worker} let its lease run out"

    # --- the seam ----------------------------------------------------------------------------

    async def _answer(self, decide: Callable[[int], T]) -> T:
        """Decide, and answer when what the answer rests on is durable: refusals too."""
        self._check_open()
        try:
            return decide(self._now_us())
        finally:
            await self._durable()

    async def _durable(self) -> None:
        landing = self._log.landing()
        if landing is not None:
            await landing

    async def _durable_or_hand_back(self, jobs: list[Job]) -> None:
        try:
            await self._durable()
        except asyncio.CancelledError:
            # Nobody is there to hold them: hand them back instead of letting leases run out.
            self._settle([release(job) for job in jobs], SYSTEM, self._now_us())
            self._log.landing()  # nobody waits for it, but it must go out
            raise

    def _commit(self, effects: list[Effect], *, essential: bool = True) -> list[Job]:
        if not effects:
            return []
        state = self._state
        first_seq = seq = state.seq + 1
        jobs: list[Job] = []
        try:
            self._log.add(effects, first_seq, essential=essential)
            for effect in effects:
                jobs.append(state.fold(effect, seq))
                seq += 1
        except (TooLarge, StorageFull, DurabilityLost, EngineClosed):
            raise  # nothing was taken in
        except BaseException as error:
            # The log may have what the state has not, after an interrupt too: go no further.
            self._log.stop(error)
            raise
        if self._arrivals.anybody:
            self._arrivals.announce({(j.queue, j.task) for j in jobs if j.state is State.PENDING})
        return jobs

    def _commit_most(self, effects: list[Effect]) -> list[Job]:
        """Commit as many of these as there is room for in one step, from the first on."""
        while effects:
            try:
                return self._commit(effects)
            except TooLarge:
                effects = effects[: len(effects) // 2]
            except StorageFull:
                break
        return []

    def _held(self, lease: HeldJob, caller: Caller) -> Job | None:
        job = self._state.holder(lease.token)
        if job is None or job.id != lease.id or job.tenant != lease.tenant:
            return None
        return job if caller.unlimited or caller.reaches(job.tenant, job.scope) else None

    def _find(self, tenant: str, job_id: str, caller: Caller) -> Job | None:
        job = self._state.get(tenant, job_id)
        return job if job is not None and caller.reaches(job.tenant, job.scope) else None

    def _now_us(self) -> int:
        state = self._state
        now_us = max(self._clock.now_us() + self._ahead_us, state.last_at_us)
        state.forget_before_us = now_us - self._remember_us
        return now_us

    def _check_open(self) -> None:
        if self._closed:
            raise EngineClosed("this engine was closed: open another one")
