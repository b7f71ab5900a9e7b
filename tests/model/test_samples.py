"""Samples: which points are read, how they are joined, and how many queues have their own."""

from __future__ import annotations

import random

import pytest

from holdfast.model.errors import InvalidInput
from holdfast.model.job import MICROSECONDS
from holdfast.model.samples import (
    MAX_POINTS,
    MAX_QUEUES,
    OTHER_QUEUES,
    QueueDepth,
    QueueFlow,
    QueueSample,
    Tier,
    bounded,
    point_of,
    sample_query,
)

NOW_US = 1_800_000_000 * MICROSECONDS
HOUR_US = 3_600 * MICROSECONDS


def sample(pending: int = 0, completed: int = 0, seconds: float = 10.0) -> QueueSample:
    return QueueSample(QueueDepth(pending=pending), QueueFlow(completed=completed), seconds)


@pytest.mark.parametrize(
    ("hours", "step_seconds", "tier", "step"),
    [
        (0.5, 0, Tier.SAMPLE, 10),
        (1, 0, Tier.SAMPLE, 10),
        (2, 0, Tier.SAMPLE, 20),
        (2, 45, Tier.SAMPLE, 50),
        (2, 60, Tier.MINUTE, 60),
        (2.1, 0, Tier.MINUTE, 60),
        (8, 0, Tier.MINUTE, 60),
        (9, 0, Tier.MINUTE, 120),
        (48, 0, Tier.MINUTE, 360),
        (10_000, 0, Tier.MINUTE, 360),
        (48, 3_600, Tier.MINUTE, 3_600),
    ],
)
def test_the_finest_points_that_are_kept_and_not_too_many(hours, step_seconds, tier, step):
    query = sample_query((), int(NOW_US - hours * HOUR_US), NOW_US, step_seconds, NOW_US)
    assert (query.tier, query.step_us) == (tier, step * MICROSECONDS)


@pytest.mark.parametrize("seed", range(3))
def test_no_question_has_more_points_than_allowed(seed):
    rng = random.Random(seed)
    for _question in range(2_000):
        ends = sorted(NOW_US + rng.randrange(-60 * HOUR_US, HOUR_US) for _end in range(2))
        query = sample_query((), ends[0], ends[1] + 1, rng.choice((0, 0, 7, 90)), NOW_US)
        first_us = max(query.from_us, NOW_US - query.tier.kept_us)
        last_us = min(query.to_us - 1, NOW_US)
        points = last_us // query.step_us - first_us // query.step_us + 1
        assert points <= MAX_POINTS
        assert query.step_us % query.tier.step_us == 0


@pytest.mark.parametrize(("from_us", "to_us"), [(5, 5), (6, 5), (-1, 5), (0, 2**63)])
def test_times_that_are_none_are_refused(from_us, to_us):
    with pytest.raises(InvalidInput):
        sample_query((), from_us, to_us, 0, NOW_US)


def test_a_point_has_the_greatest_depth_and_the_rate_of_all_its_seconds():
    point = point_of(7, [sample(3, 10, 10.0), sample(90, 0, 20.0), sample(1, 50, 30.0)])
    assert (point.at_us, point.pending) == (7, 90)
    assert point.completed_per_second == 1.0
    assert point_of(7, [sample(completed=5, seconds=0.0)]).completed_per_second == 0.0


def test_beyond_a_number_of_queues_those_with_the_least_work_share_a_name():
    busy = {f"busy-{number}": sample(pending=10 + number) for number in range(MAX_QUEUES - 1)}
    idle = {f"idle-{number}": sample(pending=2, completed=1) for number in range(50)}
    found = bounded({**idle, **busy})
    assert len(found) == MAX_QUEUES
    assert set(found) == {*busy, OTHER_QUEUES}
    assert found[OTHER_QUEUES].depth.pending == 100
    assert found[OTHER_QUEUES].flow.completed == 50
    assert found[OTHER_QUEUES].seconds == 10.0


def test_a_queue_of_that_name_is_added_to_it():
    queues = {f"q{number}": sample(pending=10) for number in range(MAX_QUEUES)}
    found = bounded({OTHER_QUEUES: sample(pending=1_000), **queues})
    assert found[OTHER_QUEUES].depth.pending >= 1_000
    assert sum(one.depth.pending for one in found.values()) == 1_000 + 10 * MAX_QUEUES


def test_few_queues_are_left_as_they_are():
    queues = {f"q{number}": sample() for number in range(MAX_QUEUES)}
    assert bounded(queues) == queues
