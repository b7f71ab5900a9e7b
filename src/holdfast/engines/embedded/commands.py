"""The verbs that move work: enqueue, claim, extend, settle, reclaim."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from holdfast.engines.argument_checks import check_all, check_attribution, check_limit, check_names
from holdfast.engines.clock import Clock
from holdfast.engines.contract import (
    DEFAULT_LEASE_SECONDS,
    Capabilities,
    Claim,
    EngineOptions,
    HeldJob,
    OnDuplicate,
    Receipt,
    Reclaim,
    Renewal,
)
from holdfast.model import lifecycle
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.audit import Attribution
from holdfast.model.effects import Effect
from holdfast.model.errors import InvalidInput, LeaseLost, StorageFull, TooLarge
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

from .admission import EnqueueBatcher, JobAdmission, PendingEnqueue
from .core import CommitLog, EmbeddedCore, WorkState
from .dependents import DependentEffects
from .history import HistoryStore


class Commands(EmbeddedCore):
    """Every verb that moves work, over a state, a log and a clock."""

    def __init__(
        self,
        capabilities: Capabilities,
        state: WorkState,
        log: CommitLog,
        past: HistoryStore,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        options: EngineOptions,
    ) -> None:
        super().__init__(capabilities, state, log, past, clock, random_bytes, options)
        self._gathering = EnqueueBatcher(self._enqueue_all, log.landing)

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
            if not outcomes:
                await self._past.room()  # outcomes do not wait for it: leases run out meanwhile
            self._check_open()
            now_us = self._now_us()
            jobs: list[Job] = []
            answer_now = True
            try:
                settled = self._settle(outcomes, caller, now_us)
                if not self._past.behind:
                    jobs = self._claim(queues, tasks, limit, worker, lease_seconds, caller, now_us)
                answer_now = bool(jobs or outcomes or now_us >= give_up_us)
            finally:
                if answer_now:
                    await self._durable_or_hand_back(jobs)
            if answer_now:
                return Claim(jobs, settled)
            # No await between looking and waiting: nothing can arrive unseen.
            due_us = self._state.next_due_us(queues, now_us)
            until_us = give_up_us if due_us is None else min(give_up_us, due_us)
            await self._waiters.wait(queues, tasks, until_us - self._ahead_us)

    async def extend(
        self, held: Sequence[HeldJob], *, lease_seconds: float, caller: Caller = SYSTEM
    ) -> list[Renewal | LeaseLost]:
        """See ``Engine.extend``."""
        check_seconds("lease_seconds", lease_seconds, MAX_LEASE_SECONDS)
        leases = check_all("held", held, HeldJob)  # type: ignore[type-abstract]
        return await self._answer(lambda now: self._extend(leases, lease_seconds, caller, now))

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
        del every_seconds  # nobody else does it
        check_limit(limit)
        refs = check_all("forced", forced, JobRef)  # type: ignore[type-abstract]
        if attribution is not None:
            check_attribution(attribution)
        return await self._answer(lambda now: self._reclaim(limit, refs, attribution, caller, now))

    # --- decide ------------------------------------------------------------------------------

    def _enqueue(
        self, jobs: Sequence[NewJob], caller: Caller, on_duplicate: OnDuplicate, now_us: int
    ) -> list[Receipt]:
        intake = self._intake(len(jobs), now_us)
        receipts = intake.take(jobs, caller, on_duplicate)
        self._commit(intake.effects, essential=False)
        return receipts

    def _intake(self, count: int, now_us: int) -> JobAdmission:
        fresh_ids = uuid7s(now_us, self._random_bytes(RANDOM_BYTES * count))
        return JobAdmission(
            self._state, self._find, now_us, iter(fresh_ids), self._options.max_payload_bytes
        )

    def _enqueue_all(self, requests: Sequence[PendingEnqueue]) -> None:
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

    def _enqueue_singly(self, requests: Sequence[PendingEnqueue], now_us: int) -> None:
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
        return self._commit_most(effects, lambda claims: claims)

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
        self._commit(self._with_following(effects, now_us))
        self.leases_refused += len(answers) - len(effects)
        return answers

    def _with_following(self, effects: list[Effect], now_us: int) -> list[Effect]:
        if not self._state.anybody_waits:
            return effects
        return DependentEffects(self._state.dependents, now_us).after(effects)

    def _extend(
        self, held: Sequence[HeldJob], lease_seconds: float, caller: Caller, now_us: int
    ) -> list[Renewal | LeaseLost]:
        terms = lifecycle.LeaseTerms(now_us, lease_seconds, self._options.max_processing_seconds)
        effects: list[Effect] = []
        answers: list[Renewal | LeaseLost] = []
        for lease in held:
            job = self._held(lease, caller)
            if job is None:
                answers.append(LeaseLost(lease.id, lease.token))
                continue
            effect = lifecycle.extend(job, terms)
            effects.append(effect)
            answers.append(Renewal(effect.lease_until_us, job.stop_requested))
        self._commit(effects)
        self.leases_refused += len(answers) - len(effects)
        return answers

    def _reclaim(
        self,
        limit: int,
        forced: Sequence[JobRef],
        attribution: Attribution | None,
        caller: Caller,
        now_us: int,
    ) -> Reclaim:
        lost: list[Effect] = []
        named: set[tuple[str, str]] = set()
        why = "an operator ended its lease"
        if attribution is not None:
            why = f"{attribution.by} ended its lease: {attribution.why}"
        for ref in forced:
            job = self._find(ref.tenant, ref.id, caller)
            if (
                job is not None
                and job.state is State.IN_FLIGHT
                and (job.tenant, job.id) not in named
            ):
                named.add((job.tenant, job.id))
                lost.append(lifecycle.lose(job, now_us, "stuck", why))
        audit = () if attribution is None or not named else attribution.audit
        for job in self._state.overdue(limit, caller, now_us):
            if (job.tenant, job.id) not in named:
                cap_seconds = self._options.max_processing_seconds
                reason, message = lifecycle.why_overdue(job, cap_seconds)
                lost.append(lifecycle.lose(job, now_us, reason, message))
        unclaimed: list[Effect] = [
            lifecycle.expire(job, now_us) for job in self._state.expired(limit, caller, now_us)
        ]
        jobs = self._commit_most(
            [*lost, *unclaimed],
            lambda ended: [
                *self._with_following(ended, now_us),
                *self._audited(audit, now_us),
            ],
        )
        return Reclaim(jobs[: len(lost)], jobs[len(lost) :])

    def _held(self, lease: HeldJob, caller: Caller) -> Job | None:
        job = self._state.holder(lease.token)
        if job is None or job.id != lease.id or job.tenant != lease.tenant:
            return None
        return job if caller.unlimited or caller.reaches(job.tenant, job.scope) else None

    async def _durable_or_hand_back(self, jobs: list[Job]) -> None:
        try:
            await self._durable()
        except asyncio.CancelledError:
            # Nobody is there to hold them: hand them back instead of letting leases run out.
            self._settle([release(job) for job in jobs], SYSTEM, self._now_us())
            self._log.landing()  # nobody waits for it, but it must go out
            raise
