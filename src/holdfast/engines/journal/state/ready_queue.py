"""Pending jobs in order.

A ``ReadyQueue`` holds the due jobs of one (tenant, queue, task, priority), a ``TimeIndex`` those
that wait for a time. Jobs are removed from any position: the entry stays as a ghost, recognised
by identity, since a changed job is another object. When half of the entries are ghosts they are
swept.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator
from operator import attrgetter

from holdfast.model.job import Job, State

_place = attrgetter("run_at_us", "seq")
_SWEEP_FROM = 64


class ReadyQueue:
    """Jobs by place, with a cheap head: most are added at the tail and removed at the head."""

    __slots__ = ("_current", "_ghosts", "_head", "_jobs")

    def __init__(self, current: dict[str, Job]) -> None:
        """Take the current jobs of its tenant: an entry that differs from them is a ghost."""
        self._current = current
        self._jobs: list[Job | None] = []
        self._head = 0
        self._ghosts = 0

    def __len__(self) -> int:
        return len(self._jobs) - self._head - self._ghosts

    def add(self, job: Job) -> None:
        """Insert the job at its place."""
        jobs = self._jobs
        last = jobs[-1] if self._head < len(jobs) else None
        if (
            last is None
            or last.run_at_us < job.run_at_us
            or (last.run_at_us == job.run_at_us and last.seq < job.seq)
        ):
            jobs.append(job)
            return
        at = bisect_left(jobs, _place(job), lo=self._head, key=_place)
        if self._head and at - self._head < len(jobs) - at:
            # Nearer to the head, with room before it: a released job.
            jobs[self._head - 1 : at - 1] = jobs[self._head : at]
            jobs[at - 1] = job
            self._head -= 1
        else:
            jobs.insert(at, job)

    def load(self, jobs: list[Job]) -> None:
        """Fill an empty queue."""
        self._jobs.extend(sorted(jobs, key=_place))

    def drop(self, job: Job) -> None:
        """Remove a job."""
        if self._jobs[self._head] is not job:
            self._ghosts += 1
            if self._ghosts > _SWEEP_FROM and self._ghosts > len(self._jobs) // 2:
                self._sweep()
            return
        self._jobs[self._head] = None
        self._head += 1
        if self._head > _SWEEP_FROM and self._head > len(self._jobs) // 2:
            del self._jobs[: self._head]
            self._head = 0

    def __iter__(self) -> Iterator[Job]:
        """Yield the jobs in order, without ghosts."""
        current = self._current
        for index in range(self._head, len(self._jobs)):
            job = self._jobs[index]
            if job is not None and current.get(job.id) is job:
                yield job

    def trim(self) -> None:
        """Remove the ghosts at the head."""
        while self._head < len(self._jobs):
            job = self._jobs[self._head]
            if job is None or self._current.get(job.id) is job:
                return
            self._jobs[self._head] = None
            self._head += 1
            self._ghosts -= 1

    def first(self) -> Job | None:
        """Return the first job."""
        self.trim()
        return self._jobs[self._head] if self._head < len(self._jobs) else None

    def _sweep(self) -> None:
        self._jobs = list(self)
        self._head = self._ghosts = 0


Entry = tuple[int, int, int, Job]
"""The time, its place among equals, a tie-breaking number, and the job.

A released job has the same place as its own ghost, and jobs do not compare.
"""


class TimeIndex:
    """Jobs by a time: when they are due, or when they expire."""

    def __init__(self) -> None:
        self._heap: list[Entry] = []
        self._order = itertools.count()
        self._ghosts = 0

    def __len__(self) -> int:
        return len(self._heap) - self._ghosts

    def add(self, at_us: int, job: Job) -> None:
        """Add the job at its time."""
        heapq.heappush(self._heap, (at_us, job.seq, next(self._order), job))

    def load(self, jobs: list[tuple[int, Job]]) -> None:
        """Add many jobs, each with its time."""
        self._heap.extend((at_us, job.seq, next(self._order), job) for at_us, job in jobs)
        heapq.heapify(self._heap)

    def drop(self, tenants: Tenants) -> None:
        """Count a removed job; sweep if needed."""
        self._ghosts += 1
        if self._ghosts > _SWEEP_FROM and self._ghosts > len(self._heap) // 2:
            self._heap = [entry for entry in self._heap if is_current(entry[3], tenants)]
            heapq.heapify(self._heap)
            self._ghosts = 0

    def discard(self, unwanted: Callable[[Job], bool], tenants: Tenants) -> None:
        """Remove these jobs, and the ghosts."""
        self._heap = [
            entry
            for entry in self._heap
            if is_current(entry[3], tenants) and not unwanted(entry[3])
        ]
        heapq.heapify(self._heap)
        self._ghosts = 0

    def next_us(self, tenants: Tenants) -> int | None:
        """Return the earliest time in it."""
        self._trim(tenants)
        return self._heap[0][0] if self._heap else None

    def any_by(self, now_us: int) -> bool:
        """Whether there may be a job whose time has come."""
        return bool(self._heap) and self._heap[0][0] <= now_us

    def take(self, now_us: int, tenants: Tenants) -> Iterator[Job]:
        """Remove and yield the jobs whose time has come, in order."""
        while self._heap and self._heap[0][0] <= now_us:
            job = heapq.heappop(self._heap)[3]
            if is_current(job, tenants):
                yield job
            else:
                self._ghosts -= 1

    def peek(self, now_us: int, limit: int, tenants: Tenants) -> list[Job]:
        """Return the first jobs whose time has come, without removing them."""
        entries: list[Entry] = []
        self._trim(tenants)
        while self._heap and self._heap[0][0] <= now_us and len(entries) < limit:
            entries.append(heapq.heappop(self._heap))
            self._trim(tenants)
        for entry in entries:
            heapq.heappush(self._heap, entry)
        return [entry[3] for entry in entries]

    def _trim(self, tenants: Tenants) -> None:
        while self._heap and not is_current(self._heap[0][3], tenants):
            heapq.heappop(self._heap)
            self._ghosts -= 1


class TenantState:
    """The jobs of one tenant, and how many each queue has in each state."""

    __slots__ = ("jobs", "tallies")

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.tallies: defaultdict[str, defaultdict[str, int]] = defaultdict(_counter)

    def in_flight(self, queue: str) -> int:
        """How many of its jobs are in flight in this queue."""
        tally = self.tallies.get(queue)
        return 0 if tally is None else tally.get(State.IN_FLIGHT, 0)


def _counter() -> defaultdict[str, int]:
    return defaultdict(int)


Tenants = dict[str, TenantState]


def is_current(job: Job, tenants: Tenants) -> bool:
    """Whether the job is unchanged since it was added."""
    tenant = tenants.get(job.tenant)
    return tenant is not None and tenant.jobs.get(job.id) is job
