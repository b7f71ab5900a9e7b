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


def test_the_defaults_are_three_runs_and_five_minutes() -> None:
    policy = RetryPolicy()
    assert policy.max_attempts == DEFAULT_MAX_ATTEMPTS == 3
    assert (delay(policy, 1), delay(policy, 2)) == (1.0, 2.0)
    assert delay(RetryPolicy(max_attempts=99), 98) == 300.0


def test_jitter_is_full_and_asked_for_once() -> None:
    asked: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        asked.append((low, high))
        return 0.123

    policy = RetryPolicy(base_backoff_seconds=3.0)
    assert policy.delay_seconds(TIMEOUT, 2, uniform) == 0.123
    assert asked == [(0.0, 6.0)]


@settings(deadline=None)
@given(base=SECONDS, cap=SECONDS, attempt=ATTEMPTS, seed=st.integers())
def test_a_delay_is_between_nothing_and_the_smaller_of_backoff_and_cap(
    base: float, cap: float, attempt: int, seed: int
) -> None:
    policy = RetryPolicy(OFTEN, base, cap)
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
    policy = RetryPolicy(OFTEN, base, retry_after_max_seconds=most)
    floor = min(asked, most)
    assert delay(policy, attempt, asks_for(asked), lowest) == floor
    assert delay(policy, attempt, asks_for(asked)) == floor + delay(policy, attempt)


@pytest.mark.parametrize(("asked", "waits"), [(0.0, 1.0), (60.0, 61.0), (86_400.0, 3_601.0)])
def test_jitter_goes_on_top_of_retry_after(asked: float, waits: float) -> None:
    assert delay(RetryPolicy(), 1, asks_for(asked)) == waits


def test_an_upstream_that_asks_for_ever_gets_the_cap() -> None:
    assert delay(RetryPolicy(), 1, asks_for(math.inf), lowest) == 3_600.0


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
    assert delay(RetryPolicy(), 1, UNEXPECTED) == 1.0


@pytest.mark.parametrize("attempt", [64, 65, 1_024, 1_025, 10**9, 10**400])
@pytest.mark.parametrize("base", [5e-324, 1.0, 1e300])
def test_huge_attempt_numbers_do_not_overflow(attempt: int, base: float) -> None:
    policy = RetryPolicy(attempt + 1, base_backoff_seconds=base)
    top = delay(policy, attempt)
    assert 0 < top <= 300.0
    assert top == 300.0 or base < 1e-300


def test_no_backoff_is_no_wait() -> None:
    assert delay(RetryPolicy(base_backoff_seconds=0), 2) == 0
    assert delay(RetryPolicy(max_backoff_seconds=0), 2) == 0
    assert delay(RetryPolicy(retry_after_max_seconds=0), 2, asks_for(9.0)) == 2.0


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
