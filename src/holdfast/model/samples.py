"""Samples of queues: how deep and how old they were, and what flowed through them.

A sample is taken every ten seconds, or less often where taking one costs much. Two tiers are kept:
the samples themselves for two hours, and one point per minute for two days.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from math import ceil

import msgspec

from .errors import InvalidInput
from .job import MAX_TIME_US, MICROSECONDS, check_seconds, check_size

SAMPLE_SECONDS = 10.0
COST_FACTOR = 20
"""Sampling takes at most one part in this many of the time."""
MAX_POINTS = 500
"""The most points of one series."""
MAX_QUEUES = 200
"""The most queues that are sampled by name …"""
OTHER_QUEUES = "other"
"""… those with the least work are added up under this name."""


class Tier(enum.IntEnum):
    """How finely samples are kept."""

    SAMPLE = 0
    MINUTE = 1

    @property
    def step_us(self) -> int:
        """The distance of its points."""
        return int((60 if self else SAMPLE_SECONDS) * MICROSECONDS)

    @property
    def kept_us(self) -> int:
        """For how long its points are kept."""
        return (48 if self else 2) * 3_600 * MICROSECONDS


class QueueFlow(msgspec.Struct):
    """What happened in a queue during some time."""

    enqueued: int = 0
    completed: int = 0
    retried: int = 0
    """Attempts that failed or were lost, and whose job is queued again."""
    died: int = 0

    def add(self, other: QueueFlow) -> None:
        """Add what happened elsewhere, or at another time."""
        self.enqueued += other.enqueued
        self.completed += other.completed
        self.retried += other.retried
        self.died += other.died


class QueueDepth(msgspec.Struct, frozen=True):
    """How much a queue holds at one moment, and how long its oldest due job has waited."""

    pending: int = 0
    in_flight: int = 0
    blocked: int = 0
    dead: int = 0
    held: int = 0
    oldest_age_seconds: float = 0.0


class QueueSample(msgspec.Struct, frozen=True):
    """A queue at one moment, and what happened in the seconds before."""

    depth: QueueDepth
    flow: QueueFlow
    seconds: float


class SamplePoint(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One point of a series: the greatest depths and age in its time, and mean rates."""

    at_us: int
    """When its time begins."""
    pending: int
    in_flight: int
    blocked: int
    dead: int
    held: int
    oldest_age_seconds: float
    enqueued_per_second: float
    completed_per_second: float
    retried_per_second: float
    dead_per_second: float


Series = Mapping[str, list[SamplePoint]]
"""Points in the order of time, by queue."""


class SampleQuery(msgspec.Struct, frozen=True):
    """Which points to read: of which tier, from when to before when, how far apart."""

    queues: tuple[str, ...]
    """None: those of every queue."""
    tier: Tier
    from_us: int
    to_us: int
    step_us: int


def sample_query(
    queues: tuple[str, ...], from_us: int, to_us: int, step_seconds: float, now_us: int
) -> SampleQuery:
    """Return what to read, so that no series has more than ``MAX_POINTS``.

    A step of 0 is the finest that there is. Raise ``InvalidInput``.
    """
    check_size("from_us", from_us, 0, MAX_TIME_US)
    check_size("to_us", to_us, 0, MAX_TIME_US)
    if from_us >= to_us:
        raise InvalidInput("to_us", f"{to_us} is not later than from_us, {from_us}")
    if step_seconds != 0:
        check_seconds("step_seconds", step_seconds)
    span_us = min(to_us, now_us + MICROSECONDS) - max(from_us, now_us - Tier.MINUTE.kept_us)
    # One less: the first and the last point may both be cut.
    asked_us = max(step_seconds * MICROSECONDS, span_us / (MAX_POINTS - 1))
    recent = from_us >= now_us - Tier.SAMPLE.kept_us
    tier = Tier.SAMPLE if recent and asked_us < Tier.MINUTE.step_us else Tier.MINUTE
    step_us = max(1, ceil(asked_us / tier.step_us)) * tier.step_us
    return SampleQuery(queues, tier, from_us, to_us, step_us)


def bounded(samples: Mapping[str, QueueSample]) -> dict[str, QueueSample]:
    """Return the samples of the queues with the most work; the others are added up."""
    if len(samples) <= MAX_QUEUES:
        return dict(samples)
    by_work = sorted(samples, key=lambda queue: (-_work(samples[queue]), queue))
    kept = {queue: samples[queue] for queue in by_work[: MAX_QUEUES - 1]}
    others = [samples[queue] for queue in by_work[MAX_QUEUES - 1 :]]
    others += [kept.pop(OTHER_QUEUES)] if OTHER_QUEUES in kept else []
    flow = QueueFlow()
    for one in others:
        flow.add(one.flow)
    depths = [one.depth for one in others]
    depth = QueueDepth(
        pending=sum(one.pending for one in depths),
        in_flight=sum(one.in_flight for one in depths),
        blocked=sum(one.blocked for one in depths),
        dead=sum(one.dead for one in depths),
        held=sum(one.held for one in depths),
        oldest_age_seconds=max(one.oldest_age_seconds for one in depths),
    )
    kept[OTHER_QUEUES] = QueueSample(depth, flow, max(one.seconds for one in others))
    return kept


def _work(sample: QueueSample) -> int:
    depth, flow = sample.depth, sample.flow
    waiting = depth.pending + depth.in_flight + depth.blocked + depth.dead
    return waiting + flow.enqueued + flow.completed


def point_of(at_us: int, samples: Iterable[QueueSample]) -> SamplePoint:
    """Return one point for all these samples of a queue."""
    found = list(samples)
    depths = [one.depth for one in found]
    seconds = sum(one.seconds for one in found)
    flow = QueueFlow()
    for one in found:
        flow.add(one.flow)
    enqueued, completed, retried, died = per_second(
        (flow.enqueued, flow.completed, flow.retried, flow.died), seconds
    )
    return SamplePoint(
        at_us=at_us,
        pending=max(one.pending for one in depths),
        in_flight=max(one.in_flight for one in depths),
        blocked=max(one.blocked for one in depths),
        dead=max(one.dead for one in depths),
        held=max(one.held for one in depths),
        oldest_age_seconds=max(one.oldest_age_seconds for one in depths),
        enqueued_per_second=enqueued,
        completed_per_second=completed,
        retried_per_second=retried,
        dead_per_second=died,
    )


def per_second(counts: Sequence[int], seconds: float) -> tuple[float, ...]:
    """Return these counts as rates."""
    return tuple(count / seconds if seconds > 0 else 0.0 for count in counts)


# --- rows ----------------------------------------------------------------------------------------

Columns = tuple[int, int, int, int, int, float, int, int, int, int, float]
"""Depths, age, flow and seconds, as they are stored."""
SummedRow = tuple[str, int, int, int, int, int, int, float, int, int, int, int, float]
"""A queue and when a point begins, then its columns: the greatest, and sums."""


def columns_of(sample: QueueSample) -> Columns:
    """Return a sample as columns."""
    depth, flow = sample.depth, sample.flow
    return (
        depth.pending,
        depth.in_flight,
        depth.blocked,
        depth.dead,
        depth.held,
        depth.oldest_age_seconds,
        flow.enqueued,
        flow.completed,
        flow.retried,
        flow.died,
        sample.seconds,
    )


def series_of(rows: Iterable[SummedRow]) -> Series:
    """Return rows, sorted by queue and time, as points."""
    found: dict[str, list[SamplePoint]] = {}
    for row in rows:
        rates = per_second(row[8:12], row[12])
        found.setdefault(row[0], []).append(SamplePoint(*row[1:8], *rates))
    return found
