"""Ordering by key and by dependency: what jobs wait for."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import chain

from msgspec.structs import replace

from holdfast.model.chain import may_follow
from holdfast.model.job import Job, State

KeyName = tuple[str, str, str | None]
"""A tenant, a queue, and a key in it."""
_SWEEP_FROM = 64


class KeyQueue:
    """The unfinished jobs of one key, in order, and the dead jobs that hold them.

    Only the first may be claimed, and others together with it, if none is in flight and no earlier
    one died.
    """

    __slots__ = ("_first", "_first_hold", "_holds", "_in_flight", "_jobs", "_order", "behind")

    def __init__(self) -> None:
        self._jobs: dict[int, Job] = {}
        self._order: list[int] = []
        """The places in order; those of removed jobs are dropped when they are the first."""
        self._first = 0
        """Where the first place is: before it there is nothing."""
        self._holds: dict[str, Job] = {}
        self._first_hold: int | None = None
        self._in_flight: dict[int, Job] = {}
        self.behind = 0
        """How many of the jobs wait behind a dead one."""

    def __bool__(self) -> bool:
        return bool(self._jobs or self._holds)

    def put(self, job: Job) -> None:
        """Add an unfinished job, or replace its earlier version."""
        place = job.ties.key_seq
        if place not in self._jobs:
            self._add_place(place)
            self.behind += self.holds_up(job)
        self._jobs[place] = job
        if job.state is State.IN_FLIGHT:
            self._in_flight[place] = job

    def drop(self, job: Job) -> None:
        """Remove a job that changes or finishes."""
        del self._jobs[job.ties.key_seq]
        self.behind -= self.holds_up(job)
        self._in_flight.pop(job.ties.key_seq, None)

    def hold(self, dead: Job) -> None:
        """Hold every later job behind this dead one."""
        failure = dead.failure
        if failure is not None and failure.traceback:
            failure = replace(failure, traceback="")
        self._holds[dead.id] = replace(dead, payload=b"", failure=failure)
        if self._first_hold is None or dead.ties.key_seq < self._first_hold:
            self._recount()

    def release(self, job_id: str) -> None:
        """Remove the hold of this job, if there is one."""
        gone = self._holds.pop(job_id, None)
        if gone is not None and gone.ties.key_seq == self._first_hold:
            self._recount()

    def candidate(self) -> Job | None:
        """Return the job that may be claimed next, once it is due."""
        if self._in_flight:
            return None
        order, jobs = self._order, self._jobs
        self._skip_removed()
        if self._first == len(order):
            return None
        place = order[self._first]
        if self._first_hold is not None and place > self._first_hold:
            return None
        first = jobs[place]
        return first if first.state is State.PENDING else None

    def followers(self, head: Job, now_us: int) -> Iterator[Job]:
        """Yield the jobs that may be claimed together with the first one, right behind it."""
        order, jobs = self._order, self._jobs
        for at in range(bisect_left(order, head.ties.key_seq, self._first) + 1, len(order)):
            job = jobs.get(order[at])
            if job is None:
                continue
            if (
                job.state is not State.PENDING
                or self.holds_up(job)
                or not may_follow(job, head, now_us)
            ):
                return
            yield job

    def is_last(self, job: Job) -> bool:
        """Whether a job that is not here yet comes after all that are."""
        return not self._order or job.ties.key_seq > self._order[-1]

    def flight(self) -> Sequence[Job]:
        """Return the jobs in flight, in order."""
        if len(self._in_flight) < 2:
            return tuple(self._in_flight.values())
        return [self._in_flight[place] for place in sorted(self._in_flight)]

    def members(self) -> Iterator[Job]:
        """Return the unfinished jobs, and the dead ones that hold them."""
        return chain(self._jobs.values(), self._holds.values())

    def holds(self) -> Iterator[tuple[Job, int]]:
        """Return each dead job that holds this key, and how many wait behind it."""
        for dead in self._holds.values():
            yield dead, sum(place > dead.ties.key_seq for place in self._jobs)

    def holds_up(self, job: Job) -> bool:
        """Whether a job of this key waits behind a dead one."""
        return self._first_hold is not None and job.ties.key_seq > self._first_hold

    def _add_place(self, place: int) -> None:
        order = self._order
        if self._first == len(order) or place > order[-1]:
            order.append(place)
            return
        at = bisect_left(order, place, self._first)
        if order[at] == place:
            return  # that of the same job before it changed
        if at == self._first and at:
            self._first -= 1
            order[self._first] = place
        else:
            order.insert(at, place)

    def _skip_removed(self) -> None:
        order, jobs = self._order, self._jobs
        while self._first < len(order) and order[self._first] not in jobs:
            self._first += 1
        if self._first > _SWEEP_FROM and self._first > len(order) // 2:
            del order[: self._first]
            self._first = 0

    def _recount(self) -> None:
        first = min((dead.ties.key_seq for dead in self._holds.values()), default=None)
        self._first_hold = first
        self.behind = 0 if first is None else sum(place > first for place in self._jobs)

    def __len__(self) -> int:
        """How many unfinished jobs there are."""
        return len(self._jobs)


class DependentIndex:
    """Which blocked jobs wait for which job."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], dict[str, Job]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, job: Job) -> None:
        """Add what this job waits for."""
        for needed in job.ties.waiting_for:
            self._waiting.setdefault((job.tenant, needed), {})[job.id] = job

    def drop(self, job: Job) -> None:
        """Remove what this job waits for."""
        for needed in job.ties.waiting_for:
            name = job.tenant, needed
            waiting = self._waiting[name]
            del waiting[job.id]
            if not waiting:
                del self._waiting[name]

    def of(self, tenant: str, job_id: str) -> list[Job]:
        """Return the jobs that wait for this one, in the order of their enqueueing."""
        waiting = self._waiting.get((tenant, job_id))
        return [] if not waiting else sorted(waiting.values(), key=lambda job: job.seq)

    def __len__(self) -> int:
        """How many waits there are."""
        return sum(map(len, self._waiting.values()))


def holding(key_queues: dict[KeyName, KeyQueue]) -> Iterator[tuple[Job, int]]:
    """Return each dead job that holds up others, and how many."""
    return chain.from_iterable(key_queue.holds() for key_queue in key_queues.values())
