"""How long to wait before the next run, and when there is to be none."""

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.errors import InvalidInput
from holdfast.model.failure import Failure, FailureClass
from holdfast.model.retry import DEFAULT_MAX_ATTEMPTS, RetryPolicy

OFTEN = 1_000_000
TIMEOUT = Failure.of("timeout", "slow")
UNEXPECTED = Failure.of("unexpected", "why")
SECONDS = st.floats(0, 1e9)
ATTEMPTS = st.integers(1, OFTEN - 1)


def asks_for(seconds: float) -> Failure:
    return Failure("rate_limited", FailureClass.TRANSIENT, retry_after_seconds=seconds)


def highest(_low: float, high: float) -> float:
    return high


def lowest(low: float, _high: float) -> float:
    return low


def delay(
    policy: RetryPolicy,
    attempt: int,
    failure: Failure = TIMEOUT,
    uniform: Callable[[float, float], float] = highest,
) -> float:
    seconds = policy.delay_seconds(failure, attempt, uniform)
    assert seconds is not None
    return seconds


def never(_low: float, _high: float) -> float:
    raise AssertionError("no jitter is needed")


def test_the_upper_bound_doubles_with_every_attempt_up_to_the_cap() -> None:
    policy = RetryPolicy(max_attempts=99, base_backoff_seconds=0.5, max_backoff_seconds=10.0)
    assert [delay(policy, attempt) for attempt in range(1, 8)] == [0.5, 1, 2, 4, 8, 10, 10]


def test_the_defaults_are_twenty_runs_from_two_seconds_to_fifteen_minutes() -> None:
    policy = RetryPolicy()
    assert policy.max_attempts == DEFAULT_MAX_ATTEMPTS == 20
    nominal = [delay(policy, attempt) for attempt in range(1, 20)]
    assert nominal == [2, 4, 8, 16, 32, 64, 128, 256, 512, *[900] * 10]
    assert policy.delay_seconds(TIMEOUT, 20, never) is None


@pytest.mark.parametrize("seed", range(20))
def test_no_wait_is_below_half_of_its_nominal_length_by_default(seed: int) -> None:
    policy, uniform = RetryPolicy(), random.Random(seed).uniform
    for attempt in range(1, 20):
        nominal = policy.nominal_seconds(attempt)
        assert nominal / 2 <= delay(policy, attempt, uniform=uniform) <= nominal


def test_a_short_outage_kills_nothing_by_default() -> None:
    # The waits before the fourth run are at least 7 s in all, before the sixth 31 s.
    policy = RetryPolicy()
    shortest = [delay(policy, attempt, uniform=lowest) for attempt in range(1, 20)]
    assert sum(shortest[:3]) == 7
    assert sum(shortest[:5]) == 31
    assert sum(shortest) > 3_600


def test_control_full_jitter_may_use_up_three_runs_at_once() -> None:
    policy = RetryPolicy(max_attempts=3, base_backoff_seconds=1.0, jitter=1.0)
    assert [delay(policy, attempt, uniform=lowest) for attempt in (1, 2)] == [0, 0]


def test_waits_are_taken_in_order_and_the_last_one_repeats() -> None:
    policy = RetryPolicy(waits_seconds=(10.0, 60.0, 600.0))
    assert [delay(policy, attempt) for attempt in range(1, 6)] == [10, 60, 600, 600, 600]
    assert delay(policy, 2, uniform=lowest) == 30
    assert delay(policy, 1, asks_for(90.0)) == 100


def test_without_jitter_every_wait_is_exact() -> None:
    policy = RetryPolicy(jitter=0.0)
    assert [delay(policy, attempt, uniform=lowest) for attempt in (1, 2, 3)] == [2, 4, 8]


@pytest.mark.parametrize("jitter", [-0.1, 1.1, math.nan, True, "half", None])
def test_a_jitter_that_is_no_share_is_refused(jitter: object) -> None:
    with pytest.raises(InvalidInput, match="jitter"):
        RetryPolicy(jitter=jitter)  # type: ignore[arg-type]


def test_full_jitter_is_asked_for_once() -> None:
    asked: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        asked.append((low, high))
        return 0.123

    policy = RetryPolicy(base_backoff_seconds=3.0, jitter=1.0)
    assert policy.delay_seconds(TIMEOUT, 2, uniform) == 0.123
    assert asked == [(0.0, 6.0)]


