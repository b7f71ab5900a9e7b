"""The state of the memory engine: a dict of jobs; every query scans all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, MutableMapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from holdfast.engines.contract import Counts, EngineOptions
from holdfast.engines.dump.format import (
    DumpedAudit,
    DumpedEvent,
    DumpedFlag,
    DumpedGroup,
    DumpedJob,
    DumpedOperation,
    DumpedOutage,
    DumpedPolicy,
    DumpedProjection,
    DumpedRecord,
    DumpedSchedule,
    DumpedSubscription,
    DumpHead,
    DumpRecord,
)
from holdfast.engines.embedded.event_store import MemoryEvents
from holdfast.engines.embedded.history import AppliedEffect, StateCounts
from holdfast.engines.embedded.memory_history import MemoryHistory
from holdfast.engines.embedded.outage_book import OutageBook
from holdfast.engines.queue_stats import QueueStats, count_jobs
from holdfast.model import folding, operation
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.audit import AuditHead, head_of
from holdfast.model.chain import may_follow
from holdfast.model.effects import (
    Audited,
    Claimed,
    Died,
    Effect,
    Enqueued,
    EventAppended,
    FlagSet,
    GroupSet,
    JobEffect,
    OperationSet,
    OutageSet,
    PolicySet,
    ProjectionSet,
    RecordSet,
    ScheduleSet,
    ScheduleState,
    SubscriptionSet,
    job_key,
)
from holdfast.model.explain import ClaimUsage, key_head
from holdfast.model.group_life import GroupLife, count_death
from holdfast.model.job import FORGETTABLE, Job, State
from holdfast.model.operation_ledger import OperationLedger
from holdfast.model.outage import claimed, dependency_of, opens_at_us, room
from holdfast.model.policy import DEFAULT_POLICY, QueuePolicy
from holdfast.model.projection import ProjectionState
from holdfast.model.record import Record
from holdfast.model.subscription import Subscription

N = TypeVar("N", str, tuple[str, str])
T = TypeVar("T")
_JOB_BYTES = 500
"""About what a job takes besides its payload and its result."""


class MemoryState:
    """A dict of jobs."""

    def __init__(
        self, history: MemoryHistory, events: MemoryEvents, options: EngineOptions
    ) -> None:
        self.seq = 0
        self.last_at_us = 0
        self.last_created_us = 0
        self.policies: dict[str, QueuePolicy] = {}
        self.flags: dict[str, bool] = {}
        self.schedules: dict[str, ScheduleState] = {}
        self.group_lives: dict[str, GroupLife] = {}
        self.outages = OutageBook()
        self.audit_head = AuditHead()
        self.operations = OperationLedger()
        self.subscriptions: dict[str, Subscription] = {}
        self.fanout_version = 0
        self.projections: dict[str, ProjectionState] = {}
        self.records: dict[tuple[str, str], Record] = {}
        self._history = history
        self._events = events
        self._options = options
        self._forget_before_us = 0
        self._jobs = history.jobs
        self._turns: dict[tuple[str, str], int] = {}
        self._unordered: set[int] = set()
        """The tokens of jobs that were claimed while the keys of their queue had no order."""
        self._spent_until_us: dict[str, int] = {}

    @property
    def forget_before_us(self) -> int:
        """Completed and cancelled jobs that finished before this are dropped."""
        return self._forget_before_us

    @forget_before_us.setter
    def forget_before_us(self, before_us: int) -> None:
        self._forget_before_us = before_us
        for job in self._in(*FORGETTABLE):
            if job.finished_at_us < before_us:
                self._forget(job)
        self._bound()

    def _bound(self) -> None:
        """Drop the jobs that finished first while the others have too many bytes."""
        finished = self._in(*FORGETTABLE)
        excess_bytes = sum(map(_size_bytes, finished)) - self._options.max_history_bytes
        if excess_bytes > 0:
            for job in sorted(finished, key=lambda job: job.finished_at_us):
                if excess_bytes <= 0:
                    break
                excess_bytes -= _size_bytes(job)
                self._forget(job)

    def _forget(self, job: Job) -> None:
        del self._jobs[job.tenant, job.id]
        self._history.drop((job.tenant, job.id))

    def fold(self, effect: Effect, seq: int) -> Job | None:
        """Apply the effect of this sequence number; return its job as it is now."""
        self.seq, self.last_at_us = seq, effect.at_us
        if isinstance(effect, Audited):
            self.audit_head = head_of(effect.record)
            self._history.record(AppliedEffect(seq, effect, None, None))
        elif isinstance(effect, PolicySet):
            _put(self.policies, effect.queue, effect.policy)
            self._turns = {key: n for key, n in self._turns.items() if key[0] != effect.queue}
            self._spent_until_us.pop(effect.queue, None)
        elif isinstance(effect, FlagSet):
            _put(self.flags, effect.name, effect.on)
        elif isinstance(effect, ScheduleSet):
            _put(self.schedules, effect.name, effect.schedule)
        elif isinstance(effect, OutageSet):
            self.outages.set(effect.outage)
        elif isinstance(effect, OperationSet):
            self.operations.put(operation.decode(effect.record))
        elif isinstance(effect, GroupSet):
            _put(self.group_lives, effect.id, effect.life)
        elif isinstance(effect, EventAppended):
            self._events.record(effect.event)
        elif isinstance(effect, SubscriptionSet):
            _put(self.subscriptions, effect.name, effect.subscription)
            self.fanout_version = effect.fanout_version
        elif isinstance(effect, ProjectionSet):
            _put(self.projections, effect.name, effect.state)
        elif isinstance(effect, RecordSet):
            _put(self.records, (effect.kind, effect.name), effect.record)
        else:
            return self._fold_job(effect, seq)
        return None

    def _fold_job(self, effect: JobEffect, seq: int) -> Job | None:
        name = job_key(effect)
        old = self._jobs.get(name)
        job = folding.apply(old, effect, seq)
        if isinstance(effect, Enqueued):
            self.last_created_us = effect.job.created_at_us
        if job is not None and self._policy(job.queue).drops_payload(
            job, keep=self._options.keep_payload
        ):
            job = replace(job, payload=b"")
        self._history.record(AppliedEffect(seq, effect, old, job))
        self.operations.count(old, job)
        if job is None:
            self._jobs.pop(name, None)
            return None
        self._jobs[name] = job
        if isinstance(effect, Died):
            count_death(self.group_lives, job)
        self.outages.follow(old, effect)
        policy = self.policies.get(job.queue)
        if isinstance(effect, Claimed) and not self._policy(job.queue).ordered:
            self._unordered.add(effect.token)
        if policy is not None and isinstance(effect, Claimed):
            self._turns[job.queue, job.tenant] = effect.token
            spent_us = self._spent_until_us.get(job.queue, 0)
            self._spent_until_us[job.queue] = policy.spend(spent_us, effect.at_us)
        if job.state.finished and not any(
            other.queue == job.queue and other.tenant == job.tenant and not other.state.finished
            for other in self._jobs.values()
        ):
            self._turns.pop((job.queue, job.tenant), None)
        return job

    def load(self, record: DumpRecord) -> None:
        """Load a record of a dump."""
        if isinstance(record, DumpHead):
            self.seq, self.last_at_us = record.last_seq, record.at_us
        elif isinstance(record, DumpedJob):
            self._jobs[record.job.tenant, record.job.id] = record.job
        elif isinstance(record, DumpedPolicy):
            self.policies[record.queue] = record.policy
        elif isinstance(record, DumpedFlag):
            self.flags[record.name] = record.on
        elif isinstance(record, DumpedSchedule):
            self.schedules[record.name] = record.schedule
        elif isinstance(record, DumpedOutage):
            self.outages.set(record.outage)
        elif isinstance(record, DumpedOperation):
            self.operations.put(record.operation)
        elif isinstance(record, DumpedGroup):
            self.group_lives[record.id] = record.life
        elif isinstance(record, DumpedAudit):
            self.audit_head = head_of(record.record)
        else:
            self._load_events(record)

    def _load_events(self, record: DumpRecord) -> None:
        """Load a record of a dump that is about events."""
        if isinstance(record, DumpedSubscription):
            self.subscriptions[record.subscription.name] = record.subscription
            self.fanout_version = max(self.fanout_version, record.subscription.since_version)
        elif isinstance(record, DumpedProjection):
            self.projections[record.state.name] = record.state
        elif isinstance(record, DumpedRecord):
            self.records[record.record.kind, record.record.name] = record.record
        elif isinstance(record, DumpedEvent):
            self._events.record(record.event)
            self.fanout_version = max(self.fanout_version, record.event.fanout_version)
            self.seq = max(self.seq, record.event.position)

    @property
    def last_token(self) -> int:
        """The highest token that any job has had."""
        return max((job.token for job in self._jobs.values()), default=0)

    def get(self, tenant: str, job_id: str) -> Job | None:
        """Return the job, finished ones included while they are kept."""
        return self._jobs.get((tenant, job_id))

    def unfinished(self, tenant: str, queue: str, unique: str) -> Job | None:
        """Return the unfinished job that has this unique key."""
        return next(
            (
                job
                for job in self._jobs.values()
                if (job.tenant, job.queue, job.unique) == (tenant, queue, unique)
                and not job.state.finished
            ),
            None,
        )

    def holder(self, token: int) -> Job | None:
        """Return the job in flight under this token."""
        return next((job for job in self._in(State.IN_FLIGHT) if job.token == token), None)

    @property
    def has_dependents(self) -> bool:
        """Whether any job waits for another."""
        return True

    def dependents(self, tenant: str, job_id: str) -> Iterable[Job]:
        """Return the blocked jobs that wait for this one, in the order of their enqueueing."""
        waiting = [
            job
            for job in self._in(State.BLOCKED)
            if job.tenant == tenant and job_id in job.ties.waiting_for
        ]
        return sorted(waiting, key=lambda job: job.seq)

    def held_behind(self) -> Iterable[tuple[Job, int]]:
        """Return each dead job that holds up others of its key, and how many."""
        for dead in self._in(State.DEAD):
            if dead.ties.key is not None and self._policy(dead.queue).ordered:
                behind = sum(
                    not job.state.finished and job.ties.key_seq > dead.ties.key_seq
                    for job in self._of_key(dead)
                )
                if behind:
                    yield dead, behind

    def claimable(
        self,
        queues: Collection[str],
        tasks: Collection[str] | None,
        caller: Caller,
        limit: int,
        now_us: int,
        chain: int = 1,
    ) -> list[Job]:
        """Return the next jobs to hand out, in order: due, unexpired, within reach, allowed."""
        heads = self._heads(queues, tasks, caller, limit, now_us)
        room = limit - len(heads)
        found: list[Job] = []
        for head in heads:
            followers = self._followers(head, caller, min(room, chain - 1), now_us)
            room -= len(followers)
            found += [head, *followers]
        return found

    def _heads(
        self,
        queues: Collection[str],
        tasks: Collection[str] | None,
        caller: Caller,
        limit: int,
        now_us: int,
    ) -> list[Job]:
        due = [
            job
            for job in self._in(State.PENDING)
            if job.queue in queues
            and (tasks is None or job.task in tasks)
            and job.run_at_us <= now_us
            and (job.expires_at_us is None or job.expires_at_us > now_us)
            and caller.can_access(job.tenant, job.scope)
            and self._first_of_its_key(job)
        ]
        in_flight = list(self._in(State.IN_FLIGHT))
        turns, spent_us = dict(self._turns), dict(self._spent_until_us)
        out = dict(self.outages.active)
        picked: list[Job] = []
        while len(picked) < limit:
            offers = [
                self._offer(queue, due, in_flight, turns, spent_us, now_us)
                for queue in queues
                if (outage := out.get(dependency_of(queue))) is None or room(outage, now_us)
            ]
            best = min(filter(None, offers), key=_order, default=None)
            if best is None:
                break
            due.remove(best)
            in_flight.append(best)
            picked.append(best)
            turns[best.queue, best.tenant] = 2**62 + len(picked)
            policy = self._policy(best.queue)
            spent_us[best.queue] = policy.spend(spent_us.get(best.queue, 0), now_us)
            if (outage := out.get(dependency_of(best.queue))) is not None:
                out[outage.dependency] = claimed(outage, now_us)
        return picked

    def _offer(
        self,
        queue: str,
        due: Sequence[Job],
        in_flight: Sequence[Job],
        turns: Mapping[tuple[str, str], int],
        spent_us: Mapping[str, int],
        now_us: int,
    ) -> Job | None:
        """Return the job that this queue hands out next, if it may."""
        policy = self._policy(queue)
        here = [job for job in in_flight if job.queue == queue]
        if policy.room(len(here), spent_us.get(queue, 0), now_us) == 0:
            return None
        tenants = Counter(job.tenant for job in here)
        keys: Counter[tuple[str, str | None]] = Counter(
            (job.tenant, job.ties.key) for job in here if job.ties.key is not None
        )
        allowed = [
            job
            for job in due
            if job.queue == queue
            and _below(tenants[job.tenant], policy.max_per_tenant)
            and _below(keys[job.tenant, job.ties.key], policy.max_per_key)
            and not (policy.ordered and keys[job.tenant, job.ties.key])
        ]
        if policy.fair:
            return min(
                allowed,
                key=lambda job: (turns.get((queue, job.tenant), 0), _order(job)),
                default=None,
            )
        return min(allowed, key=_order, default=None)

    def _followers(self, head: Job, caller: Caller, most: int, now_us: int) -> list[Job]:
        """Return the jobs of its key that are claimed with this one, right behind it."""
        policy = self._policy(head.queue)
        if (
            head.ties.key is None
            or not policy.ordered
            or policy.limits_claims
            or self.outages.of(head.queue) is not None
        ):
            return []
        later = [
            job
            for job in self._of_key(head)
            if job.ties.key_seq > head.ties.key_seq
            and (not job.state.finished or job.state is State.DEAD)
        ]
        found: list[Job] = []
        for job in sorted(later, key=lambda job: job.ties.key_seq):
            if (
                len(found) >= most
                or job.state is not State.PENDING
                or not may_follow(job, head, now_us)
                or not caller.can_access(job.tenant, job.scope)
            ):
                break
            found.append(job)
        return found

    def flight_of_key(self, job: Job) -> Sequence[Job]:
        """Return the jobs of its key that are in flight, in order; none if that has no order."""
        if (
            job.ties.key is None
            or not self._policy(job.queue).ordered
            or job.token in self._unordered
        ):
            return ()
        flight = [
            one
            for one in self._of_key(job)
            if one.state is State.IN_FLIGHT and one.token not in self._unordered
        ]
        return sorted(flight, key=lambda one: one.ties.key_seq)

    def _first_of_its_key(self, job: Job) -> bool:
        if job.ties.key is None or not self._policy(job.queue).ordered:
            return True
        return not any(
            other.state is State.IN_FLIGHT
            or (
                other.ties.key_seq < job.ties.key_seq
                and (not other.state.finished or other.state is State.DEAD)
            )
            for other in self._of_key(job)
        )

    def _of_key(self, job: Job) -> list[Job]:
        return [
            other
            for other in self._jobs.values()
            if (other.tenant, other.queue, other.ties.key) == (job.tenant, job.queue, job.ties.key)
        ]

    def _policy(self, queue: str) -> QueuePolicy:
        return self.policies.get(queue, DEFAULT_POLICY)

    def claim_usage(self, job: Job) -> ClaimUsage:
        """Return what counts against the limits of this job's queue, tenant and key."""
        here = [one for one in self._in(State.IN_FLIGHT) if one.queue == job.queue]
        theirs = [one for one in here if one.tenant == job.tenant]
        of_key = sum(job.ties.key is not None and one.ties.key == job.ties.key for one in theirs)
        spent_us = self._spent_until_us.get(job.queue, 0)
        return ClaimUsage(len(here), len(theirs), of_key, spent_us)

    def key_head(self, job: Job) -> Job | None:
        """Return the job of its key that goes first, if its queue keeps keys in order."""
        if job.ties.key is None or not self._policy(job.queue).ordered:
            return None
        return key_head(job, self._of_key(job))

    def next_due_us(self, queues: Collection[str], now_us: int) -> int | None:
        """Return when time alone may make another job claimable."""
        moments = [job.run_at_us for job in self._in(State.PENDING) if job.run_at_us > now_us]
        for queue in queues:
            spent_us = self._spent_until_us.get(queue, 0)
            opens_us = self._policy(queue).opens_at_us(spent_us, now_us)
            if opens_us is not None:
                moments.append(opens_us)
            outage = self.outages.of(queue)
            opens_us = None if outage is None else opens_at_us(outage, now_us)
            if opens_us is not None:
                moments.append(opens_us)
        return min(moments, default=None)

    def overdue(self, limit: int, caller: Caller, now_us: int) -> list[Job]:
        """Return jobs in flight whose lease has ended, those that ended first first."""
        ended = [
            job
            for job in self._in(State.IN_FLIGHT)
            if job.lease_until_us <= now_us and caller.can_access(job.tenant, job.scope)
        ]
        return sorted(ended, key=lambda job: (job.lease_until_us, job.token))[:limit]

    def expired(self, limit: int, caller: Caller, now_us: int) -> list[Job]:
        """Return unclaimed jobs whose ``expires_at`` has passed, oldest first."""
        ended = [
            (job.expires_at_us, job.seq, job)
            for job in self._in(State.PENDING, State.BLOCKED)
            if job.expires_at_us is not None
            and job.expires_at_us <= now_us
            and caller.can_access(job.tenant, job.scope)
        ]
        return [job for _at, _seq, job in sorted(ended)[:limit]]

    def jobs(self) -> Iterable[Job]:
        """Return every job that is kept."""
        return list(self._jobs.values())

    def finished(self) -> Iterable[Job]:
        """Return the finished jobs."""
        return [job for job in self._jobs.values() if job.state.finished]

    def counts(self, caller: Caller) -> Mapping[str, Counts]:
        """Return the counts of each queue."""
        return count_jobs(self._jobs.values(), caller)

    def survey(self, now_us: int) -> Mapping[str, QueueStats]:
        """Return statistics of each queue."""
        counts = self.counts(SYSTEM)
        return {
            queue: self._survey(queue, counts.get(queue, Counts()), now_us)
            for queue in sorted({*counts, *self.policies})
        }

    def _survey(self, queue: str, counts: Counts, now_us: int) -> QueueStats:
        jobs = [job for job in self._jobs.values() if job.queue == queue]
        pending = [job for job in jobs if job.state is State.PENDING]
        first = [job for job in pending if self._first_of_its_key(job)]
        policy = self._policy(queue)
        return QueueStats(
            counts=counts,
            scheduled=sum(job.run_at_us > now_us for job in first),
            held=sum(not job.state.finished and self._is_held(job) for job in jobs),
            oldest_due_us=min(
                (job.run_at_us for job in first if job.run_at_us <= now_us), default=None
            ),
            stuck=sum(
                job.state is State.IN_FLIGHT and job.lease_until_us <= now_us for job in jobs
            ),
            paused=policy.paused,
            outage=self.outages.of(queue) is not None,
        )

    def _is_held(self, job: Job) -> bool:
        if job.ties.key is None or not self._policy(job.queue).ordered:
            return False
        return any(
            other.state is State.DEAD and other.ties.key_seq < job.ties.key_seq
            for other in self._of_key(job)
        )

    def subtract_counts(self, gone: StateCounts) -> None:
        """Do nothing: the counts are computed from the jobs."""

    def problems(self) -> list[str]:
        """Return what is inconsistent: a dict of jobs cannot be."""
        return []

    def _in(self, *states: State) -> Iterable[Job]:
        return [job for job in self._jobs.values() if job.state in states]


def _put(into: MutableMapping[N, T], name: N, value: T | None) -> None:
    if value is None:
        into.pop(name, None)
    else:
        into[name] = value


def _size_bytes(job: Job) -> int:
    """Return about how much memory a finished job takes."""
    return _JOB_BYTES + len(job.payload) + len(job.result or b"")


def _order(job: Job) -> tuple[int, tuple[int, int]]:
    return -job.priority, job.place


def _below(count: int, most: int | None) -> bool:
    return most is None or count < most
