"""Decides the verbs that move work: enqueue, claim, settle, extend, reclaim."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from holdfast.engines.contract import HeldJob, OnDuplicate, Receipt, Reclaim, Renewal
from holdfast.engines.outages import changes_between, log_changes, outage_retry_at_us
from holdfast.model import lifecycle
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.audit import Attribution
from holdfast.model.effects import Effect
from holdfast.model.errors import LeaseLost, StorageFull, TooLarge
from holdfast.model.ids import RANDOM_BYTES, uuid7s
from holdfast.model.job import Job, JobRef, NewJob, State
from holdfast.model.outcome import Outcome, release

from .admission import JobAdmission, PendingEnqueue
from .core import EmbeddedCore
from .dependents import DependentEffects


class Commands:
    """Each method decides on checked arguments and commits; the caller waits until durable."""

    def __init__(self, core: EmbeddedCore) -> None:
        self.leases_refused = 0
        self._core = core
        self._state = core.state

    def enqueue(
        self, jobs: Sequence[NewJob], caller: Caller, on_duplicate: OnDuplicate, now_us: int
    ) -> list[Receipt]:
        """Admit these jobs, all or none."""
        admission = self._admission(len(jobs), now_us)
        receipts = admission.take(jobs, caller, on_duplicate)
        self._core.commit(admission.effects, essential=False)
        return receipts

    def _admission(self, count: int, now_us: int) -> JobAdmission:
        core = self._core
        fresh_ids = uuid7s(now_us, core.random_bytes(RANDOM_BYTES * count))
        return JobAdmission(
            self._state,
            core.find,
            now_us,
            iter(fresh_ids),
            core.options.max_payload_bytes,
            max(now_us, self._state.last_created_us + 1),
        )

    def enqueue_batch(self, requests: Sequence[PendingEnqueue]) -> None:
        """Decide requests that arrived together: one commit, an answer for each."""
        now_us = self._core.now_us()
        admission = self._admission(sum(len(request.jobs) for request in requests), now_us)
        for request in requests:
            try:
                request.answer = admission.take(request.jobs, request.caller, request.on_duplicate)
            except Exception as error:  # noqa: BLE001 - it is this request's own answer
                request.answer = error
        try:
            self._core.commit(admission.effects, essential=False)
        except (TooLarge, StorageFull):
            # There is no room for all of them: there may be for some.
            for request in requests:
                try:
                    request.answer = self.enqueue(
                        request.jobs, request.caller, request.on_duplicate, now_us
                    )
                except Exception as error:  # noqa: BLE001 - it is this request's own answer
                    request.answer = error

    def claim(
        self,
        queues: Collection[str],
        tasks: Collection[str] | None,
        limit: int,
        worker: str,
        lease_seconds: float,
        caller: Caller,
        now_us: int,
    ) -> list[Job]:
        """Claim up to ``limit`` due jobs; return them as they are now."""
        core = self._core
        terms = lifecycle.LeaseTerms(now_us, lease_seconds, core.options.max_processing_seconds)
        # A token is the seq of its claim plus an offset above all tokens of earlier processes.
        token = self._state.seq + core.token_offset
        effects: list[Effect] = []
        for job in self._state.claimable(queues, tasks, caller, limit, now_us):
            token += 1
            effects.append(lifecycle.claim(job, token, worker, terms))
        return core.commit_most(effects, lambda claims: claims)

    async def durable_or_hand_back(self, jobs: list[Job]) -> None:
        """Return when these claims are durable; if cancelled meanwhile, release the jobs."""
        try:
            await self._core.durable()
        except asyncio.CancelledError:
            # Their worker is gone: release them instead of letting the leases run out.
            self.settle([release(job) for job in jobs], SYSTEM, self._core.now_us())
            self._core.log.durable_future()  # starts the flush
            raise

    def settle(
        self, outcomes: Sequence[Outcome], caller: Caller, now_us: int
    ) -> list[LeaseLost | None]:
        """Record outcomes; for each, return None or the ``LeaseLost`` that refused it."""
        effects: list[Effect] = []
        answers: list[LeaseLost | None] = []
        spent: set[int] = set()
        outages = self._state.outages.active
        for outcome in outcomes:
            outcome.check()
            job = self._held(outcome, caller)
            if job is None or outcome.token in spent:
                answers.append(LeaseLost(outcome.id, outcome.token))
                continue
            spent.add(outcome.token)
            retry_at_us = None
            if outages:
                retry_at_us = outage_retry_at_us(
                    outages, job, outcome, now_us, self._core.options.outage_max_seconds
                )
            effects.append(lifecycle.settle(job, outcome, now_us, retry_at_us))
            answers.append(None)
        before = dict(outages)
        self._core.commit(self.with_dependents(effects, now_us))
        if before:
            log_changes(changes_between(before, outages), now_us)
        self.leases_refused += len(answers) - len(effects)
        return answers

    def with_dependents(self, effects: list[Effect], now_us: int) -> list[Effect]:
        """Return these effects, and what follows from them for the jobs that wait for theirs."""
        if not self._state.has_dependents:
            return effects
        return DependentEffects(self._state.dependents, now_us).after(effects)

    def extend(
        self, held: Sequence[HeldJob], lease_seconds: float, caller: Caller, now_us: int
    ) -> list[Renewal | LeaseLost]:
        """Renew leases; for each, return the renewal or a ``LeaseLost``."""
        cap_seconds = self._core.options.max_processing_seconds
        terms = lifecycle.LeaseTerms(now_us, lease_seconds, cap_seconds)
        effects: list[Effect] = []
        answers: list[Renewal | LeaseLost] = []
        for lease in held:
            job = self._held(lease, caller)
            if job is None:
                answers.append(LeaseLost(lease.id, lease.token))
                continue
            effect = lifecycle.extend(job, terms, lease.max_processing_seconds)
            effects.append(effect)
            answers.append(Renewal(effect.lease_until_us, job.stop_requested))
        self._core.commit(effects)
        self.leases_refused += len(answers) - len(effects)
        return answers

    def leases(self, held: Sequence[HeldJob], caller: Caller) -> list[Renewal | LeaseLost]:
        """Return each lease as it is, or a ``LeaseLost``."""
        answers: list[Renewal | LeaseLost] = []
        for lease in held:
            job = self._held(lease, caller)
            if job is None:
                answers.append(LeaseLost(lease.id, lease.token))
            else:
                answers.append(Renewal(job.lease_until_us, job.stop_requested))
        return answers

    def reclaim(
        self,
        limit: int,
        forced: Sequence[JobRef],
        attribution: Attribution | None,
        caller: Caller,
        now_us: int,
    ) -> Reclaim:
        """End leases that ran out or are forced, and expire unclaimed jobs."""
        core = self._core
        lost: list[Effect] = []
        named: set[tuple[str, str]] = set()
        why = "an operator ended its lease"
        if attribution is not None:
            why = f"{attribution.by} ended its lease: {attribution.why}"
        for ref in forced:
            job = core.find(ref.tenant, ref.id, caller)
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
                cap_seconds = core.options.max_processing_seconds
                reason, message = lifecycle.why_overdue(job, cap_seconds)
                lost.append(lifecycle.lose(job, now_us, reason, message))
        unclaimed: list[Effect] = [
            lifecycle.expire(job, now_us) for job in self._state.expired(limit, caller, now_us)
        ]
        jobs = core.commit_most(
            [*lost, *unclaimed],
            lambda ended: [*self.with_dependents(ended, now_us), *core.audited(audit, now_us)],
        )
        return Reclaim(jobs[: len(lost)], jobs[len(lost) :])

    def _held(self, lease: HeldJob | Outcome, caller: Caller) -> Job | None:
        job = self._state.holder(lease.token)
        if job is None or job.id != lease.id or job.tenant != lease.tenant:
            return None
        return job if caller.unlimited or caller.can_access(job.tenant, job.scope) else None
