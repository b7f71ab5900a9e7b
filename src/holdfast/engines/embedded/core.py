"""Between the verbs of an embedded engine and what it keeps: decide, commit, answer.

A verb decides on the state, hands the effects to the log, folds them into the state, and answers
once everything that the answer rests on is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from holdfast.engines.clock import Clock
from holdfast.engines.contract import Capabilities, Counts, EngineOptions
from holdfast.engines.queue_stats import QueueStats
from holdfast.model import audit as auditing
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.audit import AuditEntry, AuditHead
from holdfast.model.effects import Audited, Effect, Purged, ScheduleState
from holdfast.model.errors import DurabilityLost, EngineClosed, StorageFull, TooLarge
from holdfast.model.job import MICROSECONDS, Job, State
from holdfast.model.policy import QueuePolicy

from .history import HistoryStore, StateCounts
from .waiters import ClaimWaiters

T = TypeVar("T")


class WorkState(Protocol):
    """Everything that is kept in memory, and the questions that the verbs ask of it."""

    seq: int
    """The sequence number of the last effect folded in."""
    last_at_us: int
    """When that effect happened."""
    forget_before_us: int
    """Completed and cancelled jobs that finished before this are as if they were not there."""
    policies: dict[str, QueuePolicy]
    flags: dict[str, bool]
    schedules: dict[str, ScheduleState]
    audit_head: AuditHead

    @property
    def last_token(self) -> int:
        """At least the highest token that any job has had."""

    def fold(self, effect: Effect, seq: int) -> Job | None:
        """Take in the effect of this sequence number; return its job as it is now.

        None if it has none, or one that is not in memory.
        """

    def get(self, tenant: str, job_id: str) -> Job | None:
        """Return the job if it is in memory: every unfinished one is."""

    def unfinished(self, tenant: str, queue: str, unique: str) -> Job | None:
        """Return the unfinished job that has this unique key."""

    def holder(self, token: int) -> Job | None:
        """Return the job in flight under this token."""

    @property
    def anybody_waits(self) -> bool:
        """Whether any job waits for another."""

    def dependents(self, tenant: str, job_id: str) -> Iterable[Job]:
        """Return the blocked jobs that wait for this one, in the order of their enqueueing."""

    def held_behind(self) -> Iterable[tuple[Job, int]]:
        """Return each dead job that holds up others of its key, and how many."""

    def claimable(
        self,
        queues: Collection[str],
        tasks: Collection[str] | None,
        caller: Caller,
        limit: int,
        now_us: int,
    ) -> list[Job]:
        """Return the next jobs to hand out, in order: due, unexpired, within reach and allowed."""

    def next_due_us(self, queues: Collection[str], now_us: int) -> int | None:
        """Return when time alone may make another job claimable."""

    def overdue(self, limit: int, caller: Caller, now_us: int) -> list[Job]:
        """Return jobs in flight whose lease has ended, those that ended first first."""

    def expired(self, limit: int, caller: Caller, now_us: int) -> list[Job]:
        """Return unclaimed jobs whose ``expires_at`` has passed, oldest first."""

    def jobs(self) -> Iterable[Job]:
        """Return every job that is in memory: all unfinished ones, and maybe others."""

    def finished(self) -> Iterable[Job]:
        """Return the finished jobs that are in memory."""

    def counts(self, caller: Caller) -> Mapping[str, Counts]:
        """Return the counts of each queue, finished jobs that are kept elsewhere included."""

    def survey(self, now_us: int) -> Mapping[str, QueueStats]:
        """Return what a watcher wants to know of each queue that has jobs or a policy."""

    def discount(self, gone: StateCounts) -> None:
        """Count so many jobs less: they were forgotten."""

    def problems(self) -> list[str]:
        """Return what is inconsistent, a sentence each."""


class CommitLog(Protocol):
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


class EmbeddedCore:
    """A state, a log, a past and a clock, and how verbs use them."""

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
        self.capabilities = capabilities
        self.leases_refused = 0
        self._state = state
        self._log = log
        self._past = past
        self._clock = clock
        self._random_bytes = random_bytes
        self._options = options
        self._remember_us = int(options.remember_seconds * MICROSECONDS)
        self._waiters = ClaimWaiters(clock)
        self._ahead_us = 0
        """How far the engine's time is ahead of the clock: it never goes back, and never stops."""
        self._token_offset = 0
        self._closed = False
        self._operating = asyncio.Lock()
        """Operations take turns: nothing else changes a finished job."""
        self._forgetting = asyncio.Lock()

    async def _forget(self) -> None:
        """Let go of what finished too long ago, and count it no more."""
        async with self._forgetting:
            self._state.discount(await self._past.forget(self._state.forget_before_us))

    # --- answer ------------------------------------------------------------------------------

    async def _answer(self, decide: Callable[[int], T]) -> T:
        """Decide, and answer when what the answer rests on is durable: refusals too."""
        self._check_open()
        try:
            return decide(self._now_us())
        finally:
            await self._durable()

    async def _durable(self) -> None:
        landing = self._log.landing()
        if landing is None:
            return
        if landing.done() and landing.exception() is None:
            # Made durable on the event loop itself: whoever calls again and again must not have
            # the loop to himself.
            await asyncio.sleep(0)
        else:
            await landing

    # --- commit ------------------------------------------------------------------------------

    def _commit(self, effects: Sequence[Effect], *, essential: bool = True) -> list[Job | None]:
        """Take these effects in; for each, return its job as it is now, if it is in memory."""
        if not effects:
            return []
        state = self._state
        first_seq = seq = state.seq + 1
        jobs: list[Job | None] = []
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
        if self._waiters.anybody:
            self._announce(effects, jobs)
        return jobs

    def _announce(self, effects: Sequence[Effect], jobs: Sequence[Job | None]) -> None:
        """Wake the claims for which there may be something now."""
        kinds: set[tuple[str, str]] = set()
        queues: set[str] = set()
        for effect, job in zip(effects, jobs, strict=True):
            if job is None:
                if isinstance(effect, Purged) and effect.key is not None:
                    queues.add(effect.queue)  # it may have held others
                continue
            if job.state is State.PENDING:
                kinds.add((job.queue, job.task))
            if job.state is not State.IN_FLIGHT and (
                job.ties.key is not None or job.queue in self._state.policies
            ):
                queues.add(job.queue)  # its end may have made room for any other
        self._waiters.wake(kinds, queues)

    def _commit_most(
        self, effects: list[Effect], following: Callable[[list[Effect]], Sequence[Effect]]
    ) -> list[Job]:
        """Commit as many of these as there is room for in one step, from the first on.

        With them goes what follows from them; return the jobs of these alone.
        """
        while effects:
            try:
                jobs = self._commit(following(effects))
                return [job for job in jobs[: len(effects)] if job is not None]
            except TooLarge:
                effects = effects[: len(effects) // 2]
            except StorageFull:
                break
        return []

    def _audited(self, entries: Sequence[AuditEntry], now_us: int) -> list[Effect]:
        """Return the effects that add these entries to the audit."""
        head = self._state.audit_head
        effects: list[Effect] = []
        for entry in entries:
            record = auditing.chain(head, entry, now_us)
            head = auditing.head_of(record)
            effects.append(Audited(now_us, record))
        return effects

    # --- look --------------------------------------------------------------------------------

    def _find(self, tenant: str, job_id: str, caller: Caller = SYSTEM) -> Job | None:
        """Return the job, wherever it is kept, unless it is forgotten or out of reach."""
        job = self._state.get(tenant, job_id)
        if job is None:
            job = self._past.get(tenant, job_id)
            if job is None or self._forgotten(job):
                return None
        return job if caller.unlimited or caller.reaches(job.tenant, job.scope) else None

    def _forgotten(self, job: Job) -> bool:
        return (
            job.state in (State.COMPLETED, State.CANCELLED)
            and job.finished_at_us < self._state.forget_before_us
        )

    def _now_us(self) -> int:
        state = self._state
        now_us = max(self._clock.now_us() + self._ahead_us, state.last_at_us)
        state.forget_before_us = now_us - self._remember_us
        return now_us

    def _check_open(self) -> None:
        if self._closed:
            raise EngineClosed("this engine was closed: open another one")