@settings(deadline=None)
@given(base=SECONDS, cap=SECONDS, attempt=ATTEMPTS, seed=st.integers())
def test_a_delay_is_between_nothing_and_the_smaller_of_backoff_and_cap(
    base: float, cap: float, attempt: int, seed: int
) -> None:
    policy = RetryPolicy(OFTEN, base, cap, jitter=1.0)
    top = delay(policy, attempt)
    assert delay(policy, attempt, uniform=lowest) == 0
    assert 0 <= delay(policy, attempt, uniform=random.Random(seed).uniform) <= top <= cap
    assert top == cap or math.isclose(top, base * 2.0 ** min(attempt - 1, 63))


@settings(deadline=None)
@given(base=SECONDS, cap=SECONDS, attempt=ATTEMPTS)
def test_a_later_attempt_never_waits_less(base: float, cap: float, attempt: int) -> None:
    policy = RetryPolicy(OFTEN + 1, base, cap)
    assert delay(policy, attempt) <= delay(policy, attempt + 1)


@settings(deadline=None)
@given(asked=SECONDS, most=SECONDS, base=SECONDS, attempt=ATTEMPTS)
def test_retry_after_is_a_floor_up_to_its_own_cap(
    asked: float, most: float, base: float, attempt: int
) -> None:
    policy = RetryPolicy(OFTEN, base, retry_after_max_seconds=most, jitter=1.0)
    floor = min(asked, most)
    assert delay(policy, attempt, asks_for(asked), lowest) == floor
    assert delay(policy, attempt, asks_for(asked)) == floor + delay(policy, attempt)


@pytest.mark.parametrize(("asked", "waits"), [(0.0, 2.0), (60.0, 62.0), (86_400.0, 3_602.0)])
def test_jitter_goes_on_top_of_retry_after(asked: float, waits: float) -> None:
    assert delay(RetryPolicy(), 1, asks_for(asked)) == waits


def test_an_upstream_that_asks_for_ever_gets_the_cap() -> None:
    assert delay(RetryPolicy(), 1, asks_for(math.inf), lowest) == 3_601.0


@settings(deadline=None)
@given(attempt=st.integers(1, OFTEN))
def test_what_is_deterministic_is_never_tried_again(attempt: int) -> None:
    for failure in (
        Failure.of("payload_invalid", "no"),
        Failure("mine", FailureClass.DETERMINISTIC, retry_after_seconds=5.0),
    ):
        assert RetryPolicy(OFTEN + 1).delay_seconds(failure, attempt, never) is None


@settings(deadline=None)
@given(max_attempts=st.integers(1, OFTEN), over=st.integers(0, OFTEN))
def test_there_is_no_next_run_once_the_attempts_are_used_up(max_attempts: int, over: int) -> None:
    policy = RetryPolicy(max_attempts)
    for failure in (TIMEOUT, UNEXPECTED, asks_for(5.0)):
        assert policy.delay_seconds(failure, max_attempts + over, never) is None
        if max_attempts > 1:
            assert policy.delay_seconds(failure, max_attempts - 1, lowest) is not None


def test_what_nobody_knows_is_tried_again() -> None:
    assert delay(RetryPolicy(), 1, UNEXPECTED) == 2.0


@pytest.mark.parametrize("attempt", [64, 65, 1_024, 1_025, 10**9, 10**400])
@pytest.mark.parametrize("base", [5e-324, 1.0, 1e300])
def test_huge_attempt_numbers_do_not_overflow(attempt: int, base: float) -> None:
    policy = RetryPolicy(attempt + 1, base_backoff_seconds=base)
    top = delay(policy, attempt)
    assert 0 < top <= 900.0
    assert top == 900.0 or base < 1e-300


def test_no_backoff_is_no_wait() -> None:
    assert delay(RetryPolicy(base_backoff_seconds=0), 2) == 0
    assert delay(RetryPolicy(max_backoff_seconds=0), 2) == 0
    assert delay(RetryPolicy(retry_after_max_seconds=0), 2, asks_for(9.0)) == 4.0


@pytest.mark.parametrize("value", [0, -1, -OFTEN])
def test_fewer_than_one_attempt_is_refused(value: int) -> None:
    with pytest.raises(InvalidInput) as caught:
        RetryPolicy(max_attempts=value)
    assert caught.value.field == "max_attempts"
    assert str(value) in caught.value.problem


@pytest.mark.parametrize(
    "field", ["base_backoff_seconds", "max_backoff_seconds", "retry_after_max_seconds"]
)
@pytest.mark.parametrize("value", [-1, -1e-9, math.inf, -math.inf, math.nan])
def test_what_is_no_number_of_seconds_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(InvalidInput) as caught:
        RetryPolicy(**{field: value})  # type: ignore[arg-type]
    assert caught.value.field == field
    assert str(value) in caught.value.problem
    assert str(caught.value).startswith(f"{field}: ")
