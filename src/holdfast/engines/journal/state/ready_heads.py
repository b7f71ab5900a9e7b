"""The first jobs of very many ready queues: a claim takes the next without a look at each queue."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping

from holdfast.model.job import Job

from .ready_queue import ReadyQueue

Kind = tuple[str, str, int]
"""Tenant, task and priority: what a ready queue is for, within its queue."""
Order = tuple[int, int, int]
Entry = tuple[Order, str, Kind]
ReadyQueues = Mapping[str, Mapping[Kind, ReadyQueue]]
_SWEEP_FROM = 1_024


class ReadyHeads:
    """An entry for every ready queue, at the place of its first job or before it.

    An entry that is out of date is corrected when it comes up. Each task has a heap of its own, so
    that a claim passes by the queues of all tasks that it does not run.
    """

    def __init__(self, ready: ReadyQueues) -> None:
        self._ready = ready
        self._heaps: defaultdict[str, list[Entry]] = defaultdict(list)
        self._entries = 0
        self._sweep_at = 0
        self._sweep()

    def _sweep(self) -> None:
        """Make it anew: entries that are out of date pile up while no claim comes to them."""
        self._heaps.clear()
        for queue, of_queue in self._ready.items():
            for kind, ready_queue in of_queue.items():
                if (first := ready_queue.first()) is not None:
                    self._heaps[first.task].append((order_of(first), queue, kind))
        for heap in self._heaps.values():
            heapq.heapify(heap)
        self._entries = sum(map(len, self._heaps.values()))
        self._sweep_at = _SWEEP_FROM + 2 * self._entries

    def added(self, job: Job, ready_queue: ReadyQueue) -> None:
        """Take notice of a job that was added to its ready queue."""
        if ready_queue.first() is job:
            kind = job.tenant, job.task, job.priority
            heapq.heappush(self._heaps[job.task], (order_of(job), job.queue, kind))
            self._entries += 1
            if self._entries + len(self._heaps) > self._sweep_at:
                self._sweep()

    def jobs(
        self,
        tasks: Collection[str] | None,
        opened: Callable[[str, Kind], Iterator[Job] | None],
    ) -> Iterator[Job]:
        """Yield the jobs of these tasks in ready queues in order; none may change meanwhile.

        ``opened`` is asked for the jobs of a ready queue when its first one comes up, and returns
        None to pass it over. They may come from more of its queue, but none from before that one.
        """
        heaps = self._heaps_of(tasks)
        taken: list[Entry] = []
        seen: set[tuple[str, Kind]] = set()
        merged: list[tuple[Order, Job, Iterator[Job]]] = []
        try:
            while True:
                while heaps:
                    heap = min(heaps, key=_first_entry)
                    if merged and merged[0][0] < heap[0][0]:
                        break
                    entry = self._next(heap, seen)
                    if entry is not None:
                        taken.append(entry)
                        self._open(entry, opened, merged)
                    if not heap:
                        heaps = [one for one in heaps if one]
                if not merged:
                    return
                _order, job, following = merged[0]
                yield job
                after = next(following, None)
                if after is None:
                    heapq.heappop(merged)
                else:
                    heapq.heapreplace(merged, (order_of(after), after, following))
        finally:
            for entry in taken:
                heapq.heappush(self._heaps[_task_of(entry)], entry)
            self._entries += len(taken)

    def _heaps_of(self, tasks: Collection[str] | None) -> list[list[Entry]]:
        """Return the heaps of these tasks that have entries."""
        some = self._heaps.values() if tasks is None else map(self._heaps.get, tasks)
        return [heap for heap in some if heap]

    def _next(self, heap: list[Entry], seen: set[tuple[str, Kind]]) -> Entry | None:
        """Take the first entry; None if it was out of date, and is corrected."""
        order, queue, kind = heapq.heappop(heap)
        self._entries -= 1
        ready_queue = self._ready.get(queue, {}).get(kind)
        first = None if ready_queue is None else ready_queue.first()
        if first is None or (queue, kind) in seen:
            return None
        if order_of(first) != order:
            heapq.heappush(heap, (order_of(first), queue, kind))
            self._entries += 1
            return None
        seen.add((queue, kind))
        return order, queue, kind

    def _open(
        self,
        entry: Entry,
        opened: Callable[[str, Kind], Iterator[Job] | None],
        merged: list[tuple[Order, Job, Iterator[Job]]],
    ) -> None:
        _order, queue, kind = entry
        jobs = opened(queue, kind)
        first = None if jobs is None else next(jobs, None)
        if jobs is not None and first is not None:
            heapq.heappush(merged, (order_of(first), first, jobs))


def order_of(job: Job) -> Order:
    """Return where a job comes among all that are due: no two have the same place."""
    return -job.priority, job.run_at_us, job.seq


def _first_entry(heap: list[Entry]) -> Entry:
    return heap[0]


def _task_of(entry: Entry) -> str:
    _order, _queue, (_tenant, task, _priority) = entry
    return task
