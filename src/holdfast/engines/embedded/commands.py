"""Decides the verbs that move work: enqueue, claim, settle, extend, reclaim."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from holdfast.engines.contract import HeldJob, OnDuplicate, Receipt, Reclaim, Renewal
from holdfast.engines.outages import changes_between, log_changes, outage_retry_at_us
from holdfast.model import lifecycle
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.audit import Attribution, AuditEntry
from holdfast.model.audit_changes import facts_of, with_facts
from holdfast.model.chain import ChainSettle, behind, ended_with, with_tails
from holdfast.model.effects import Effect
from holdfast.model.errors import LeaseLost, StorageFull, TooLarge
from holdfast.model.ids import RANDOM_BYTES, uuid7s
from holdfast.model.job import Job, JobRef, NewJob, State
from holdfast.model.outcome import Outcome, release
from holdfast.model.record import Record

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
        self,
        jobs: Sequence[NewJob],
        caller: Caller,
        on_duplicate: OnDuplicate,
        now_us: int,
        once: Record | None = None,
    ) -> list[Receipt]:
        """Admit these jobs, all or none."""
        with_them = self._core.records.once(once, now_us)
        admission = self._admission(len(jobs), now_us)
        receipts = admission.take(jobs, caller, on_duplicate)
        if admission.effects:
            self._core.commit([*admission.effects, *with_them], essential=False)
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
        chain: int,
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
        for job in self._state.claimable(queues, tasks, caller, limit, now_us, chain):
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
        held: dict[int, tuple[Job, Outcome]] = {}
        keyed = False
        for outcome in outcomes:
            outcome.check()
            if outcome.token not in held and (job := self._held(outcome, caller)) is not None:
                held[outcome.token] = job, outcome
                keyed = keyed or job.ties.key is not None
        chains = ChainSettle(self._state.flight_of_key, held.values()) if keyed else None
        outages = self._state.outages.active
        for outcome in outcomes:
            job, first = held.get(outcome.token, (None, None))
            if job is not None and first is outcome:
                del held[outcome.token]
                if chains is not None and not chains.accepts(job, outcome):
                    job = None
            else:
                job = None
            if job is None:
                answers.append(LeaseLost(outcome.id, outcome.token))
                continue
            retry_at_us = None
            if outages:
                retry_at_us = outage_retry_at_us(
                    outages, job, outcome, now_us, self._core.options.outage_max_seconds
                )
            effect = lifecycle.settle(job, outcome, now_us, retry_at_us)
            effects.append(effect)
            answers.append(None)
            if chains is not None and job.ties.key is not None:
                effects += [
                    lifecycle.settle(one, ended_with(one, outcome), now_us)
                    for one in chains.ended(job, effect)
                ]
        before = dict(outages)
        self._core.commit(self.with_dependents(effects, now_us))
        if before:
            log_changes(changes_between(before, outages), now_us)
        self.leases_refused += sum(answer is not None for answer in answers)
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
        why = "an operator ended its lease"
        if attribution is not None:
            why = f"{attribution.by} ended its lease: {attribution.why}"
        reasons: dict[int, tuple[str, str]] = {}
        ended: list[Job] = []
        for ref in forced:
            job = core.find(ref.tenant, ref.id, caller)
            if job is not None and job.state is State.IN_FLIGHT and job.token not in reasons:
                reasons[job.token] = "stuck", why
                ended.append(job)
        forced_tokens = set(reasons)
        for job in self._state.overdue(limit, caller, now_us):
            if job.token not in reasons:
                cap_seconds = core.options.max_processing_seconds
                reasons[job.token] = lifecycle.why_overdue(job, cap_seconds)
                ended.append(job)
        lost: list[Effect] = []
        forced_jobs: list[tuple[Job, Effect]] = []
        for job, because_of in with_tails(ended, self._state.flight_of_key):
            reason = reasons.get(job.token) or behind(because_of, *reasons[because_of.token])
            lost.append(lifecycle.lose(job, now_us, *reason))
            if job.token in forced_tokens:
                forced_jobs.append((job, lost[-1]))
        audit: tuple[AuditEntry, ...] = ()
        once: list[Effect] = []
        if attribution is not None and forced_jobs:
            audit = with_facts(attribution.audit, facts_of(forced_jobs))
            once = core.records.once(attribution.once, now_us)
        unclaimed: list[Effect] = [
            lifecycle.expire(job, now_us) for job in self._state.expired(limit, caller, now_us)
        ]
        jobs = core.commit_most(
            [*lost, *unclaimed],
            lambda ended: [
                *self.with_dependents(ended, now_us),
                *core.audited(audit, now_us),
                *once,
            ],
        )
        return Reclaim(jobs[: len(lost)], jobs[len(lost) :])

    def _held(self, lease: HeldJob | Outcome, caller: Caller) -> Job | None:
        job = self._state.holder(lease.token)
        if job is None or job.id != lease.id or job.tenant != lease.tenant:
            return None
        return job if caller.unlimited or caller.can_access(job.tenant, job.scope) else None
