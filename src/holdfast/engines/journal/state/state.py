"""The state of the journal: what is in memory, and the queries of the verbs."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from sys import intern

from msgspec.structs import force_setattr

from holdfast.engines.contract import Counts
from holdfast.engines.embedded.history import AppliedEffect, StateCounts
from holdfast.engines.queue_stats import QueueStats
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.audit import AuditHead
from holdfast.model.effects import Enqueued, ScheduleState
from holdfast.model.errors import InvariantViolation
from holdfast.model.explain import ClaimUsage, key_head
from holdfast.model.job import FORGETTABLE, Job, State
from holdfast.model.operation import Operation
from holdfast.model.outage import Outage, dependency_of, opens_at_us, room
from holdfast.model.policy import DEFAULT_POLICY, QueuePolicy

from .index import JournalIndex
from .limits import LimitUsage
from .ordering import holding
from .ready_heads import ReadyHeads
from .ready_queue import ReadyQueue, TenantState

_BLOCKED, _PENDING, _IN_FLIGHT = State.BLOCKED, State.PENDING, State.IN_FLIGHT
MANY_QUEUES = 256
"""A claim from more queues than this does not look at each of them."""
TOKENS_PER_SEGMENT_BITS = 36
"""Each opening issues tokens above its first segment's number times two to this."""


