"""Pending jobs in order.

A ``ReadyQueue`` holds the due jobs of one (tenant, queue, task, priority), a ``TimeIndex`` those
that wait for a moment. Jobs leave them from any place: such a job is left where it stands and told
apart by identity, since a job that changed is another object. When half of a lane is such ghosts
it is swept.
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
    """Jobs by place, with a cheap head: most come at the tail and leave from the head."""

    __slots__ = ("_current", "_ghosts", "_head", "_jobs")

    def __init__(self, current: dict[str, Job]) -> None:
        """Take the jobs of its tenant: one that is not the same there is a ghost here."""
        self._current = current
        self._jobs: list[Job | None] = []
        self._head = 0
        self._ghosts = 0

    def __len__(self) -> int:
        return len(self._jobs) - self._head - self._ghosts

    def add(self, job: Job) -> None:
        """Put the job at its place."""
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
            # Nearer to the head, and there is room before it: a job handed back.
            jobs[self._head - 1 : at - 1] = jobs[self._head : at]
            jobs[at - 1] = job
            self._head -= 1
        else:
            jobs.insert(at, job)

    def load(self, jobs: list[Job]) -> None:
        """Fill an empty lane."""
        self._jobs.extend(sorted(jobs, key=_place))

    def drop(self, job: Job) -> None:
        """Let go of a job that is leaving."""
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
        """Go through the jobs in order, ghosts left out."""
        current = self._current
        for index in range(self._head, len(self._jobs)):
            job = self._jobs[index]
            if job is not None and current.get(job.id) is job:
                yield job

    def trim(self) -> None:
        """Let go of the ghosts at the head."""
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
"""When, its place among equals, a number that settles the rest, and the job.

A job that is handed back has the same place as its own ghost, and jobs do not compare.
"""


class TimeIndex:
    """Jobs by a moment: when they are due, or when they expire."""

    def __init__(self) -> None:
        self._heap: list[Entry] = []
        self._order = itertools.count()
        self._ghosts = 0

    def __len__(self) -> int:
        return len(self._heap) - self._ghosts

    def add(self, at_us: int, job: Job) -> None:
        """Note the job at its moment."""
        heapq.heappush(self._heap, (at_us, job.seq, next(self._order), job))

    def load(self, jobs: list[tuple[int, Job]]) -> None:
        """Take in many jobs, each with its moment."""
        self._heap.extend((at_us, job.seq, next(self._order), job) for at_us, job in jobs)
        heapq.heapify(self._heap)

    def drop(self, tenants: Tenants) -> None:
        """Count a job that is leaving; sweep when it is time."""
        self._ghosts += 1
        if self._ghosts > _SWEEP_FROM and self._ghosts > len(self._heap) // 2:
            self._heap = [entry for entry in self._heap if is_current(entry[3], tenants)]
            heapq.heapify(self._heap)
            self._ghosts = 0

    def discard(self, unwanted: Callable[[Job], bool], tenants: Tenants) -> None:
        """Let go of these jobs, and of the ghosts."""
        self._heap = [
            entry
            for entry in self._heap
            if is_current(entry[3], tenants) and not unwanted(entry[3])
        ]
        heapq.heapify(self._heap)
        self._ghosts = 0

    def next_us(self, tenants: Tenants) -> int | None:
        """Return the first moment in it."""
        self._trim(tenants)
        return self._heap[0][0] if self._heap else None

    def any_by(self, now_us: int) -> bool:
        """Whether there may be a job whose moment has come."""
        return bool(self._heap) and self._heap[0][0] <= now_us

    def take(self, now_us: int, tenants: Tenants) -> Iterator[Job]:
        """Take out the jobs whose moment has come, in order."""
        while self._heap and self._heap[0][0] <= now_us:
            job = heapq.heappop(self._heap)[3]
            if is_current(job, tenants):
                yield job
            else:
                self._ghosts -= 1

    def peek(self, now_us: int, limit: int, tenants: Tenants) -> list[Job]:
        """Return the first jobs whose moment has come, and leave them in it."""
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
    """Everything of one tenant: its jobs, and how many each queue has in each state."""

    __slots__ = ("jobs", "tallies")

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.tallies: defaultdict[str, defaultdict[str, int]] = defaultdict(_counter)

    def flying(self, queue: str) -> int:
        """How many of its jobs are in flight in this queue."""
        tally = self.tallies.get(queue)
        return 0 if tally is None else tally.get(State.IN_FLIGHT, 0)


def _counter() -> defaultdict[str, int]:
    return defaultdict(int)


Tenants = dict[str, TenantState]


def is_current(job: Job, tenants: Tenants) -> bool:
    """Whether the job is still as it was when it was put here."""
    tenant = tenants.get(job.tenant)
    return tenant is not None and tenant.jobs.get(job.id) is job
