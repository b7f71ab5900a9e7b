"""The core of an embedded engine: decide on the state, commit to the log, answer when durable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from holdfast.engines.audit_log import log_audit
from holdfast.engines.clock import Clock
from holdfast.engines.contract import Capabilities, Counts, EngineOptions
from holdfast.engines.queue_stats import QueueStats
from holdfast.model import audit as auditing
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.audit import Attribution, AuditEntry, AuditHead, AuditRecord
from holdfast.model.effects import Audited, Effect, Purged, RecordSet, ScheduleState
from holdfast.model.errors import DurabilityLost, EngineClosed, StorageFull, TooLarge
from holdfast.model.explain import ClaimUsage
from holdfast.model.group_life import GroupLife
from holdfast.model.job import MICROSECONDS, Job, State
from holdfast.model.operation_ledger import OperationLedger
from holdfast.model.policy import QueuePolicy
from holdfast.model.projection import ProjectionState
from holdfast.model.record import Record
from holdfast.model.subscription import Subscription

from .change_recorder import ChangeRecorder
from .history import HistoryStore, StateCounts
from .outage_book import OutageBook
from .record_book import RecordBook
from .sampler import FlowCounter
from .waiters import ClaimWaiters

T = TypeVar("T")


class WorkState(Protocol):
    """Everything that is in memory, with the queries that the verbs need."""

    seq: int
    """The sequence number of the last effect folded in."""
    last_at_us: int
    """When that effect happened."""
    last_created_us: int
    """When the job that was enqueued last was created; no two have the same time."""
    forget_before_us: int
    """Completed and cancelled jobs that finished before this are treated as deleted."""
    policies: dict[str, QueuePolicy]
    flags: dict[str, bool]
    schedules: dict[str, ScheduleState]
    group_lives: dict[str, GroupLife]
    """What people did with groups of failures, by id."""
    outages: OutageBook
    audit_head: AuditHead
    operations: OperationLedger
    subscriptions: dict[str, Subscription]
    fanout_version: int
    """Rises when a subscription begins: the version that events are given to."""
    projections: dict[str, ProjectionState]
    records: dict[tuple[str, str], Record]

    @property
    def last_token(self) -> int:
        """At least the highest token that any job has had."""

    def fold(self, effect: Effect, seq: int) -> Job | None:
        """Apply the effect of this sequence number; return its job as it is now.

        None if it has none, or one that is not in memory.
        """

    def get(self, tenant: str, job_id: str) -> Job | None:
        """Return the job if it is in memory: every unfinished one is."""

    def unfinished(self, tenant: str, queue: str, unique: str) -> Job | None:
        """Return the unfinished job that has this unique key."""

    def holder(self, token: int) -> Job | None:
        """Return the job in flight under this token."""

    @property
    def has_dependents(self) -> bool:
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
        chain: int = 1,
    ) -> list[Job]:
        """Return the next jobs to hand out, in order: due, unexpired, within reach and allowed.

        Each is followed by up to ``chain - 1`` others of its key, if there is room for them.
        """

    def flight_of_key(self, job: Job) -> Sequence[Job]:
        """Return the jobs of its key that are in flight, in order; none if that has no order."""

    def claim_usage(self, job: Job) -> ClaimUsage:
        """Return what counts against the limits of this job's queue, tenant and key."""

    def key_head(self, job: Job) -> Job | None:
        """Return the job of its key that goes first, if its queue keeps keys in order."""

    def next_due_us(self, queues: Collection[str], now_us: int) -> int | None:
        """Return when time alone may make another job claimable."""

    def overdue(self, limit: int, caller: Caller, now_us: int) -> list[Job]:
        """Return jobs in flight whose lease has ended, in the order in which they ended."""

    def expired(self, limit: int, caller: Caller, now_us: int) -> list[Job]:
        """Return unclaimed jobs whose ``expires_at`` has passed, oldest first."""

    def jobs(self) -> Iterable[Job]:
        """Return every job that is in memory: all unfinished ones, and maybe others."""

    def finished(self) -> Iterable[Job]:
        """Return the finished jobs that are in memory."""

    def counts(self, caller: Caller) -> Mapping[str, Counts]:
        """Return the counts of each queue, including finished jobs that only history has."""

    def survey(self, now_us: int) -> Mapping[str, QueueStats]:
        """Return statistics of each queue that has jobs or a policy."""

    def subtract_counts(self, gone: StateCounts) -> None:
        """Subtract forgotten jobs from the counts."""

    def problems(self) -> list[str]:
        """Return what is inconsistent, a sentence each."""


