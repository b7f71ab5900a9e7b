"""The first jobs of very many ready queues: a claim takes the next without a look at each queue."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping

from holdfast.model.job import Job

from .ready_queue import ReadyQueue

Kind = tuple[str, str, int]
"""Tenant, task and priority: what a ready queue is for, within its queue."""
Order = tuple[int, int, int]
ReadyQueues = Mapping[str, Mapping[Kind, ReadyQueue]]
_SWEEP_FROM = 1_024


class ReadyHeads:
    """An entry for every ready queue, at the place of its first job or before it.

    An entry that is out of date is corrected when it comes up.
    """

    def __init__(self, ready: ReadyQueues) -> None:
        self._ready = ready
        self._heap: list[tuple[Order, str, Kind]] = []
        self._sweep_at = 0
        self._sweep()

    def _sweep(self) -> None:
        """Make it anew: entries that are out of date pile up while no claim comes to them."""
        self._heap = [
            (order_of(first), queue, kind)
            for queue, of_queue in self._ready.items()
            for kind, ready_queue in of_queue.items()
            if (first := ready_queue.first()) is not None
        ]
        heapq.heapify(self._heap)
        self._sweep_at = _SWEEP_FROM + 2 * len(self._heap)

    def added(self, job: Job, ready_queue: ReadyQueue) -> None:
        """Take notice of a job that was added to its ready queue."""
        if ready_queue.first() is job:
            kind = job.tenant, job.task, job.priority
            heapq.heappush(self._heap, (order_of(job), job.queue, kind))
            if len(self._heap) > self._sweep_at:
                self._sweep()

    def jobs(self, wanted: Callable[[str, Kind], bool]) -> Iterator[Job]:
        """Yield the jobs of the ready queues that are wanted, in order; none may change meanwhile.

        Ready queues that are not wanted are passed over as they come up.
        """
        taken: list[tuple[Order, str, Kind]] = []
        seen: set[tuple[str, Kind]] = set()
        merged: list[tuple[Order, Job, Iterator[Job]]] = []
        try:
            while True:
                while self._heap and (not merged or self._heap[0][0] < merged[0][0]):
                    entry = self._next(seen)
                    if entry is not None:
                        taken.append(entry)
                        self._open(entry, wanted, merged)
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
                heapq.heappush(self._heap, entry)

    def _next(self, seen: set[tuple[str, Kind]]) -> tuple[Order, str, Kind] | None:
        """Take the first entry; None if it was out of date, and is corrected."""
        order, queue, kind = heapq.heappop(self._heap)
        ready_queue = self._ready.get(queue, {}).get(kind)
        first = None if ready_queue is None else ready_queue.first()
        if first is None or (queue, kind) in seen:
            return None
        if order_of(first) != order:
            heapq.heappush(self._heap, (order_of(first), queue, kind))
            return None
        seen.add((queue, kind))
        return order, queue, kind

    def _open(
        self,
        entry: tuple[Order, str, Kind],
        wanted: Callable[[str, Kind], bool],
        merged: list[tuple[Order, Job, Iterator[Job]]],
    ) -> None:
        _order, queue, kind = entry
        if wanted(queue, kind):
            jobs = iter(self._ready[queue][kind])
            first = next(jobs)
            heapq.heappush(merged, (order_of(first), first, jobs))


def order_of(job: Job) -> Order:
    """Return where a job comes among all that are due: no two have the same place."""
    return -job.priority, job.run_at_us, job.seq
