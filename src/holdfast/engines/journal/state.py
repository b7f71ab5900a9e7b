"""Everything that the journal keeps, folded from effects, with an index for each question."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import groupby
from sys import intern

from msgspec.structs import force_setattr

from holdfast.engines.base import Counts
from holdfast.model import lifecycle
from holdfast.model.access import Caller
from holdfast.model.effects import Effect, Enqueued
from holdfast.model.errors import InvariantViolation
from holdfast.model.job import Job, State

from .lanes import Lane, Tenants, TenantState, Timetable, is_current

_BLOCKED, _PENDING, _IN_FLIGHT = State.BLOCKED, State.PENDING, State.IN_FLIGHT
_FORGETTABLE = frozenset({State.COMPLETED, State.CANCELLED})
_FORGET_STEP = 2
"""How many forgotten jobs to drop for each one that finishes: the backlog only shrinks."""


class JournalState:
    """The state of the journal; see ``embedded.WorkState`` for what its methods promise.

    Every due job is in its lane, every later one in the timetable ``_scheduled``; the border
    between them is ``_due_us``.
    """

    def __init__(self) -> None:
        self.seq = 0
        self.last_at_us = 0
        self.forget_before_us = 0
        self.last_token = 0
        """The highest token that any job here has had."""
        self._tenants: Tenants = {}
        self._lines: dict[str, dict[tuple[str, str, int], Lane]] = {}
        self._scheduled = Timetable()
        self._expiring = Timetable()
        self._due_us = 0
        self._leases: dict[int, Job] = {}
        self._unique: dict[tuple[str, str, str], Job] = {}
        self._finished: deque[Job] = deque()

    # --- fold --------------------------------------------------------------------------------

    def fold(self, effect: Effect, seq: int) -> Job:
        """Take in the effect of this sequence number; return the job as it is now."""
        if isinstance(effect, Enqueued):
            name, job_id = effect.job.tenant, effect.job.id
        else:
            name, job_id = effect.tenant, effect.id
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = TenantState()
        old = tenant.jobs.get(job_id)
        job = lifecycle.apply(old, effect, seq)
        if job.unique is not None or job.state is _IN_FLIGHT:
            self._check(old, job)
        self.seq = seq
        if effect.at_us > self.last_at_us:
            self.last_at_us = effect.at_us
            if effect.at_us > self._due_us:
                self._promote(effect.at_us)
        # First of all the new job: the indexes know the old one as a ghost from here on.
        if not tenant.jobs:
            self._tenants[name] = tenant
        tenant.jobs[job_id] = job
        if old is not None:
            self._leave(tenant, old)
        self._enter(tenant, job)
        return job

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

    def _leave(self, tenant: TenantState, job: Job) -> None:
        state = job.state
        tenant.tallies[job.queue][state] -= 1
        if state is _PENDING:
            if job.run_at_us <= self._due_us:
                self._leave_lane(job)
            else:
                self._scheduled.drop(self._tenants)
        elif state is _IN_FLIGHT:
            del self._leases[job.token]
        if job.unique is not None and not state.finished:
            del self._unique[job.tenant, job.queue, job.unique]
        if job.expires_at_us is not None and (state is _PENDING or state is _BLOCKED):
            self._expiring.drop(self._tenants)

    def _leave_lane(self, job: Job) -> None:
        lanes = self._lines[job.queue]
        key = job.tenant, job.task, job.priority
        lane = lanes[key]
        lane.drop(job)
        if not lane:
            # A claim looks at every lane of its queue: none of them is empty.
            del lanes[key]
            if not lanes:
                del self._lines[job.queue]

    def _enter(self, tenant: TenantState, job: Job) -> None:
        state = job.state
        tenant.tallies[job.queue][state] += 1
        if state is _PENDING:
            if job.run_at_us <= self._due_us:
                self._lane(tenant, job).add(job)
            else:
                self._scheduled.add(job.run_at_us, job)
        elif state is _IN_FLIGHT:
            self._leases[job.token] = job
            self.last_token = max(self.last_token, job.token)
        elif state in _FORGETTABLE:
            self._finished.append(job)
            self._forget(_FORGET_STEP)
        if job.unique is not None and not state.finished:
            self._unique[job.tenant, job.queue, job.unique] = job
        if job.expires_at_us is not None and (state is _PENDING or state is _BLOCKED):
            self._expiring.add(job.expires_at_us, job)

    def _lane(self, tenant: TenantState, job: Job) -> Lane:
        lanes = self._lines.get(job.queue)
        if lanes is None:
            lanes = self._lines[job.queue] = {}
        key = job.tenant, job.task, job.priority
        lane = lanes.get(key)
        if lane is None:
            lane = lanes[key] = Lane(tenant.jobs)
        return lane

    def _promote(self, now_us: int) -> None:
        self._due_us = now_us
        if not self._scheduled.any_by(now_us):
            return
        for job in self._scheduled.take(now_us, self._tenants):
            self._lane(self._tenants[job.tenant], job).add(job)

    def load(self, jobs: Iterable[Job], seq: int, last_at_us: int) -> None:
        """Fill an empty state from a snapshot's jobs."""
        self.seq, self.last_at_us, self._due_us = seq, last_at_us, last_at_us
        due: defaultdict[tuple[str, str, str, int], list[Job]] = defaultdict(list)
        later: list[tuple[int, Job]] = []
        expiring: list[tuple[int, Job]] = []
        for job in jobs:
            share_names(job)
            self._check(None, job)
            self.last_token = max(self.last_token, job.token)
            tenant = self._tenants.get(job.tenant)
            if tenant is None:
                tenant = self._tenants[job.tenant] = TenantState()
            if job.id in tenant.jobs:
                raise InvariantViolation(f"job {job.id!r} is there twice")
            tenant.jobs[job.id] = job
            if job.state is not _PENDING:
                self._enter(tenant, job)
                continue
            tenant.tallies[job.queue][_PENDING] += 1
            if job.run_at_us <= last_at_us:
                due[job.tenant, job.queue, job.task, job.priority].append(job)
            else:
                later.append((job.run_at_us, job))
            if job.unique is not None:
                self._unique[job.tenant, job.queue, job.unique] = job
            if job.expires_at_us is not None:
                expiring.append((job.expires_at_us, job))
        for lane in due.values():
            self._lane(self._tenants[lane[0].tenant], lane[0]).load(lane)
        self._scheduled.load(later)
        self._expiring.load(expiring)

    # --- look --------------------------------------------------------------------------------

    def get(self, tenant: str, job_id: str) -> Job | None:
        """Return the job, finished ones included while they are kept."""
        known = self._tenants.get(tenant)
        job = None if known is None else known.jobs.get(job_id)
        if job is None or (
            job.state in _FORGETTABLE and job.finished_at_us < self.forget_before_us
        ):
            return None
        return job

    def unfinished(self, tenant: str, queue: str, unique: str) -> Job | None:
        """Return the unfinished job that has this unique key."""
        return self._unique.get((tenant, queue, unique))

    def holder(self, token: int) -> Job | None:
        """Return the job in flight under this token."""
        return self._leases.get(token)

    def in_flight(self) -> list[Job]:
        """Return the jobs that somebody holds."""
        return list(self._leases.values())

    def claimable(
        self,
        queues: Collection[str],
        tasks: Collection[str] | None,
        caller: Caller,
        limit: int,
        now_us: int,
    ) -> list[Job]:
        """Return the next jobs to hand out, in order: due, unexpired, within reach."""
        if now_us > self._due_us:
            self._promote(now_us)
        found: list[Job] = []
        everything = caller.unlimited
        for job in self._line(queues, tasks, caller):
            if job.expires_at_us is not None and job.expires_at_us <= now_us:
                continue
            if everything or caller.reaches(job.tenant, job.scope):
                found.append(job)
                if len(found) == limit:
                    break
        return found

    def _line(
        self, queues: Collection[str], tasks: Collection[str] | None, caller: Caller
    ) -> Iterator[Job]:
        lanes: list[tuple[int, Lane]] = []
        for queue in queues:
            for (tenant, task, priority), lane in self._lines.get(queue, {}).items():
                within = caller.tenant is None or tenant == caller.tenant
                if within and (tasks is None or task in tasks):
                    lane.trim()
                    lanes.append((priority, lane))
        lanes.sort(key=lambda lane: -lane[0])
        for _priority, group in groupby(lanes, key=lambda lane: lane[0]):
            same = [lane for _, lane in group]
            yield from same[0] if len(same) == 1 else heapq.merge(*same, key=_place)

    def next_due_us(self, now_us: int) -> int | None:
        """Return when the next job that is not yet due becomes so."""
        if now_us > self._due_us:
            self._promote(now_us)
        return self._scheduled.next_us(self._tenants)

    def overdue(self, limit: int, caller: Caller, now_us: int) -> list[Job]:
        """Return jobs in flight whose lease has ended, those that ended first first."""
        ended = [
            job
            for job in self._leases.values()
            if job.lease_until_us <= now_us and caller.reaches(job.tenant, job.scope)
        ]
        ended.sort(key=lambda job: (job.lease_until_us, job.token))
        return ended[:limit]

    def expired(self, limit: int, caller: Caller, now_us: int) -> list[Job]:
        """Return unclaimed jobs whose ``expires_at`` has passed, oldest first."""
        if caller.unlimited:
            return self._expiring.peek(now_us, limit, self._tenants)
        everybody = self._expiring.peek(now_us, len(self._expiring), self._tenants)
        return [job for job in everybody if caller.reaches(job.tenant, job.scope)][:limit]

    def counts(self, caller: Caller) -> Mapping[str, Counts]:
        """Return the counts of each queue."""
        self._forget(len(self._finished))
        found: dict[str, dict[str, int]] = {}
        if caller.scopes:
            for job in self.jobs():
                if caller.reaches(job.tenant, job.scope):
                    states = found.setdefault(job.queue, {})
                    states[job.state] = states.get(job.state, 0) + 1
        else:
            for name, tenant in self._tenants.items():
                if caller.tenant is not None and name != caller.tenant:
                    continue
                for queue, tally in tenant.tallies.items():
                    states = found.setdefault(queue, {})
                    for state, count in tally.items():
                        states[state] = states.get(state, 0) + count
        return {queue: Counts(**states) for queue, states in sorted(found.items())}

    def __len__(self) -> int:
        """How many jobs are kept."""
        return sum(len(tenant.jobs) for tenant in self._tenants.values())

    def jobs(self) -> Iterator[Job]:
        """Go through every job that is kept: unfinished and dead ones, then finished in order."""
        self._forget(len(self._finished))
        for tenant in self._tenants.values():
            for job in tenant.jobs.values():
                if job.state not in _FORGETTABLE:
                    yield job
        for job in self._finished:
            if is_current(job, self._tenants):
                yield job

    # --- forget ------------------------------------------------------------------------------

    def _forget(self, most: int) -> None:
        finished = self._finished
        while most and finished and finished[0].finished_at_us < self.forget_before_us:
            most -= 1
            job = finished.popleft()
            tenant = self._tenants.get(job.tenant)
            if tenant is not None and tenant.jobs.get(job.id) is job:
                del tenant.jobs[job.id]
                tally = tenant.tallies[job.queue]
                tally[job.state] -= 1
                # Names come and go: nothing is kept of a queue or a tenant without jobs.
                if not any(tally.values()):
                    del tenant.tallies[job.queue]
                if not tenant.jobs:
                    del self._tenants[job.tenant]

    def problems(self) -> list[str]:
        """Recount everything; return what is inconsistent, a sentence each."""
        found: list[str] = []
        tally: Counter[tuple[str, str, str]] = Counter()
        real: Counter[str] = Counter()
        for job in self.jobs():
            tally[job.tenant, job.queue, job.state] += 1
            real["leases"] += job.state is _IN_FLIGHT
            real["due jobs"] += job.state is _PENDING and job.run_at_us <= self._due_us
            real["scheduled jobs"] += job.state is _PENDING and job.run_at_us > self._due_us
            waits = job.state is _PENDING or job.state is _BLOCKED
            real["jobs that can expire"] += waits and job.expires_at_us is not None
            real["unique keys"] += job.unique is not None and not job.state.finished
            if job.state is _IN_FLIGHT and self._leases.get(job.token) is not job:
                found.append(f"job {job.id!r} is in flight but its token is not")
        for name, tenant in self._tenants.items():
            for queue, states in tenant.tallies.items():
                for state, count in states.items():
                    counted = tally[name, queue, state]
                    if count != counted:
                        found.append(f"queue {queue!r} counts {count} {state}, has {counted}")
        indexed = {
            "leases": len(self._leases),
            "due jobs": sum(map(len, self._lanes())),
            "scheduled jobs": len(self._scheduled),
            "jobs that can expire": len(self._expiring),
            "unique keys": len(self._unique),
        }
        found.extend(
            f"{count} {what} are indexed, and there are {real[what]}"
            for what, count in indexed.items()
            if count != real[what]
        )
        for lane in self._lanes():
            jobs = list(lane)
            if len(jobs) != len(lane) or jobs != sorted(jobs, key=_place):
                found.append(f"the line of task {jobs[:1]} is out of order")
        return found

    def _lanes(self) -> Iterator[Lane]:
        for lanes in self._lines.values():
            yield from lanes.values()


def share_names(job: Job) -> None:
    """Make a decoded job share its names with every other job: a backlog repeats them."""
    force_setattr(job, "tenant", intern(job.tenant))
    force_setattr(job, "queue", intern(job.queue))
    force_setattr(job, "task", intern(job.task))
    if job.scope:
        force_setattr(job, "scope", intern(job.scope))
    if job.worker:
        force_setattr(job, "worker", intern(job.worker))


def _place(job: Job) -> tuple[int, int]:
    return job.place