class JournalState(JournalIndex):
    """See ``WorkState`` for its methods."""

    # --- load --------------------------------------------------------------------------------

    def empty_copy(self) -> JournalState:
        """Return an empty state that records to the same stores."""
        return JournalState(
            self.record,
            self.history_seq,
            record_event=self.record_event,
            events_seq=self.events_seq,
            keep_payload=self.keep_payload,
        )

    def load_settings(
        self,
        policies: Mapping[str, QueuePolicy],
        limits: Mapping[str, LimitUsage],
        flags: Mapping[str, bool],
        schedules: Mapping[str, ScheduleState],
        audit_head: AuditHead,
        operations: Iterable[Operation] = (),
    ) -> None:
        """Load the settings of a snapshot, before its jobs."""
        for queue, policy in policies.items():
            self.limits.set(queue, policy)
        self.limits.states.update(limits)
        self.flags.update(flags)
        self.schedules.update(schedules)
        self.audit_head = audit_head
        for operation in operations:
            self.operations.put(operation)

    def load(
        self, jobs: Iterable[Job], seq: int, last_at_us: int, *, in_history: bool = True
    ) -> None:
        """Fill an empty state from a snapshot's jobs.

        With ``in_history`` the finished ones are dead and only hold others of their key; without,
        the snapshot is older than the history, and they are recorded there.
        """
        self.seq, self.last_at_us, self._due_us = seq, last_at_us, last_at_us
        due: defaultdict[tuple[str, str, str, int], list[Job]] = defaultdict(list)
        later: list[tuple[int, Job]] = []
        keyed: list[Job] = []
        number = 1
        for job in jobs:
            share_names(job)
            if job.state.finished and (in_history or self.record is not None):
                number += self._load_finished(job, number, in_history=in_history)
                continue
            tenant = self._admit(job)
            if job.state is not _PENDING or not self._free_to_queue(job):
                self._load_other(tenant, job, keyed)
                continue
            if job.ties.key is not None:
                self._key_queue(job).put(job)
            tenant.tallies[job.queue][_PENDING] += 1
            if job.run_at_us <= last_at_us:
                due[job.tenant, job.queue, job.task, job.priority].append(job)
            else:
                later.append((job.run_at_us, job))
            if job.unique is not None:
                self._unique[job.tenant, job.queue, job.unique] = job
            if job.expires_at_us is not None:
                self._expiring.add(job.expires_at_us, job)
        for ready_queue in due.values():
            self._ready_queue(self._tenants[ready_queue[0].tenant], ready_queue[0]).load(
                ready_queue
            )
        self._scheduled.load(later)
        self._scheduled_of.update(Counter(job.queue for _at_us, job in later))
        for job in sorted(keyed, key=_place):
            if self._key_queue(job).candidate() is job:
                self._queue(self._tenants[job.tenant], job)
        self._count_behind()

    def _count_behind(self) -> None:
        for (_tenant, queue, _key), key_queue in self._keys.items():
            self._behind_of[queue] += key_queue.behind

    def _admit(self, job: Job) -> TenantState:
        """Add a job, to no index yet; return its tenant."""
        self._check(None, job)
        self.last_token = max(self.last_token, job.token)
        tenant = self._tenants.get(job.tenant)
        if tenant is None:
            tenant = self._tenants[job.tenant] = TenantState()
        if job.id in tenant.jobs:
            raise InvariantViolation(f"job {job.id!r} is there twice")
        tenant.jobs[job.id] = job
        return tenant

    def _load_other(self, tenant: TenantState, job: Job, keyed: list[Job]) -> None:
        self._enter(tenant, job)
        if job.state is _PENDING and not self._free_to_queue(job):
            keyed.append(job)

    def _load_finished(self, job: Job, number: int, *, in_history: bool) -> int:
        """Hold others of its key, and record it if history cannot have it."""
        if job.state is State.DEAD and job.ties.key is not None:
            self._key_queue(job).hold(job)
        if not in_history and self.record is not None and self.seq > self.history_seq:
            self.record(AppliedEffect(number, Enqueued(job.created_at_us, job), None, job))
        return not in_history

    # --- look --------------------------------------------------------------------------------

    def get(self, tenant: str, job_id: str) -> Job | None:
        """Return the job, finished ones included while they are in memory."""
        kept = self._tenants.get(tenant)
        job = None if kept is None else kept.jobs.get(job_id)
        if job is None or (job.state in FORGETTABLE and job.finished_at_us < self.forget_before_us):
            return None
        return job

    def unfinished(self, tenant: str, queue: str, unique: str) -> Job | None:
        """Return the unfinished job that has this unique key."""
        return self._unique.get((tenant, queue, unique))

    def holder(self, token: int) -> Job | None:
        """Return the job in flight under this token."""
        return self._leases.get(token)

    def in_flight(self) -> list[Job]:
        """Return the jobs in flight."""
        return list(self._leases.values())

    @property
    def has_dependents(self) -> bool:
        """Whether any job waits for another."""
        return bool(self._dependents)

    def dependents(self, tenant: str, job_id: str) -> list[Job]:
        """Return the blocked jobs that wait for this one, in the order of their enqueueing."""
        return self._dependents.of(tenant, job_id)

    def held_behind(self) -> Iterator[tuple[Job, int]]:
        """Return each dead job that holds up others of its key, and how many."""
        for dead, behind in holding(self._keys):
            if behind and self.limits.ordered(dead.queue):
                yield dead, behind

    def holds(self) -> Iterator[Job]:
        """Return every dead job that would hold up others of its key, for a snapshot."""
        return (dead for dead, _behind in holding(self._keys))

    # --- claim -------------------------------------------------------------------------------

    def claimable(
        self,
        queues: Collection[str],
        tasks: Collection[str] | None,
        caller: Caller,
        limit: int,
        now_us: int,
        chain: int = 1,
    ) -> list[Job]:
        """Return the next jobs to hand out, in order: due, unexpired, within reach and allowed."""
        if now_us > self._due_us:
            self._promote(now_us)
        limited_queues, out = self.limits.limited, self.outages.active

        def is_plain(queue: str) -> bool:
            return queue in queues and queue not in limited_queues and not self.outages.of(queue)

        many = len(queues) > MANY_QUEUES
        if many:
            merged = self._first_of_many(queues, tasks, caller, now_us)
        else:
            plain = [one for one in queues if is_plain(one)] if limited_queues or out else queues
            merged = self._merged(plain, tasks, caller)
        source = self._claimable(merged, caller, now_us)
        if limited_queues or out:
            limited = [
                self._limited(queue, tasks, caller, now_us)
                for queue in (() if many else queues)
                if queue in limited_queues and not self.outages.of(queue)
            ]
            probes = [
                self._probes(outage, queues, tasks, caller, now_us) for outage in out.values()
            ]
            source = heapq.merge(source, *limited, *probes, key=_order)
        found: list[Job] = []
        for job in source:
            found.append(job)
            if len(found) == limit:
                break
        if chain == 1 or len(found) == limit:
            return found
        return self._with_followers(found, is_plain, caller, limit, now_us, chain)

    def _with_followers(
        self,
        heads: list[Job],
        is_plain: Callable[[str], bool],
        caller: Caller,
        limit: int,
        now_us: int,
        chain: int,
    ) -> list[Job]:
        """Return each of these with those of its key that are claimed with it, if it has any."""
        room = limit - len(heads)
        found: list[Job] = []
        for head in heads:
            found.append(head)
            most = min(room, chain - 1)
            if most and head.ties.key is not None and is_plain(head.queue):
                for job in islice(self._key_queue(head).followers(head, now_us), most):
                    if not caller.can_access(job.tenant, job.scope):
                        break
                    found.append(job)
                    room -= 1
        return found

    def flight_of_key(self, job: Job) -> Sequence[Job]:
        """Return the jobs of its key that are in flight, in order; none if that has no order."""
        if self._free_to_queue(job) or job.token in self.unordered:
            return ()
        flight = self._key_queue(job).flight()
        if self.unordered:
            flight = [one for one in flight if one.token not in self.unordered]
        return flight

    def _probes(
        self,
        outage: Outage,
        queues: Collection[str],
        tasks: Collection[str] | None,
        caller: Caller,
        now_us: int,
    ) -> Iterator[Job]:
        """Yield what the outage of a dependency allows of these queues, without a further look."""
        allowed = room(outage, now_us)
        if not allowed:
            return iter(())
        some = self._ready if len(queues) > MANY_QUEUES else queues
        of_queues = [
            self._limited(queue, tasks, caller, now_us)
            for queue in some
            if dependency_of(queue) == outage.dependency and queue in queues
        ]
        return islice(heapq.merge(*of_queues, key=_order), allowed)

    def _limited(
        self, queue: str, tasks: Collection[str] | None, caller: Caller, now_us: int
    ) -> Iterator[Job]:
        """Yield what the queue's policy allows, in its order."""
        tenants = {tenant for tenant, _task, _priority in self._ready.get(queue, ())}
        jobs_of = {
            tenant: self._claimable(self._merged([queue], tasks, caller, tenant), caller, now_us)
            for tenant in sorted(tenants)
        }
        in_flight = {name: tenant.in_flight(queue) for name, tenant in self._tenants.items()}
        return self.limits.allowed(queue, jobs_of, in_flight, now_us)

    def _claimable(self, source: Iterator[Job], caller: Caller, now_us: int) -> Iterator[Job]:
        everything = caller.unlimited
        for job in source:
            if job.expires_at_us is not None and job.expires_at_us <= now_us:
                continue
            if everything or caller.can_access(job.tenant, job.scope):
                yield job

    def _merged(
        self,
        queues: Collection[str],
        tasks: Collection[str] | None,
        caller: Caller,
        only: str | None = None,
    ) -> Iterator[Job]:
        """Return the due jobs of these queues, of one tenant or of all, in order."""
        ready: list[tuple[int, ReadyQueue]] = []
        for queue in queues:
            for (tenant, task, priority), ready_queue in self._ready.get(queue, {}).items():
                within = caller.tenant is None or tenant == caller.tenant
                if within and (tasks is None or task in tasks) and only in (None, tenant):
                    ready_queue.trim()
                    ready.append((priority, ready_queue))
        ready.sort(key=lambda ready_queue: -ready_queue[0])
        for _priority, group in groupby(ready, key=lambda ready_queue: ready_queue[0]):
            same = [ready_queue for _, ready_queue in group]
            yield from same[0] if len(same) == 1 else heapq.merge(*same, key=_place)

    def _first_of_many(
        self, queues: Collection[str], tasks: Collection[str] | None, caller: Caller, now_us: int
    ) -> Iterator[Job]:
        """Do the same for very many queues, with or without limits, without a look at each."""
        if self._heads is None:
            self._heads = ReadyHeads(self._ready)
        limited_queues, seen = self.limits.limited, set[str]()

        def opened(queue: str, kind: tuple[str, str, int]) -> Iterator[Job] | None:
            tenant, task, _priority = kind
            within = caller.tenant is None or tenant == caller.tenant
            if not within or (tasks is not None and task not in tasks) or queue not in queues:
                return None
            if self.outages.of(queue):
                return None
            if queue not in limited_queues:
                return iter(self._ready[queue][kind])
            if queue in seen:
                return None
            seen.add(queue)  # with all kinds of jobs that it has
            return self._limited(queue, tasks, caller, now_us)

        return self._heads.jobs(tasks, opened)

    def claim_usage(self, job: Job) -> ClaimUsage:
        """Return what counts against the limits of this job's queue, tenant and key."""
        of_tenant = {name: one.in_flight(job.queue) for name, one in self._tenants.items()}
        of_key, spent_until_us = self.limits.usage(job)
        in_flight = sum(of_tenant.values())
        return ClaimUsage(in_flight, of_tenant.get(job.tenant, 0), of_key, spent_until_us)

    def key_head(self, job: Job) -> Job | None:
        """Return the job of its key that goes first, if its queue keeps keys in order."""
        key_queue = self._keys.get((job.tenant, job.queue, job.ties.key))
        if key_queue is None or not self.limits.ordered(job.queue):
            return None
        return key_head(job, key_queue.members())

    def next_due_us(self, queues: Collection[str], now_us: int) -> int | None:
        """Return when time alone may make another job claimable."""
        if now_us > self._due_us:
            self._promote(now_us)
        moments = [self._scheduled.next_us(self._tenants)]
        if self.policies:
            moments += [
                self.limits.opens_at_us(queue, now_us) for queue in self.policies if queue in queues
            ]
        if self.outages.active:
            # Of very many queues, those that have a job to wait for it.
            some = self._ready if len(queues) > MANY_QUEUES else queues
            held = [one for queue in some if queue in queues and (one := self.outages.of(queue))]
            moments += [opens_at_us(outage, now_us) for outage in held]
        return min((moment for moment in moments if moment is not None), default=None)

    def overdue(self, limit: int, caller: Caller, now_us: int) -> list[Job]:
        """Return jobs in flight whose lease has ended, those that ended first first."""
        ended = [
            job
            for job in self._leases.values()
            if job.lease_until_us <= now_us and caller.can_access(job.tenant, job.scope)
        ]
        ended.sort(key=lambda job: (job.lease_until_us, job.token))
        return ended[:limit]

    def expired(self, limit: int, caller: Caller, now_us: int) -> list[Job]:
        """Return unclaimed jobs whose ``expires_at`` has passed, oldest first."""
        if caller.unlimited:
            return self._expiring.peek(now_us, limit, self._tenants)
        expired = self._expiring.peek(now_us, len(self._expiring), self._tenants)
        return [job for job in expired if caller.can_access(job.tenant, job.scope)][:limit]

    # --- count -------------------------------------------------------------------------------

    def counts(self, caller: Caller) -> Mapping[str, Counts]:
        """Return the counts of each queue; for a caller with scopes of what is in memory."""
        found: dict[str, dict[str, int]] = {}
        if caller.scopes:
            for job in self.jobs():
                if caller.can_access(job.tenant, job.scope):
                    states = found.setdefault(job.queue, {})
                    states[job.state] = states.get(job.state, 0) + 1
        else:
            for name, tenant in self._tenants.items():
                if caller.tenant is not None and name != caller.tenant:
                    continue
                for queue, tally in tenant.tallies.items():
                    for state, count in tally.items():
                        if count:
                            states = found.setdefault(queue, {})
                            states[state] = states.get(state, 0) + count
        return {queue: Counts(**states) for queue, states in sorted(found.items())}

    def survey(self, now_us: int) -> Mapping[str, QueueStats]:
        """Return statistics of each queue without scanning its jobs."""
        if now_us > self._due_us:
            self._promote(now_us)
        counts = self.counts(SYSTEM)
        stuck = Counter(job.queue for job in self._leases.values() if job.lease_until_us <= now_us)
        found: dict[str, QueueStats] = {}
        for queue in sorted({*counts, *self.policies}):
            heads = (ready_queue.first() for ready_queue in self._ready.get(queue, {}).values())
            policy = self.policies.get(queue, DEFAULT_POLICY)
            found[queue] = QueueStats(
                counts=counts.get(queue, Counts()),
                scheduled=self._scheduled_of.get(queue, 0),
                held=self._behind_of.get(queue, 0) if policy.ordered else 0,
                oldest_due_us=min(
                    (job.run_at_us for job in heads if job is not None), default=None
                ),
                stuck=stuck[queue],
                paused=policy.paused,
                outage=self.outages.of(queue) is not None,
            )
        return found

    def add_counts(self, kept: StateCounts) -> None:
        """Add the jobs in history to the counts."""
        for (name, queue, state), count in kept.items():
            tenant = self._tenants.get(name)
            if tenant is None:
                tenant = self._tenants[name] = TenantState()
            tenant.tallies[queue][state] += count

    def subtract_counts(self, gone: StateCounts) -> None:
        """Subtract forgotten jobs from the counts."""
        for (name, queue, state), count in gone.items():
            tenant = self._tenants[name]
            tenant.tallies[queue][state] -= count
            if not any(tenant.tallies[queue].values()):
                del tenant.tallies[queue]
            self._tidy(name, tenant)

    def __len__(self) -> int:
        """How many unfinished jobs there are."""
        unfinished = 0
        for tenant in self._tenants.values():
            for tally in tenant.tallies.values():
                unfinished += tally[_PENDING] + tally[_BLOCKED] + tally[_IN_FLIGHT]
        return unfinished

    def jobs(self) -> Iterator[Job]:
        """Yield every job that is in memory."""
        before_us = self.forget_before_us
        for tenant in self._tenants.values():
            for job in tenant.jobs.values():
                if job.finished_at_us >= before_us or job.state not in FORGETTABLE:
                    yield job

    def finished(self) -> Iterator[Job]:
        """Yield the finished jobs that are in memory."""
        for _seq, job in self._finished:
            if self.get(job.tenant, job.id) is job:
                yield job

    # --- check -------------------------------------------------------------------------------

    def problems(self) -> list[str]:
        """Recount everything; return what is inconsistent, a sentence each."""
        found: list[str] = []
        tally: Counter[tuple[str, str, str]] = Counter()
        real: Counter[str] = Counter()
        for job in self.jobs():
            if not job.state.finished:
                tally[job.tenant, job.queue, job.state] += 1
            self._recount(job, real)
            if job.state is _IN_FLIGHT and self._leases.get(job.token) is not job:
                found.append(f"job {job.id!r} is in flight but its token is not")
        for name, tenant in self._tenants.items():
            for queue, states in tenant.tallies.items():
                for state, count in states.items():
                    counted = tally[name, queue, state]
                    if count != counted and not State(state).finished:
                        found.append(f"queue {queue!r} counts {count} {state}, has {counted}")
                    elif count < 0:
                        found.append(f"queue {queue!r} counts {count} {state}")
        if sum(self._scheduled_of.values()) != len(self._scheduled):
            found.append("the queues count other scheduled jobs than there are")
        found.extend(
            f"{count} {what} are indexed, and there are {real[what]}"
            for what, count in self._indexed().items()
            if count != real[what]
        )
        for ready_queue in self._all_ready():
            jobs = list(ready_queue)
            if len(jobs) != len(ready_queue) or jobs != sorted(jobs, key=_place):
                found.append(f"the ready queue of task {jobs[:1]} is out of order")
        return found

    def _recount(self, job: Job, real: Counter[str]) -> None:
        waits = job.state is _PENDING or job.state is _BLOCKED
        queued = job.state is _PENDING and (
            self._free_to_queue(job) or self._key_queue(job).candidate() is job
        )
        real["leases"] += job.state is _IN_FLIGHT
        real["due jobs"] += queued and job.run_at_us <= self._due_us
        real["scheduled jobs"] += queued and job.run_at_us > self._due_us
        real["jobs that can expire"] += waits and job.expires_at_us is not None
        real["unique keys"] += job.unique is not None and not job.state.finished
        real["jobs behind a dead one"] += (
            job.ties.key is not None
            and not job.state.finished
            and self._key_queue(job).holds_up(job)
        )
        real["jobs with a key"] += job.ties.key is not None and not job.state.finished
        real["dependencies"] += len(job.ties.waiting_for) if job.state is _BLOCKED else 0

    def _indexed(self) -> dict[str, int]:
        return {
            "leases": len(self._leases),
            "due jobs": sum(map(len, self._all_ready())),
            "scheduled jobs": len(self._scheduled),
            "jobs behind a dead one": sum(self._behind_of.values()),
            "jobs that can expire": len(self._expiring),
            "unique keys": len(self._unique),
            "jobs with a key": sum(map(len, self._keys.values())),
            "dependencies": len(self._dependents),
        }

    def _all_ready(self) -> Iterator[ReadyQueue]:
        for ready in self._ready.values():
            yield from ready.values()


def share_names(job: Job) -> None:
    """Make a decoded job share its names with other jobs: a backlog repeats them."""
    force_setattr(job, "tenant", intern(job.tenant))
    force_setattr(job, "queue", intern(job.queue))
    force_setattr(job, "task", intern(job.task))
    if job.scope:
        force_setattr(job, "scope", intern(job.scope))
    if job.worker:
        force_setattr(job, "worker", intern(job.worker))


def _place(job: Job) -> tuple[int, int]:
    return job.place


def _order(job: Job) -> tuple[int, int, int]:
    return -job.priority, job.run_at_us, job.seq
