"""What the journal keeps in memory, folded from effects, with an index for each query.

That is all unfinished work and its settings, and finished jobs until history has them.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, MutableMapping
from typing import TypeVar

from msgspec.structs import replace

from holdfast.engines.embedded.history import AppliedEffect
from holdfast.engines.embedded.outage_book import OutageBook
from holdfast.model import folding, operation
from holdfast.model.audit import AuditHead, head_of
from holdfast.model.effects import (
    SETTINGS,
    WHOLE,
    Archived,
    Audited,
    Claimed,
    Died,
    Edited,
    Effect,
    Enqueued,
    EventAppended,
    Extended,
    FlagSet,
    Freed,
    GroupSet,
    JobEffect,
    Noted,
    OperationSet,
    OutageSet,
    PolicySet,
    ProjectionSet,
    Purged,
    RecordSet,
    Replayed,
    Restored,
    ScheduleSet,
    ScheduleState,
    Setting,
    SubscriptionSet,
    Unblocked,
)
from holdfast.model.errors import InvariantViolation
from holdfast.model.event import Event
from holdfast.model.group_life import GroupLife, count_death
from holdfast.model.job import Job, State
from holdfast.model.operation_ledger import OperationLedger
from holdfast.model.policy import DEFAULT_POLICY
from holdfast.model.projection import ProjectionState
from holdfast.model.record import Record
from holdfast.model.subscription import Subscription

from .limits import QueueLimits
from .ordering import DependentIndex, KeyName, KeyQueue
from .ready_heads import ReadyHeads
from .ready_queue import ReadyQueue, Tenants, TenantState, TimeIndex

N = TypeVar("N", str, tuple[str, str])
T = TypeVar("T")
RecordEffect = Callable[[AppliedEffect], None]

_BLOCKED, _PENDING, _IN_FLIGHT, _DEAD = (
    State.BLOCKED,
    State.PENDING,
    State.IN_FLIGHT,
    State.DEAD,
)
_UNRECORDED = frozenset({Enqueued, Claimed, Extended, Unblocked, Freed})
"""Effects that history does not need: later effects include what they did."""

_BEFORE: Mapping[type[JobEffect], State] = {
    Replayed: _DEAD,
    Archived: _DEAD,
    Restored: State.ARCHIVED,
}
"""The earlier state of a finished job that is not in memory, by the effect on it."""


class JournalIndex:
    """Everything in memory, and the indexes that follow each effect.

    Every due job that may be claimed is in its ready queue, every later one in ``_scheduled``;
    ``_due_us`` is the limit between them. A job that waits behind others of its key is in neither.
    """

    def __init__(
        self,
        record: RecordEffect | None = None,
        history_seq: int = 0,
        *,
        record_event: Callable[[Event], None] | None = None,
        events_seq: int = 0,
        keep_payload: bool = True,
    ) -> None:
        """Take where to record effects, and the seq up to which history has everything.

        ``record_event`` and ``events_seq`` are the same for events. ``keep_payload`` tells whether
        finished jobs keep theirs, where no policy does.
        """
        self.seq = 0
        self.last_at_us = 0
        self.last_created_us = 0
        self.forget_before_us = 0
        self.last_token = 0
        """The highest token that any job here has had."""
        self.flags: dict[str, bool] = {}
        self.schedules: dict[str, ScheduleState] = {}
        self.group_lives: dict[str, GroupLife] = {}
        self.outages = OutageBook()
        self.audit_head = AuditHead()
        self.operations = OperationLedger()
        self.limits = QueueLimits()
        self.policies = self.limits.policies
        self.subscriptions: dict[str, Subscription] = {}
        self.projections: dict[str, ProjectionState] = {}
        self.records: dict[tuple[str, str], Record] = {}
        self.fanout_version = 0
        self.last_event_seq = 0
        """The position of the last event; events themselves are not in memory."""
        self.record_event = record_event
        self.events_seq = events_seq
        self.record = record
        self.keep_payload = keep_payload
        self.history_seq = history_seq
        self._tenants: Tenants = {}
        self._ready: dict[str, dict[tuple[str, str, int], ReadyQueue]] = {}
        self._heads: ReadyHeads | None = None
        """For claims from very many queues; made by the first of them."""
        self._scheduled = TimeIndex()
        self._scheduled_of: defaultdict[str, int] = defaultdict(int)
        """How many jobs of each queue are in it."""
        self._expiring = TimeIndex()
        self._due_us = 0
        self._leases: dict[int, Job] = {}
        self._unique: dict[tuple[str, str, str], Job] = {}
        self._keys: dict[KeyName, KeyQueue] = {}
        self.unordered: set[int] = set()
        """The tokens of jobs that were claimed while the keys of their queue had no order."""
        self._behind_of: defaultdict[str, int] = defaultdict(int)
        """How many jobs of each queue wait behind a dead one of their key."""
        self._dependents = DependentIndex()
        self._finished: deque[tuple[int, Job]] = deque()

    def fold(self, effect: Effect, seq: int) -> Job | None:
        """Apply the effect of this sequence number; return its job as it is now."""
        if type(effect) is EventAppended or isinstance(effect, SETTINGS):
            self._set(effect, seq)
            return None
        if isinstance(effect, WHOLE):
            name, job_id = effect.job.tenant, effect.job.id
        else:
            name, job_id = effect.tenant, effect.id
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = TenantState()
        old = tenant.jobs.get(job_id)
        job = self._kept(folding.apply(old, effect, seq))
        if job is not None and (job.unique is not None or job.state is _IN_FLIGHT):
            self._check(old, job)
        self._advance(effect.at_us, seq)
        if type(effect) is Enqueued:
            self.last_created_us = effect.job.created_at_us
        if self.record is not None and seq > self.history_seq and type(effect) not in _UNRECORDED:
            self.record(AppliedEffect(seq, effect, old, job))
        if type(effect) is Noted:
            return job
        self.operations.count(old, job)
        if name not in self._tenants:
            self._tenants[name] = tenant
        keyed = old if job is None else job
        if keyed is not None and keyed.ties.key is not None:
            self._replace_keyed(tenant, old, job, effect)
        else:
            self._replace(tenant, old, job, effect)
        if job is not None:
            self._count_effect(job, effect)
        self.outages.follow(old, effect)
        return job

    def _count_effect(self, job: Job, effect: JobEffect) -> None:
        """Count a claim or a death where there is something that counts it."""
        if type(effect) is Claimed:
            self.limits.claimed(job, effect.at_us)
            if job.ties.key is not None and not self.limits.ordered(job.queue):
                self.unordered.add(job.token)
        elif self.group_lives and type(effect) is Died:
            count_death(self.group_lives, job)

    def _kept(self, job: Job | None) -> Job | None:
        """Return the job without its payload, if it is finished and does not keep it."""
        if job is not None and (self.policies or not self.keep_payload):
            policy = self.policies.get(job.queue, DEFAULT_POLICY)
            if policy.drops_payload(job, keep=self.keep_payload):
                return replace(job, payload=b"")
        return job

    def _replace(
        self, tenant: TenantState, old: Job | None, job: Job | None, effect: JobEffect
    ) -> None:
        """Replace a job by its new version."""
        # The new job first: from here on the old one is a ghost in the indexes.
        if job is not None:
            tenant.jobs[job.id] = job
        elif old is not None:
            del tenant.jobs[old.id]
        if old is not None:
            self._leave(tenant, old)
        elif type(effect) is not Enqueued:
            self._leave_history(tenant, job, effect)
        if job is not None:
            self._enter(tenant, job)

    def _replace_keyed(
        self, tenant: TenantState, old: Job | None, job: Job | None, effect: JobEffect
    ) -> None:
        """The same for a job with a key: another job may become the next of its key."""
        keyed = job or old
        key_queue = self._key_queue(keyed)
        if type(effect) is Enqueued and old is None and job is not None and key_queue.is_last(job):
            self._enqueue_last(tenant, key_queue, job)
            return
        was, behind = key_queue.candidate(), key_queue.behind
        self._replace(tenant, old, job, effect)
        if self.unordered and old is not None and old.token not in self._leases:
            self.unordered.discard(old.token)
        self._requeue(key_queue, was, old)
        if keyed is not None:
            self._behind_of[keyed.queue] += key_queue.behind - behind
            if not key_queue:
                del self._keys[keyed.tenant, keyed.queue, keyed.ties.key]

    def _enqueue_last(self, tenant: TenantState, key_queue: KeyQueue, job: Job) -> None:
        """The same for a new job behind all of its key: no other can become the next one."""
        tenant.jobs[job.id] = job
        self._enter(tenant, job)
        if key_queue.candidate() is job and not self._free_to_queue(job):
            self._queue(tenant, job)
        self._behind_of[job.queue] += key_queue.holds_up(job)

    def _advance(self, at_us: int, seq: int) -> None:
        self.seq = seq
        if at_us > self.last_at_us:
            self.last_at_us = at_us
            if at_us > self._due_us:
                self._promote(at_us)

    def _set(self, effect: Setting, seq: int) -> None:
        self._advance(effect.at_us, seq)
        if isinstance(effect, EventAppended):
            self._append(effect.event, seq)
        elif isinstance(effect, PolicySet):
            was_ordered = self.limits.ordered(effect.queue)
            self.limits.set(effect.queue, effect.policy)
            if self.limits.ordered(effect.queue) != was_ordered:
                self._requeue_all(effect.queue)
        elif isinstance(effect, OutageSet):
            self.outages.set(effect.outage)
        elif isinstance(effect, OperationSet):
            self.operations.put(operation.decode(effect.record))
        elif isinstance(effect, Audited):
            self.audit_head = head_of(effect.record)
            if self.record is not None and seq > self.history_seq:
                self.record(AppliedEffect(seq, effect, None, None))
        else:
            self._put(effect)

    def _put(
        self, effect: FlagSet | ScheduleSet | GroupSet | SubscriptionSet | ProjectionSet | RecordSet
    ) -> None:
        """Store something under its name."""
        if isinstance(effect, FlagSet):
            _put(self.flags, effect.name, effect.on)
        elif isinstance(effect, ScheduleSet):
            _put(self.schedules, effect.name, effect.schedule)
        elif isinstance(effect, GroupSet):
            _put(self.group_lives, effect.id, effect.life)
        elif isinstance(effect, SubscriptionSet):
            _put(self.subscriptions, effect.name, effect.subscription)
            self.fanout_version = effect.fanout_version
        elif isinstance(effect, ProjectionSet):
            _put(self.projections, effect.name, effect.state)
        else:
            _put(self.records, (effect.kind, effect.name), effect.record)

    def _append(self, event: Event, seq: int) -> None:
        if event.position != seq:
            raise InvariantViolation(f"event {event.id} has position {event.position}, not {seq}")
        self.last_event_seq = seq
        if self.record_event is not None and seq > self.events_seq:
            self.record_event(event)

    def _check(self, old: Job | None, job: Job) -> None:
        """Raise if the job cannot be what this effect says; nothing has been touched yet."""
        if job.state is _IN_FLIGHT and self._leases.get(job.token, old) is not old:
            raise InvariantViolation(f"token {job.token} of job {job.id!r} is held already")
        if job.unique is not None and not job.state.finished:
            key = job.tenant, job.queue, job.unique
            if self._unique.get(key, old) is not old:
                raise InvariantViolation(
                    f"unique key {job.unique!r} of job {job.id!r} is taken already"
                )

    # --- leave and enter ---------------------------------------------------------------------

    def _leave(self, tenant: TenantState, job: Job) -> None:
        state = job.state
        self._count(tenant, job.queue, state, -1)
        if state is _PENDING:
            if self._free_to_queue(job):
                self._unqueue(job)
        elif state is _IN_FLIGHT:
            del self._leases[job.token]
            if job.ties.key is not None:
                self.limits.ended(job)
        elif state is _BLOCKED:
            self._dependents.drop(job)
        else:
            if state is _DEAD and job.ties.key is not None:
                self._key_queue(job).release(job.id)
            return
        if job.ties.key is not None:
            self._key_queue(job).drop(job)
        if job.unique is not None:
            del self._unique[job.tenant, job.queue, job.unique]
        if job.expires_at_us is not None and state is not _IN_FLIGHT:
            self._expiring.drop(self._tenants)

    def _leave_history(self, tenant: TenantState, job: Job | None, effect: JobEffect) -> None:
        """Remove a finished job that is not in memory, and its hold."""
        if isinstance(effect, Purged):
            self._count(tenant, effect.queue, effect.state, -1)
            self._release((effect.tenant, effect.queue, effect.key), effect.id)
        elif job is not None:
            before = job.state if type(effect) is Edited else _BEFORE[type(effect)]
            self._count(tenant, job.queue, before, -1)
            if job.ties.key is not None:
                self._key_queue(job).release(job.id)

    def _release(self, name: KeyName, job_id: str) -> None:
        key_queue = None if name[2] is None else self._keys.get(name)
        if key_queue is not None:
            was, behind = key_queue.candidate(), key_queue.behind
            key_queue.release(job_id)
            self._behind_of[name[1]] += key_queue.behind - behind
            self._requeue(key_queue, was, None)
            if not key_queue:
                del self._keys[name]

    def _enter(self, tenant: TenantState, job: Job) -> None:
        state = job.state
        self._count(tenant, job.queue, state, 1)
        if state is _PENDING:
            if self._free_to_queue(job):
                self._queue(tenant, job)
        elif state is _IN_FLIGHT:
            self._leases[job.token] = job
            self.last_token = max(self.last_token, job.token)
            if job.ties.key is not None:
                self.limits.started(job)
        elif state is _BLOCKED:
            self._dependents.add(job)
        else:
            self._enter_finished(tenant, job)
            return
        if job.ties.key is not None:
            self._key_queue(job).put(job)
        if job.unique is not None:
            self._unique[job.tenant, job.queue, job.unique] = job
        if job.expires_at_us is not None and state is not _IN_FLIGHT:
            self._expiring.add(job.expires_at_us, job)

    def _enter_finished(self, tenant: TenantState, job: Job) -> None:
        self._finished.append((self.seq, job))
        if job.state is _DEAD and job.ties.key is not None:
            self._key_queue(job).hold(job)
        if job.queue in self.policies:
            tally = tenant.tallies[job.queue]
            if not (tally[_PENDING] or tally[_BLOCKED] or tally[_IN_FLIGHT]):
                self.limits.retire(job.queue, job.tenant)
        if self.seq <= self.history_seq:
            self.evict(self.seq)

    def _count(self, tenant: TenantState, queue: str, state: State, change: int) -> None:
        # History counts the finished jobs that it has itself.
        if self.seq > self.history_seq or not state.finished:
            tenant.tallies[queue][state] += change

    def evict(self, history_seq: int) -> None:
        """Drop the finished jobs up to this sequence number: history has them."""
        finished = self._finished
        while finished and finished[0][0] <= history_seq:
            job = finished.popleft()[1]
            tenant = self._tenants.get(job.tenant)
            if tenant is not None and tenant.jobs.get(job.id) is job:
                del tenant.jobs[job.id]
                self._tidy(job.tenant, tenant)

    def _tidy(self, name: str, tenant: TenantState) -> None:
        """Drop a tenant that has no jobs."""
        if not tenant.jobs and not any(map(any, map(dict.values, tenant.tallies.values()))):
            self._tenants.pop(name, None)

    # --- keys --------------------------------------------------------------------------------

    def _key_queue(self, job: Job | None) -> KeyQueue:
        if job is None:
            raise InvariantViolation("a key without a job")
        name = job.tenant, job.queue, job.ties.key
        key_queue = self._keys.get(name)
        if key_queue is None:
            key_queue = self._keys[name] = KeyQueue()
        return key_queue

    def _free_to_queue(self, job: Job) -> bool:
        """Whether the job may be claimed whatever others of its key do."""
        return job.ties.key is None or not self.limits.ordered(job.queue)

    def _requeue(self, key_queue: KeyQueue, was: Job | None, old: Job | None) -> None:
        """Make the next job of a key claimable, and no other."""
        now = key_queue.candidate()
        either = was or now
        if was is now or either is None or not self.limits.ordered(either.queue):
            return
        if was is not None:
            self._unqueue(was)
            if was is not old:
                self._replace_by_copy(key_queue, was)
        if now is not None:
            self._queue(self._tenants[now.tenant], now)

    def _replace_by_copy(self, key_queue: KeyQueue, job: Job) -> None:
        """Replace an unchanged job by a copy, so that its entry in a ready queue is a ghost."""
        again = replace(job)
        self._tenants[job.tenant].jobs[job.id] = again
        key_queue.drop(job)
        key_queue.put(again)
        if job.unique is not None:
            self._unique[job.tenant, job.queue, job.unique] = again
        if job.expires_at_us is not None:
            self._expiring.drop(self._tenants)
            self._expiring.add(job.expires_at_us, again)

    def _requeue_all(self, queue: str) -> None:
        """Rebuild the ready queues of a queue whose policy on ordering changed."""
        self._ready.pop(queue, None)
        self._scheduled.discard(lambda job: job.queue == queue, self._tenants)
        self._scheduled_of.pop(queue, None)
        waiting = [
            (job.place, job, tenant)
            for tenant in self._tenants.values()
            for job in tenant.jobs.values()
            if job.queue == queue and job.state is _PENDING
        ]
        for _place, job, tenant in sorted(waiting, key=lambda one: one[0]):
            if self._free_to_queue(job) or self._key_queue(job).candidate() is job:
                self._queue(tenant, job)

    # --- ready queues ------------------------------------------------------------------------

    def _queue(self, tenant: TenantState, job: Job) -> None:
        if job.run_at_us <= self._due_us:
            self._make_ready(tenant, job)
        else:
            self._scheduled.add(job.run_at_us, job)
            self._scheduled_of[job.queue] += 1

    def _unqueue(self, job: Job) -> None:
        if job.run_at_us > self._due_us:
            self._scheduled.drop(self._tenants)
            self._scheduled_of[job.queue] -= 1
            return
        ready = self._ready[job.queue]
        key = job.tenant, job.task, job.priority
        ready_queue = ready[key]
        ready_queue.drop(job)
        if not ready_queue:
            # A claim visits every ready queue of its queue: keep none that is empty.
            del ready[key]
            if not ready:
                del self._ready[job.queue]

    def _ready_queue(self, tenant: TenantState, job: Job) -> ReadyQueue:
        ready = self._ready.get(job.queue)
        if ready is None:
            ready = self._ready[job.queue] = {}
        key = job.tenant, job.task, job.priority
        ready_queue = ready.get(key)
        if ready_queue is None:
            ready_queue = ready[key] = ReadyQueue(tenant.jobs)
        return ready_queue

    def _promote(self, now_us: int) -> None:
        self._due_us = now_us
        if not self._scheduled.any_by(now_us):
            return
        for job in self._scheduled.take(now_us, self._tenants):
            self._scheduled_of[job.queue] -= 1
            self._make_ready(self._tenants[job.tenant], job)

    def _make_ready(self, tenant: TenantState, job: Job) -> None:
        ready_queue = self._ready_queue(tenant, job)
        ready_queue.add(job)
        if self._heads is not None:
            self._heads.added(job, ready_queue)


def _put(into: MutableMapping[N, T], name: N, value: T | None) -> None:
    if value is None:
        into.pop(name, None)
    else:
        into[name] = value
