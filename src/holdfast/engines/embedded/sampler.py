"""Samples of an embedded engine: it sees every change of its store, so it counts them itself."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from holdfast.engines.queue_stats import StoreStats
from holdfast.model import effects as fx
from holdfast.model.job import MICROSECONDS, Job
from holdfast.model.samples import (
    COST_FACTOR,
    QueueDepth,
    QueueFlow,
    QueueSample,
    SampleQuery,
    Series,
    Tier,
    bounded,
    point_of,
)

_EARLY = 0.1
"""The part of an interval that may be missing: ticks of a loop are not exactly that far apart."""

_LEAST_US = MICROSECONDS
"""The shortest time of which a rate is taken: right after the start there is none."""


class FlowCounter:
    """Counts what happens in each queue. What is counted is of this process, from its start."""

    def __init__(self) -> None:
        self._flows: defaultdict[str, QueueFlow] = defaultdict(QueueFlow)

    def count(self, effects: Sequence[fx.Effect], jobs: Sequence[Job | None]) -> None:
        """Count these effects, with the job of each as it is now."""
        for effect, job in zip(effects, jobs, strict=True):
            kind = type(effect)
            if job is None or kind is fx.Claimed:
                continue
            if kind is fx.Enqueued:
                self._flows[job.queue].enqueued += 1
            elif kind is fx.Completed:
                self._flows[job.queue].completed += 1
            elif kind is fx.Retried or kind is fx.Lost:
                self._flows[job.queue].retried += 1
            elif kind is fx.Died:
                self._flows[job.queue].died += 1

    def take(self) -> Mapping[str, QueueFlow]:
        """Return what was counted since the last call."""
        taken, self._flows = self._flows, defaultdict(QueueFlow)
        return taken


class SampleStore(Protocol):
    """Where samples are kept. They are expendable: a store that fails loses them and goes on."""

    async def add(self, at_us: int, samples: Mapping[str, QueueSample]) -> None:
        """Keep these, merge them into their minute, and drop what is too old."""

    async def read(self, query: SampleQuery) -> Series:
        """Return the points that are asked for."""

    async def close(self) -> None:
        """Release all resources."""


class Sampler:
    """Takes samples of one engine, which no other process can."""

    def __init__(
        self, store: SampleStore, survey: Callable[[], StoreStats], flows: FlowCounter, now_us: int
    ) -> None:
        """Take the time of the engine's clock, from which on is counted."""
        self.store = store
        self._survey = survey
        self._flows = flows
        self._taken_us: int | None = None
        self._counted_from_us = now_us
        self._cost_seconds = 0.0

    async def take(self, every_seconds: float, clock_us: int) -> float:
        """See ``Engine.take_sample``; ``clock_us`` is the clock's time."""
        loop = asyncio.get_running_loop()
        waited_us = None if self._taken_us is None else clock_us - self._taken_us
        due_us = self._interval_seconds(every_seconds) * MICROSECONDS
        if waited_us is not None and 0 <= waited_us < (1 - _EARLY) * due_us:
            return (due_us - waited_us) / MICROSECONDS
        began = loop.time()
        self._taken_us = clock_us
        seconds, flows = self._flow(clock_us)
        stats = self._survey()
        await self.store.add(stats.now_us, bounded(_samples(stats, flows, seconds)))
        self._cost_seconds = loop.time() - began
        return self._interval_seconds(every_seconds)

    def _flow(self, clock_us: int) -> tuple[float, Mapping[str, QueueFlow]]:
        """Return what happened since the last sample, and in how many seconds."""
        counted_us = clock_us - self._counted_from_us
        if counted_us < _LEAST_US:
            return 0.0, {}  # the next sample has it: this would be a rate of no time at all
        self._counted_from_us = clock_us
        return counted_us / MICROSECONDS, self._flows.take()

    def _interval_seconds(self, every_seconds: float) -> float:
        return max(every_seconds, COST_FACTOR * self._cost_seconds)


def _samples(
    stats: StoreStats, flows: Mapping[str, QueueFlow], seconds: float
) -> dict[str, QueueSample]:
    found: dict[str, QueueSample] = {}
    for queue in sorted({*stats.queues, *flows}):
        depth = QueueDepth()
        if (one := stats.queues.get(queue)) is not None:
            depth = QueueDepth(
                one.counts.pending,
                one.counts.in_flight,
                one.counts.blocked,
                one.counts.dead,
                one.held,
                stats.oldest_age_seconds(queue),
            )
        found[queue] = QueueSample(depth, flows.get(queue) or QueueFlow(), seconds)
    return found


class MemorySamples:
    """Keeps samples in memory: the simplest store of samples, and the oracle of the others."""

    def __init__(self) -> None:
        self._samples: list[tuple[int, str, QueueSample]] = []

    async def add(self, at_us: int, samples: Mapping[str, QueueSample]) -> None:
        """See ``SampleStore.add``. Minutes are made when they are read."""
        self._samples += [(at_us, queue, sample) for queue, sample in samples.items()]
        first_us = at_us - Tier.MINUTE.kept_us
        self._samples = [one for one in self._samples if one[0] >= first_us]

    async def read(self, query: SampleQuery) -> Series:
        """See ``SampleStore.read``."""
        found: dict[str, dict[int, list[QueueSample]]] = {}
        tier_us = query.tier.step_us if query.tier else 1
        last_us = max((at_us for at_us, _queue, _sample in self._samples), default=0)
        for at_us, queue, sample in sorted(self._samples, key=lambda one: (one[1], one[0])):
            point_us = at_us // tier_us * tier_us
            if (
                query.from_us <= point_us < query.to_us
                and point_us >= last_us - query.tier.kept_us
                and (not query.queues or queue in query.queues)
            ):
                start_us = point_us // query.step_us * query.step_us
                found.setdefault(queue, {}).setdefault(start_us, []).append(sample)
        return {
            queue: [point_of(start_us, samples) for start_us, samples in starts.items()]
            for queue, starts in found.items()
        }

    async def close(self) -> None:
        """Do nothing."""
