"""The PostgreSQL engine: the same promises, kept by a server that many machines share."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Collection, Mapping, Sequence

from holdfast.engines.argument_checks import (
    check_all,
    check_filter,
    check_limit,
    check_names,
)
from holdfast.engines.clock import Clock, SystemClock, monotonic
from holdfast.engines.contract import (
    DEFAULT_LEASE_SECONDS,
    MAX_CLAIM,
    Capabilities,
    Claim,
    Counts,
    HeldJob,
    OnDuplicate,
    Receipt,
    Renewal,
)
from holdfast.engines.embedded.waiters import ClaimWaiters
from holdfast.engines.entropy import random_bytes
from holdfast.engines.histogram import Histogram
from holdfast.engines.postgres import rows
from holdfast.engines.postgres.admin import audit, queries
from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.database import Database
from holdfast.engines.postgres.connection.sansio import Statement, execute_all
from holdfast.engines.postgres.errors import CommitUnknown, check_url
from holdfast.engines.postgres.maintenance.notifier import Notifier
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.engines.queue_stats import StoreMetrics, StoreStats
from holdfast.model.access import DEFAULT_TENANT, SYSTEM, Caller
from holdfast.model.audit import AuditRecord
from holdfast.model.errors import HoldfastError, InvalidInput, LeaseLost, Unavailable
from holdfast.model.history import History
from holdfast.model.ids import RANDOM_BYTES, rising_uuid7s
from holdfast.model.job import (
    MAX_LEASE_SECONDS,
    MICROSECONDS,
    Job,
    NewJob,
    check_id,
    check_seconds,
    check_size,
)
from holdfast.model.outcome import Outcome, release
from holdfast.model.search import (
    EVERYTHING,
    FailureGroup,
    Filter,
    Page,
    check_page,
    place_of,
    read_cursor,
    write_cursor,
)
from holdfast.model.uniform_batch import UniformBatch

from . import claim as claim_verbs
from . import enqueue as enqueue_verbs
from . import limited_claim, lost_replies
from . import settle as settle_verbs
from .abandoned_claims import AbandonedClaims, Claimed
from .batcher import CallBatcher
from .claim import ClaimRequest, ClaimSurvey, Watermark, WatermarkCache
from .enqueue import EnqueueRequest
from .lost_replies import LostReplies, unknown
from .settle import Lease, lease_of
from .unit_of_work import UnitOfWork


class Moving:
    """The verbs that move work, and those that look at it."""

    def __init__(
        self, url: str, options: PostgresOptions | None = None, clock: Clock | None = None
    ) -> None:
        """Take where the server is. ``clock`` is for tests: usually the server's time counts."""
        self.capabilities = Capabilities(
            name="postgres", durable=True, shared=True, calls_at_once=2
        )
        self.leases_refused = 0
        self._options = options or PostgresOptions()
        self._database = Database(check_url(url), self._options)
        self._given_clock = clock
        self._clock = clock or SystemClock()
        self._waiters = ClaimWaiters(self._clock)
        self._waking = Notifier(self._database, self._waiters, self._clock, self._on)
        self._lanes = WatermarkCache(monotonic)
        self._survey = StoreStats()
        self._simple_requests = CallBatcher(self._enqueue_all)
        self._other_requests = CallBatcher(self._enqueue_all)
        self._orphans = AbandonedClaims(self._release)
        self._doubts = LostReplies(self._database)

    def _on(self) -> CallContext:
        now_us = None if self._given_clock is None else self._given_clock.now_us()
        return CallContext(self._options, self._options.schema, now_us)

    def _number(self) -> int:
        return int.from_bytes(random_bytes(8), "big") >> 1

    # --- move --------------------------------------------------------------------------------

    async def enqueue(
        self,
        jobs: Sequence[NewJob],
        *,
        caller: Caller = SYSTEM,
        on_duplicate: OnDuplicate = "refuse",
    ) -> list[Receipt]:
        """See ``Engine.enqueue``."""
        self._database.check_open()
        if not (type(jobs) is UniformBatch and enqueue_verbs.is_simple(jobs.like)):
            jobs = check_all("jobs", jobs, NewJob)
        if on_duplicate not in ("refuse", "skip"):
            raise InvalidInput("on_duplicate", f"{on_duplicate!r} is not refuse or skip")
        ids = rising_uuid7s(self._clock.now_us(), random_bytes(RANDOM_BYTES * len(jobs)))
        request = EnqueueRequest(jobs, caller, on_duplicate, ids)
        line = self._simple_requests if request.simple else self._other_requests
        await line.add(request)
        return request.receipts()

    async def _enqueue_all(self, requests: Sequence[EnqueueRequest]) -> None:
        """Decide on requests that came together."""
        on = self._on()
        sent_us = self._clock.now_us() - _SKEW_US
        try:
            due = await self._database.perform(lambda: enqueue_verbs.enqueue(requests, on))
        except CommitUnknown as doubt:
            await self._after_doubt(requests, sent_us, late=doubt.late)
            due = set()
        self._lanes.forget()
        queues = () if due else {new.queue for one in requests for new in one.kinds}
        self._waiters.wake(due, queues)

    async def _after_doubt(
        self, requests: Sequence[EnqueueRequest], sent_us: int, *, late: bool
    ) -> None:
        """Find out what became of enqueues whose answer was lost; do them if nothing did."""
        on = self._on()
        for number, request in enumerate(requests):
            if isinstance(request.answer, Exception):
                continue  # it was refused before anything was to be recorded
            try:
                request.answer = await lost_replies.enqueued(
                    request, sent_us, self._database, on, late=late
                )
            except Unavailable as error:
                for other in requests[number:]:  # none of them waits for it once more
                    other.answer = unknown("enqueue")
                    other.answer.__cause__ = error
                return
            except HoldfastError as error:
                request.answer = error

    async def settle(
        self, outcomes: Sequence[Outcome], *, caller: Caller = SYSTEM
    ) -> list[LeaseLost | None]:
        """See ``Engine.settle``."""
        self._database.check_open()
        checked = _checked(check_all("outcomes", outcomes, Outcome))
        if not checked:
            return []
        return self._counted(settle_verbs.answers(checked, await self._settle(checked, caller)))

    async def _settle(self, outcomes: Sequence[Outcome], caller: Caller) -> set[Lease]:
        """Settle; return the leases that ended by it, also where an answer was lost."""
        on = self._on()
        done: set[Lease] = set()
        left = list(outcomes)
        try:
            done, left = await self._database.perform(
                lambda: settle_verbs.settle_simply(outcomes, caller, on)
            )
        except CommitUnknown:
            self._doubts.add(outcomes)
        if left:
            done |= await self._settle_with_care(left, caller)
        return done | await self._doubts.settled(outcomes, done)

    async def _settle_with_care(self, outcomes: Sequence[Outcome], caller: Caller) -> set[Lease]:
        """Settle; return the leases that ended by it, all but those that are in doubt."""
        verb = lambda: settle_verbs.settle_with_care(outcomes, caller, self._on())
        try:
            done, changes = await self._database.perform(verb)
        except CommitUnknown:
            self._doubts.add(outcomes)
            try:
                done, changes = await self._database.perform(verb)
            except CommitUnknown as doubt:
                raise unknown("settle") from doubt.__cause__
        self._announce(changes)
        return done

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
        names = check_names("queues", queues)
        known = None if tasks is None else check_names("tasks", tasks)
        outcomes = _checked(check_all("settle", settle, Outcome))
        if wait_seconds != 0:
            check_seconds("wait_seconds", wait_seconds)
        wish = ClaimRequest(
            names, known, limit, worker, self._number(), float(lease_seconds), caller
        )
        give_up_us = self._clock.now_us() + int(wait_seconds * MICROSECONDS)
        guess: list[Watermark] | None = None
        while True:
            told = self._waking.tells_of(names)
            with self._waiters.expecting(names, known) as woken:
                claim, looked = await self._orphans.see_through(self._claim(wish, outcomes, guess))
                if claim.jobs or outcomes:
                    return claim
                if guess is None and self._clock.now_us() >= give_up_us:
                    return claim
                # What came before others knew that we wait is not told: only a look finds it.
                guess = None
                if looked is not None and (told or not await self._waking.register(names)):
                    wake_us = min(give_up_us, await self._wake_us(wish, looked))
                    with self._waking.waiting(names):
                        await self._waiters.sleep(woken, wake_us)
                    if self._clock.now_us() < wake_us:
                        guess = self._lanes.guess(wish)  # something came
                self._lanes.forget()

    async def _release(self, jobs: Sequence[Job]) -> None:
        with contextlib.suppress(HoldfastError):  # their leases run out instead
            await self.settle([release(job) for job in jobs])

    async def _claim(
        self, wish: ClaimRequest, outcomes: Sequence[Outcome], guess: list[Watermark] | None
    ) -> Claimed:
        """Settle and claim, in one step where nothing stands against it."""
        if left_over := await self._doubts.unclaimed():
            await self._release(left_over)
        first = settle_verbs.first_of_each(outcomes)
        plain = settle_verbs.completions(first.values())
        known = self._lanes.of(wish)
        lanes = known or guess
        if lanes is None or len(plain) < len(first):
            # Others may be waiting for what these outcomes make of their jobs.
            done = await self._settle(outcomes, wish.caller) if outcomes else set()
            jobs, looked = await self._claim_afresh(wish)
            return Claim(jobs, self._counted(settle_verbs.answers(outcomes, done))), looked
        on = self._on()
        before = [settle_verbs.complete(plain, wish.caller, on)] if plain else []
        try:
            told, jobs = await self._database.perform(
                lambda: claim_verbs.claim_alone(wish, lanes, before, on, guessed=known is None)
            )
        except CommitUnknown:
            self._doubts.add(outcomes)
            jobs = await self._doubts.claimed(wish)
            done = await self._settle(outcomes, wish.caller) if outcomes else set()
            if not jobs:
                jobs, _looked = await self._claim_afresh(wish._replace(nonce=self._number()))
            return Claim(jobs, self._counted(settle_verbs.answers(outcomes, done))), None
        self._lanes.claimed(wish, lanes, jobs)
        if not outcomes:
            return Claim(jobs, []), None
        tokens = {token for (token,) in told[0]} if told else set()
        done = {lease_of(outcome) for outcome in plain if outcome.token in tokens}
        left = [outcome for lease, outcome in first.items() if lease not in done]
        if left:
            done |= await self._settle_with_care(left, wish.caller)
            done |= await self._doubts.settled(outcomes, done)
            if len(jobs) < wish.limit:
                rest = wish._replace(limit=wish.limit - len(jobs), nonce=self._number())
                jobs += (await self._claim_afresh(rest))[0]
        return Claim(jobs, self._counted(settle_verbs.answers(outcomes, done))), None

    async def _claim_afresh(self, wish: ClaimRequest) -> tuple[list[Job], ClaimSurvey]:
        """Look where the lanes begin, and claim; with limits, if there are any."""
        began = monotonic()
        [told] = await self._database.read(lambda: execute_all(claim_verbs.look(wish, self._on())))
        looked = claim_verbs.looked_at(told)
        if looked.idle:
            return [], looked
        took_seconds = monotonic() - began
        try:
            jobs = await self._claim_from(looked, wish)
        except CommitUnknown:
            jobs = await self._doubts.claimed(wish)
            if jobs:
                return jobs, looked
            wish = wish._replace(nonce=self._number())
            try:
                jobs = await self._claim_from(looked, wish)
            except CommitUnknown:
                return await self._doubts.claimed(wish), looked
        if not looked.limits:
            self._lanes.found(wish, looked.lanes, took_seconds)
            self._lanes.claimed(wish, looked.lanes, jobs)
        return jobs, looked

    async def _claim_from(self, looked: ClaimSurvey, wish: ClaimRequest) -> list[Job]:
        if looked.limits:
            return await self._database.perform(
                lambda: limited_claim.claim_with_limits(wish, self._on())
            )
        _told, jobs = await self._database.perform(
            lambda: claim_verbs.claim_alone(wish, looked.lanes, (), self._on())
        )
        return jobs

    async def _wake_us(self, wish: ClaimRequest, looked: ClaimSurvey) -> int:
        """Return when to look again if nothing is told of, by the clock of this process."""
        now_us = looked.now_us
        moments = [lane.run_at_us for lane in looked.lanes]
        if not looked.idle:
            # What is due is not for us: when the first one after it is has to be asked.
            due = claim_verbs.next_due(wish, looked, self._on())
            [[[now_us, due_us]]] = await self._database.read(lambda: execute_all(due))
            opens_us = limited_claim.opens_at_us(looked.limits, looked.now_us)
            moments = [moment for moment in (due_us, opens_us) if moment is not None]
        # Not all at once: processes that were started together shall not poll together.
        wait_us = self._options.poll_interval_seconds * MICROSECONDS * random.uniform(0.8, 1.2)
        for moment in moments:
            wait_us = min(wait_us, max(0, moment - now_us))
        return self._clock.now_us() + int(wait_us)

    async def extend(
        self, held: Sequence[HeldJob], *, lease_seconds: float, caller: Caller = SYSTEM
    ) -> list[Renewal | LeaseLost]:
        """See ``Engine.extend``."""
        check_seconds("lease_seconds", lease_seconds, MAX_LEASE_SECONDS)
        leases = check_all("lock_held", held, HeldJob)  # type: ignore[type-abstract]
        self._database.check_open()
        if not leases:
            return []
        answers = await self._database.perform(
            lambda: settle_verbs.extend(leases, lease_seconds, caller, self._on()), harmless=True
        )
        self.leases_refused += sum(isinstance(answer, LeaseLost) for answer in answers)
        return answers

    # --- look --------------------------------------------------------------------------------

    async def get(
        self, ids: Sequence[str], *, tenant: str = DEFAULT_TENANT, caller: Caller = SYSTEM
    ) -> list[Job | None]:
        """See ``Engine.get``."""
        check_id(tenant, "tenant")
        wanted = check_all("ids", ids, str)
        names = [(tenant, job_id) for job_id in wanted if _could_be_an_id(job_id)]
        found = await self._database.read(lambda: queries.get(names, caller, self._on()))
        return [found.get((tenant, job_id)) for job_id in wanted]

    async def find(
        self,
        wanted: Filter = EVERYTHING,
        *,
        cursor: str = "",
        limit: int = 100,
        newest: bool = False,
        caller: Caller = SYSTEM,
    ) -> Page:
        """See ``Engine.find``."""
        check_page(limit)
        wanted, after = check_filter(wanted), read_cursor(cursor)
        jobs = await self._database.read(
            lambda: queries.find(wanted, after, limit + 1, caller, self._on(), newest=newest)
        )
        if len(jobs) <= limit:
            return Page(jobs)
        return Page(jobs[:limit], write_cursor(place_of(jobs[limit - 1])))

    async def counts(self, *, caller: Caller = SYSTEM) -> Mapping[str, Counts]:
        """See ``Engine.counts``."""
        return await self._database.read(lambda: queries.counts(caller, self._on()))

    async def queues(self, *, caller: Caller = SYSTEM) -> list[str]:
        """See ``Engine.queues``."""
        return await self._database.read(lambda: queries.queues(caller))

    async def groups(
        self, wanted: Filter = EVERYTHING, *, caller: Caller = SYSTEM
    ) -> list[FailureGroup]:
        """See ``Engine.groups``."""
        wanted = check_filter(wanted)
        return await self._database.read(lambda: queries.groups(wanted, caller, self._on()))

    async def history(
        self, ids: Sequence[str], *, tenant: str = DEFAULT_TENANT, caller: Caller = SYSTEM
    ) -> list[History | None]:
        """See ``Engine.history``."""
        check_id(tenant, "tenant")
        wanted = check_all("ids", ids, str)
        check_size("ids", len(wanted), 0, MAX_CLAIM)
        names = [(tenant, job_id) for job_id in wanted]
        possible = [name for name in names if _could_be_an_id(name[1])]
        told = await self._database.read(lambda: queries.history(possible, caller, self._on()))
        found = dict(zip(possible, told, strict=True))
        return [found.get(name) for name in names]

    async def audited(self, *, after: int = 0, limit: int = 100) -> list[AuditRecord]:
        """See ``Engine.audited``."""
        check_size("after", after, 0)
        check_page(limit)
        return await self._database.read(lambda: audit.audited(after, limit))

    async def validate(self) -> list[str]:
        """See ``Engine.validate``."""
        return await self._database.read(queries.problems)

    # --- for whoever watches ------------------------------------------------------------------

    def figures(self) -> StoreMetrics:
        """Return how the store was doing when it was last looked at: see ``take_survey``."""
        return StoreMetrics(self._survey, Histogram(()), Histogram(()))

    async def take_survey(self) -> float:
        """Look how every queue is doing; return how many seconds that took."""
        began = monotonic()
        self._survey = await self._database.read(lambda: queries.survey(self._on()))
        return monotonic() - began

    async def server_settings(self) -> Mapping[str, str]:
        """Return the settings of the server that decide whether acknowledged work survives."""
        [told] = await self._database.read(
            lambda: execute_all(Statement("read_server_settings", {}))
        )
        return dict(told)

    async def held_by(self, worker: str) -> list[Job]:
        """Return what this worker holds."""
        [told] = await self._database.read(
            lambda: execute_all(Statement("find_held", {"worker": worker}))
        )
        return [rows.job_of(row) for row in told]

    async def close(self) -> None:
        """See ``Engine.close``."""
        await self._waking.close()
        await self._orphans.close(self._options.patience_seconds)
        self._database.refuse()
        self._waiters.wake_all()
        await self._database.close()

    # --- afterwards --------------------------------------------------------------------------

    def _announce(self, changes: UnitOfWork) -> None:
        """Wake the claims of this process for which there may be something now."""
        if queues := changes.queues():  # to look again in vain is dear where dead rows pile up
            self._lanes.forget()
            self._waiters.wake((), queues)

    def _counted(self, answers: list[LeaseLost | None]) -> list[LeaseLost | None]:
        self.leases_refused += sum(answer is not None for answer in answers)
        return answers


_SKEW_US = 60 * MICROSECONDS
"""How far this machine's clock may be ahead of the server's."""


def _checked(outcomes: list[Outcome]) -> list[Outcome]:
    for outcome in outcomes:
        outcome.check()
    return outcomes


def _could_be_an_id(value: str) -> bool:
    return "\0" not in value and value.isprintable()