class CommitLog(Protocol):
    """What makes effects durable."""

    def add(self, effects: Sequence[Effect], first_seq: int, *, essential: bool) -> None:
        """Take these effects, or raise ``StorageFull`` or ``TooLarge`` and take none.

        Essential ones (all but new work) may use the space held in reserve.
        """

    def stop(self, error: BaseException) -> None:
        """Refuse everything from now on: the state may differ from the log."""

    @property
    def many_callers(self) -> bool:
        """Whether several callers share a flush, so that it pays to decide for them together."""

    def durable_future(self, callers: int = 1) -> asyncio.Future[None] | None:
        """Start flushing what was added; return a new future for when it is durable.

        None if it is durable already; ``callers`` is how many wait for it. Raise
        ``DurabilityLost``, at once or through the future, if it cannot become durable.
        """

    async def close(self) -> None:
        """Make everything durable and release the files."""


class EmbeddedCore:
    """The state, log, history and clock of an engine, and how its verbs use them."""

    def __init__(
        self,
        capabilities: Capabilities,
        state: WorkState,
        log: CommitLog,
        history: HistoryStore,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        options: EngineOptions,
    ) -> None:
        self.capabilities = capabilities
        self.state = state
        self.log = log
        self.history = history
        self.clock = clock
        self.random_bytes = random_bytes
        self.options = options
        self.remember_us = int(options.remember_seconds * MICROSECONDS)
        self.records = RecordBook(state.records)
        self.waiters = ClaimWaiters(clock)
        self.flows = FlowCounter()
        self.changes = ChangeRecorder(random_bytes)
        self.ahead_us = 0
        """How far the engine's time is ahead of the clock: it never goes back, and never stops."""
        self.token_offset = 0
        self.closed = False
        self.admin_lock = asyncio.Lock()
        """Admin actions run one at a time: nothing else changes a finished job."""
        self._forget_lock = asyncio.Lock()
        self._unlogged: list[AuditRecord] = []
        """The audit records that may not be durable yet: they are logged when they are."""

    def now_us(self) -> int:
        """Return the engine's time; completed and cancelled jobs older than allowed expire."""
        state = self.state
        now_us = max(self.clock.now_us() + self.ahead_us, state.last_at_us)
        state.forget_before_us = now_us - self.remember_us
        return now_us

    def check_open(self) -> None:
        """Raise ``EngineClosed`` if the engine was closed."""
        if self.closed:
            raise EngineClosed("this engine was closed: open another one")

    # --- answer ------------------------------------------------------------------------------

    async def answer(self, decide: Callable[[int], T]) -> T:
        """Decide, and answer when what the answer rests on is durable: refusals too."""
        self.check_open()
        try:
            return decide(self.now_us())
        finally:
            await self.durable()

    async def durable(self) -> None:
        """Return when everything committed so far is durable; then its audit is logged."""
        unlogged = self._unlogged
        if not unlogged:
            await self._flushed()
            return
        self._unlogged = []
        try:
            await self._flushed()
        except asyncio.CancelledError:
            self._unlogged = [*unlogged, *self._unlogged]  # the next caller logs them
            raise
        for record in unlogged:
            log_audit(record)

    async def _flushed(self) -> None:
        future = self.log.durable_future()
        if future is None:
            return
        if future.done() and future.exception() is None:
            # The flush ran on the event loop: yield, so that repeated calls do not starve others.
            await asyncio.sleep(0)
        else:
            await future

    # --- commit ------------------------------------------------------------------------------

    def commit(self, effects: Sequence[Effect], *, essential: bool = True) -> list[Job | None]:
        """Log and apply these effects; for each, return its job now, if it is in memory."""
        if not effects:
            return []
        state = self.state
        audit_head = state.audit_head
        first_seq = seq = state.seq + 1
        jobs: list[Job | None] = []
        try:
            self.log.add(effects, first_seq, essential=essential)
            for effect in effects:
                jobs.append(state.fold(effect, seq))
                seq += 1
        except (TooLarge, StorageFull, DurabilityLost, EngineClosed):
            raise  # nothing was logged
        except BaseException as error:
            # The log may have what the state has not, after an interrupt too: stop for good.
            self.log.stop(error)
            raise
        if state.audit_head is not audit_head:
            self._unlogged += [one.record for one in effects if isinstance(one, Audited)]
        if RecordSet in (type(effects[0]), type(effects[-1])):  # they are never in between
            self.records.took([one for one in effects if isinstance(one, RecordSet)])
        self.flows.count(effects, jobs)
        if self.changes.watched:
            self.changes.record(effects, jobs, first_seq, self.now_us())
        if self.waiters.waiting:
            self._wake_claims(effects, jobs)
        return jobs

    def _wake_claims(self, effects: Sequence[Effect], jobs: Sequence[Job | None]) -> None:
        """Wake the waiting claims for which there may be work now."""
        kinds: set[tuple[str, str]] = set()
        queues: set[str] = set()
        outages = self.state.outages
        for effect, job in zip(effects, jobs, strict=True):
            if job is None:
                if isinstance(effect, Purged) and effect.key is not None:
                    queues.add(effect.queue)  # it may have held others
                continue
            if outages.active and job.state is not State.IN_FLIGHT and outages.of(job.queue):
                self.waiters.wake_all()  # any queue of its dependency may have the next probe
                return
            if job.state is State.PENDING:
                kinds.add((job.queue, job.task))
            if job.state is not State.IN_FLIGHT and (
                job.ties.key is not None or job.queue in self.state.policies
            ):
                queues.add(job.queue)  # its end may have made room for any other
        self.waiters.wake(kinds, queues)

    def commit_most(
        self, effects: list[Effect], with_dependents: Callable[[list[Effect]], Sequence[Effect]]
    ) -> list[Job]:
        """Commit as many of these as fit into one commit, from the first on.

        ``with_dependents`` adds the effects that follow from them; return the jobs of these alone.
        """
        while effects:
            try:
                jobs = self.commit(with_dependents(effects))
                return [job for job in jobs[: len(effects)] if job is not None]
            except TooLarge:
                effects = effects[: len(effects) // 2]
            except StorageFull:
                break
        return []

    def audited(self, entries: Sequence[AuditEntry], now_us: int) -> list[Effect]:
        """Return the effects that add these entries to the audit."""
        head = self.state.audit_head
        effects: list[Effect] = []
        for entry in entries:
            record = auditing.chain(head, entry, now_us)
            head = auditing.head_of(record)
            effects.append(Audited(now_us, record))
        return effects

    def attributed(
        self, attribution: Attribution, entries: Sequence[AuditEntry], now_us: int
    ) -> list[Effect]:
        """Return the effects that add these entries, and the record that goes with the change."""
        return [*self.audited(entries, now_us), *self.records.once(attribution.once, now_us)]

    # --- look --------------------------------------------------------------------------------

    def find(self, tenant: str, job_id: str, caller: Caller = SYSTEM) -> Job | None:
        """Return the job from memory or history, unless it is forgotten or out of reach."""
        job = self.state.get(tenant, job_id)
        if job is None:
            job = self.history.get(tenant, job_id)
            if job is None or self.forgotten(job):
                return None
        return job if caller.unlimited or caller.can_access(job.tenant, job.scope) else None

    def forgotten(self, job: Job) -> bool:
        """Whether the job finished so long ago that it counts as gone."""
        return (
            job.state in (State.COMPLETED, State.CANCELLED)
            and job.finished_at_us < self.state.forget_before_us
        )

    async def forget(self) -> None:
        """Drop the jobs that finished too long ago, and their counts."""
        async with self._forget_lock:
            self.state.subtract_counts(await self.history.forget(self.state.forget_before_us))
