"""Claim: settle and claim in one step where possible, else look first; wait while there is no work.

The first job of each queue and priority is remembered (see ``claim.WatermarkCache``). A claim whose
reply was lost is looked up by its nonce.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial

from holdfast.engines.clock import monotonic
from holdfast.engines.contract import Claim
from holdfast.engines.entropy import random_bytes
from holdfast.engines.postgres.connection.sansio import execute_all
from holdfast.engines.postgres.errors import CommitUnknown
from holdfast.engines.postgres.resources import EngineResources
from holdfast.model.job import MICROSECONDS, Job
from holdfast.model.outcome import Outcome

from . import claim_statements as claim_verbs
from . import limited_claim
from . import settle_statements as settle_verbs
from .abandoned_claims import AbandonedClaims, Claimed
from .claim_statements import ClaimRequest, QueueHeads, Watermark
from .key_lines import KeyLines
from .notifier import Notifier
from .settler import Settler


def random_nonce() -> int:
    """Return a number that no other claim has."""
    return int.from_bytes(random_bytes(8), "big") >> 1


class Claimer:
    """Hands out jobs, and waits for work."""

    def __init__(
        self, resources: EngineResources, settler: Settler, notifier: Notifier, lines: KeyLines
    ) -> None:
        self._resources = resources
        self._lines = lines
        self._database = resources.database
        self._watermarks = resources.watermarks
        self._lost_replies = resources.lost_replies
        self._context = resources.context
        self._settler = settler
        self._notifier = notifier
        self.abandoned = AbandonedClaims(settler.release)

    async def claim(
        self, request: ClaimRequest, outcomes: Sequence[Outcome], wait_seconds: float
    ) -> Claim:
        """Settle and claim; without outcomes wait until there is a job, but not for longer."""
        clock, waiters, notifier = self._resources.clock, self._resources.waiters, self._notifier
        queues = request.queues
        give_up_us = clock.now_us() + int(wait_seconds * MICROSECONDS)
        guess: list[Watermark] | None = None
        while True:
            notified = notifier.covers(queues)
            with waiters.expecting(queues, request.tasks) as woken:
                claim, survey = await self.abandoned.run(
                    self._settle_and_claim(request, outcomes, guess)
                )
                if claim.jobs or outcomes:
                    return claim
                if survey is None and self._watermarks.of(request):
                    continue  # there were too many watermarks for one look
                if guess is None and clock.now_us() >= give_up_us:
                    return claim
                guess = None
                # Jobs that came before we were registered sent no notification: look once more.
                if survey is not None and (notified or not await notifier.register(queues)):
                    wake_us = min(give_up_us, await self._wake_us(survey))
                    with notifier.waiting(queues):
                        await waiters.sleep(woken, wake_us)
                    if clock.now_us() < wake_us:
                        guess = self._watermarks.guess(request)  # something came
                self._watermarks.forget()

    async def _settle_and_claim(
        self, request: ClaimRequest, outcomes: Sequence[Outcome], guess: list[Watermark] | None
    ) -> Claimed:
        """Settle and claim, in one step if the watermarks are known and all are completions."""
        if unclaimed := await self._lost_replies.unclaimed():
            await self._settler.release(unclaimed)
        first = settle_verbs.first_of_each(outcomes)
        completions = settle_verbs.completions(first.values())
        known = self._watermarks.of(request)
        watermarks = known or guess
        if watermarks is None or len(completions) < len(first):
            # Other outcomes may make jobs claimable: settle before looking.
            done = await self._settler.settle(outcomes, request.caller) if outcomes else set()
            jobs, survey = await self._survey_and_claim(request)
            return Claim(jobs, self._settler.answers(outcomes, done)), survey
        context = self._context()
        before = (
            [settle_verbs.complete(completions, request.caller, context)] if completions else []
        )
        try:
            completed, jobs = await self._database.perform(
                lambda: claim_verbs.claim_after(
                    before, request, watermarks, context, guessed=known is None
                )
            )
        except CommitUnknown:
            return await self._resolve(request, outcomes), None
        self._watermarks.claimed(request, watermarks, jobs)
        if not outcomes:
            return Claim(jobs, []), None
        tokens = {token for (token,) in completed[0]} if completed else set()
        done = {
            settle_verbs.lease_of(outcome) for outcome in completions if outcome.token in tokens
        }
        if left := [outcome for lease, outcome in first.items() if lease not in done]:
            done |= await self._settler.settle_full(left, request.caller)
            done |= await self._lost_replies.settled(outcomes, done)
            if len(jobs) < request.limit:
                rest = request._replace(limit=request.limit - len(jobs), nonce=random_nonce())
                jobs += (await self._survey_and_claim(rest))[0]
        return Claim(jobs, self._settler.answers(outcomes, done)), None

    async def _resolve(self, request: ClaimRequest, outcomes: Sequence[Outcome]) -> Claim:
        """Find out what a claim did whose reply was lost; do the rest."""
        self._lost_replies.add(outcomes)
        jobs = await self._lost_replies.claimed(request)
        done = await self._settler.settle(outcomes, request.caller) if outcomes else set()
        if not jobs:
            jobs, _survey = await self._survey_and_claim(request._replace(nonce=random_nonce()))
        return Claim(jobs, self._settler.answers(outcomes, done))

    async def _survey_and_claim(self, request: ClaimRequest) -> tuple[list[Job], QueueHeads]:
        """Read the watermarks, and claim; with limits, if a queue has any."""
        survey, took_seconds = await self._survey(request)
        while survey.fresh and await self._lines.line_up(request.named):
            survey, took_seconds = await self._survey(request)
            if not survey.idle:
                break
        if survey.idle:
            return [], survey
        try:
            jobs = await self._claim_from(survey, request, took_seconds)
        except CommitUnknown:
            jobs = await self._lost_replies.claimed(request)
            if jobs:
                return jobs, survey
            request = request._replace(nonce=random_nonce())
            try:
                jobs = await self._claim_from(survey, request, took_seconds)
            except CommitUnknown:
                return await self._lost_replies.claimed(request), survey
        return jobs, survey

    async def _survey(self, request: ClaimRequest) -> tuple[QueueHeads, float]:
        """Read the watermarks; return also how many seconds that took."""
        began = monotonic()
        after = self._lines.scan.after(request.named)
        [rows] = await self._database.read(
            lambda: execute_all(claim_verbs.read_watermarks(request, self._context(), after))
        )
        survey, took_seconds = claim_verbs.survey_of(rows, request), monotonic() - began
        if not survey.fresh:
            self._lines.scan.scanned(request.named, after, survey.last_place, took_seconds)
        return survey, took_seconds

    async def _claim_from(
        self, survey: QueueHeads, request: ClaimRequest, took_seconds: float
    ) -> list[Job]:
        if survey.limits:
            for queues in limited_claim.queues_in_parts(survey, request):
                part = request._replace(queues=queues)
                jobs = await self._database.perform(
                    partial(limited_claim.claim_with_limits, part, self._context())
                )
                if jobs:
                    return jobs
            return []
        left = claim_verbs.in_order(survey.watermarks)
        while True:
            first = claim_verbs.first_of(left, request.limit)
            _rows, jobs = await self._database.perform(
                partial(claim_verbs.claim_after, (), request, first, self._context())
            )
            if jobs or len(first) == len(left):
                break
            del left[: len(first)]
        self._watermarks.found(request, left, took_seconds)
        self._watermarks.claimed(request, first, jobs)
        return jobs

    async def _wake_us(self, survey: QueueHeads) -> int:
        """Return when to look again without a notification, by the clock of this process."""
        now_us = survey.now_us
        moments = [watermark.run_at_us for watermark in survey.watermarks]
        if not survey.idle:
            # There are due jobs, but none for this claim: ask when the next one becomes due.
            statement = claim_verbs.find_next_due(survey, self._context())
            [[[now_us, due_us]]] = await self._database.read(lambda: execute_all(statement))
            opens_us = limited_claim.opens_at_us(survey.limits, survey.now_us)
            moments = [moment for moment in (due_us, opens_us) if moment is not None]
        # Jitter: processes that were started together must not poll together.
        poll_seconds = self._resources.options.poll_interval_seconds
        wait_us = poll_seconds * MICROSECONDS * random.uniform(0.8, 1.2)
        for moment in moments:
            wait_us = min(wait_us, max(0, moment - now_us))
        return self._resources.clock.now_us() + int(wait_us)
