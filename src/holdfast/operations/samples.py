"""Samples for people: how queues are now, and how they were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from holdfast.engines.contract import Engine
from holdfast.model.job import MICROSECONDS, check_id, check_seconds
from holdfast.model.samples import SamplePoint, Series

from .views import QueueRates, QueueStatus, Status, date_of

_RECENT_US = 120 * MICROSECONDS
_RECENT_STEPS = 3
"""A sample is recent for two minutes, or for so many times the distance of the last two."""
_LOOK_BACK_US = 1_800 * MICROSECONDS
_AHEAD_US = 60 * MICROSECONDS
"""The clock of a server may be ahead of ours."""


class PointView(msgspec.Struct, frozen=True):
    """One point of a series: the greatest depths and age in its time, and mean rates."""

    at: datetime
    pending: int
    in_flight: int
    blocked: int
    dead: int
    held: int
    oldest_age_seconds: float
    rates: QueueRates

    @classmethod
    def of(cls, point: SamplePoint) -> PointView:
        """Return the point for people."""
        return cls(
            at=date_of(point.at_us),
            pending=point.pending,
            in_flight=point.in_flight,
            blocked=point.blocked,
            dead=point.dead,
            held=point.held,
            oldest_age_seconds=round(point.oldest_age_seconds, 3),
            rates=rates_of(point),
        )


class SeriesView(msgspec.Struct, frozen=True):
    """The points of a queue in the order of time; a time without a sample has none."""

    queue: str
    points: list[PointView]

    @classmethod
    def of(cls, queue: str, points: Sequence[SamplePoint]) -> SeriesView:
        """Return the series for people."""
        return cls(queue, [PointView.of(point) for point in points])


def rates_of(point: SamplePoint) -> QueueRates:
    """Return the rates of a point, rounded for people."""
    return QueueRates(
        enqueued_per_second=round(point.enqueued_per_second, 3),
        completed_per_second=round(point.completed_per_second, 3),
        retried_per_second=round(point.retried_per_second, 3),
        dead_per_second=round(point.dead_per_second, 3),
    )


async def series_of_queue(
    engine: Engine, queue: str, since_seconds: float, step_seconds: float, now_us: int
) -> list[PointView]:
    """Return how a queue was, from so many seconds ago until now."""
    check_id(queue, "queue")
    check_seconds("since_seconds", since_seconds)
    from_us = max(0, now_us - int(since_seconds * MICROSECONDS))
    found = await engine.samples(
        [queue], from_us=from_us, to_us=now_us + _AHEAD_US, step_seconds=step_seconds
    )
    return [PointView.of(point) for point in found.get(queue, [])]


async def latest(engine: Engine, now_us: int) -> Mapping[str, SamplePoint]:
    """Return the last sample of each queue that has a recent one."""
    series = await engine.samples(from_us=max(0, now_us - _LOOK_BACK_US), to_us=now_us + _AHEAD_US)
    return {queue: points[-1] for queue, points in series.items() if _is_recent(points, now_us)}


def _is_recent(points: Sequence[SamplePoint], now_us: int) -> bool:
    distance_us = points[-1].at_us - points[-2].at_us if len(points) > 1 else 0
    return now_us - points[-1].at_us <= max(_RECENT_US, _RECENT_STEPS * distance_us)


def with_samples(status: Status, sampled: Mapping[str, SamplePoint]) -> Status:
    """Return the status with rates and ages of the last sample."""
    queues = [_sampled(item, sampled.get(item.queue)) for item in status.queues]
    return msgspec.structs.replace(status, queues=queues)


def _sampled(item: QueueStatus, point: SamplePoint | None) -> QueueStatus:
    if point is None:
        return item
    return msgspec.structs.replace(
        item,
        held=point.held,
        oldest_age_seconds=round(point.oldest_age_seconds, 3),
        rates=rates_of(point),
        sampled_at=date_of(point.at_us),
    )


def trend_of(series: Series, queue: str, minutes: int, now_us: int) -> list[int]:
    """Return how many unfinished jobs a queue had in each of the last minutes, the oldest first.

    A minute without a sample repeats the one before: samples may be farther apart.
    """
    step_us = 60 * MICROSECONDS
    known = {
        point.at_us // step_us: point.pending + point.in_flight + point.blocked
        for point in series.get(queue, [])
    }
    last = now_us // step_us
    found: list[int] = []
    for minute in range(last - minutes + 1, last + 1):
        found.append(known.get(minute, found[-1] if found else 0))
    return found
