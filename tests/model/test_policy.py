"""What a queue allows, in numbers."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.errors import InvalidInput
from holdfast.model.job import MAX_TIME_US, MICROSECONDS
from holdfast.model.policy import DEFAULT_POLICY, QueuePolicy, Rate

NOW = 1_000_000_000_000
SECOND = MICROSECONDS


@pytest.mark.parametrize(
    ("policy", "in_flight", "room"),
    [
        (QueuePolicy(), 10**6, None),
        (QueuePolicy(paused=True), 0, 0),
        (QueuePolicy(paused=True, max_in_flight=9), 0, 0),
        (QueuePolicy(max_in_flight=3), 0, 3),
        (QueuePolicy(max_in_flight=3), 2, 1),
        (QueuePolicy(max_in_flight=3), 5, 0),
        (QueuePolicy(rate=Rate(4, 60.0)), 10**6, 4),
        (QueuePolicy(rate=Rate(4, 60.0), max_in_flight=3), 1, 2),
        (QueuePolicy(rate=Rate(1, 60.0), max_in_flight=3), 1, 1),
    ],
)
def test_room_is_what_the_tightest_limit_leaves(
    policy: QueuePolicy, in_flight: int, room: int | None
) -> None:
    assert policy.room(in_flight, 0, NOW) == room


@pytest.mark.parametrize(("count", "seconds", "interval_us"), [(2, 1.0, 500_000), (10**6, 1e-9, 1)])
def test_the_interval_of_a_rate(count: int, seconds: float, interval_us: int) -> None:
    assert Rate(count, seconds).interval_us == interval_us


@settings(deadline=None)
@given(
    count=st.integers(1, 50),
    seconds=st.floats(0.001, 3_600),
    steps=st.lists(st.integers(0, 10 * SECOND), max_size=60),
)
def test_a_rate_lets_a_burst_through_and_never_more_than_it_says_on_top(
    count: int, seconds: float, steps: list[int]
) -> None:
    policy = QueuePolicy(rate=Rate(count, seconds))
    assert policy.rate is not None
    interval_us = policy.rate.interval_us
    spent_us, now_us, claims = 0, NOW, 0
    for step in steps:
        now_us += step
        while policy.room(0, spent_us, now_us):
            spent_us = policy.spend(spent_us, now_us)
            claims += 1
        assert claims <= count + (now_us - NOW) // interval_us
        opens_us = policy.opens_at_us(spent_us, now_us)
        assert opens_us is not None
        assert now_us < opens_us <= now_us + interval_us
        assert policy.room(0, spent_us, opens_us - 1) == 0
        assert policy.room(0, spent_us, opens_us) == 1


def test_what_is_not_limited_by_time_does_not_open_by_it() -> None:
    assert DEFAULT_POLICY.opens_at_us(0, NOW) is None
    assert QueuePolicy(max_in_flight=1).opens_at_us(0, NOW) is None
    assert QueuePolicy(rate=Rate(2, 1.0)).opens_at_us(0, NOW) is None, "there is room already"
    spent_us = NOW + 10 * SECOND
    assert QueuePolicy(rate=Rate(1, 1.0), paused=True).opens_at_us(spent_us, NOW) is None


def test_the_outage_of_older_versions_is_read_and_has_no_effect() -> None:
    policy = QueuePolicy(outage_until_us=NOW + 5 * SECOND)
    packed = msgspec.msgpack.encode(policy)
    assert msgspec.msgpack.decode(packed, type=QueuePolicy) == policy
    assert policy.room(3, 0, NOW) is None
    assert policy.opens_at_us(0, NOW) is None
    assert not policy.limits_claims


def test_time_spent_stays_a_time_that_can_be_stored() -> None:
    policy = QueuePolicy(rate=Rate(1, MAX_TIME_US / MICROSECONDS))
    policy.check()
    assert policy.spend(MAX_TIME_US, NOW) == MAX_TIME_US
    assert DEFAULT_POLICY.spend(5, NOW) == 0


@pytest.mark.parametrize(
    ("policy", "limits"),
    [
        (QueuePolicy(), False),
        (QueuePolicy(paused=True, fair=True, rate=Rate(1, 1.0)), False),
        (QueuePolicy(max_in_flight=1), True),
        (QueuePolicy(max_per_tenant=1), True),
        (QueuePolicy(max_per_key=1), True),
    ],
)
def test_whether_the_end_of_one_job_makes_room_for_another(
    policy: QueuePolicy, limits: bool
) -> None:
    assert policy.limits_flight is limits


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"paused": 0}, "paused"),
        ({"fair": None}, "fair"),
        ({"ordered": "no"}, "ordered"),
        ({"max_in_flight": 0}, "max_in_flight"),
        ({"max_per_tenant": 1_000_001}, "max_per_tenant"),
        ({"max_per_key": True}, "max_per_key"),
        ({"outage_until_us": 1.5}, "outage_until_us"),
        ({"rate": (1, 1.0)}, "rate"),
        ({"rate": Rate(0, 1.0)}, "rate"),
        ({"rate": Rate(1, float("inf"))}, "rate"),
        ({"rate": Rate(1, -1.0)}, "rate"),
    ],
    ids=str,
)
def test_a_policy_that_makes_no_sense_names_the_field(fields, field):
    with pytest.raises(InvalidInput) as refused:
        QueuePolicy(**fields).check()
    assert refused.value.field == field


def test_a_policy_that_makes_sense_is_fine() -> None:
    DEFAULT_POLICY.check()
    QueuePolicy(
        paused=True,
        max_in_flight=1,
        max_per_tenant=2,
        max_per_key=3,
        rate=Rate(10, 60.0),
        fair=True,
        ordered=False,
        outage_until_us=NOW,
    ).check()
