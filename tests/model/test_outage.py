"""Outages: the pure rules, and what holds for any course of events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.model import outage as rules
from holdfast.model.errors import InvalidInput
from holdfast.model.failure import Failure
from holdfast.model.job import MICROSECONDS
from holdfast.model.outage import (
    FIRST_PAUSE_US,
    MAX_PAUSE_US,
    MAX_RATE,
    MIN_RATE,
    DependencyReport,
    Outage,
    OutagePhase,
    RecoveryStep,
    base_queue,
    check_dependency,
    dependency_of,
)

NOW = 1_800_000_000_000_000
SECOND = MICROSECONDS
FAILURE = Failure.of("upstream_5xx", "503")


@pytest.mark.parametrize(
    ("queue", "dependency", "base"),
    [
        ("mail", "mail", "mail"),
        ("mail@api", "api", "mail"),
        ("a@b@c", "c", "a@b"),
        ("mail@", "mail@", "mail@"),
        ("@api", "api", "@api"),
    ],
)
def test_a_dependency_is_part_of_the_name_of_a_queue(queue: str, dependency: str, base: str):
    assert dependency_of(queue) == dependency
    assert base_queue(queue) == base


@pytest.mark.parametrize("name", ["a@b", "", "x" * 300])
def test_the_name_of_a_dependency_is_checked(name: str) -> None:
    with pytest.raises(InvalidInput):
        check_dependency(name)


def out(**changes: object) -> Outage:
    return replace(rules.start("api", NOW, FAILURE), **changes)


def recovering(**changes: object) -> Outage:
    probed = rules.claimed(out(), NOW)
    found = rules.observe(probed, DependencyReport("api", 1, NOW), NOW)
    assert found is not None
    return replace(found, **changes)


def test_the_pause_grows_up_to_its_limit() -> None:
    outage, now_us, pauses = out(), NOW, []
    for _probe in range(8):
        now_us = max(now_us, outage.next_probe_at_us)
        outage = rules.failed(rules.claimed(outage, now_us), FAILURE, now_us, now_us)
        pauses.append((outage.next_probe_at_us - now_us) // SECOND)
    assert pauses == [4, 8, 16, 32, 60, 60, 60, 60]


def test_a_probe_that_says_when_to_come_again_is_believed_within_limits() -> None:
    outage = rules.claimed(out(), NOW)
    asked = replace(FAILURE, retry_after_seconds=120.0)
    assert rules.failed(outage, asked, NOW, NOW).next_probe_at_us == NOW + 120 * SECOND
    asked = replace(FAILURE, retry_after_seconds=1e9)
    assert rules.failed(outage, asked, NOW, NOW).next_probe_at_us == NOW + 600 * SECOND


def test_the_rate_doubles_while_it_is_used_and_all_goes_well() -> None:
    outage = recovering(step=RecoveryStep(NOW, claims=1, successes=1))
    after = rules.observe(outage, DependencyReport("api"), NOW + SECOND)
    assert after is not None
    assert (after.rate, after.step) == (2.0, RecoveryStep(NOW + SECOND))


def test_after_a_failure_it_grows_slowly() -> None:
    outage = recovering(rate=64.0, phase_since_us=NOW)
    halved = rules.failed(outage, FAILURE, NOW + SECOND, NOW + SECOND)
    assert (halved.rate, halved.slow_above) == (32.0, 32.0)
    again = rules.failed(halved, FAILURE, NOW + SECOND, NOW + SECOND)
    assert again.rate == 32.0, "one of the same second tells nothing new"
    later = NOW + 4 * SECOND
    step = RecoveryStep(later - SECOND, claims=30, successes=30)
    after = rules.observe(replace(halved, step=step), DependencyReport("api"), later)
    assert after is not None
    assert after.rate == pytest.approx(35.2)


def test_it_relapses_when_all_fails_again() -> None:
    outage: Outage | None = recovering()
    now_us = NOW
    for _second in range(2):
        now_us += SECOND
        for _failure in range(3):
            assert outage is not None
            outage = rules.failed(outage, FAILURE, now_us, now_us)
        outage = rules.observe(outage, DependencyReport("api"), now_us)
    assert outage is not None
    assert (outage.phase, outage.pause_us) == (OutagePhase.OUT, FIRST_PAUSE_US)
    assert outage.since_us == NOW


def test_it_ends_when_the_rate_limits_nothing() -> None:
    unused = recovering(rate=100.0, spent_until_us=0, step=RecoveryStep(NOW, claims=5, successes=5))
    early = rules.observe(unused, DependencyReport("api"), NOW + SECOND)
    assert early is not None
    assert early.phase is OutagePhase.RECOVERING
    after = rules.observe(unused, DependencyReport("api"), NOW + 5 * SECOND)
    assert after is not None
    assert (after.phase, after.ended_at_us) == (OutagePhase.ENDED, NOW + 5 * SECOND)
    fast = recovering(rate=600.0, step=RecoveryStep(NOW, claims=600, successes=600))
    after = rules.observe(fast, DependencyReport("api"), NOW + SECOND)
    assert after is not None
    assert after.phase is OutagePhase.ENDED


events = st.lists(
    st.tuples(
        st.sampled_from(["claim", "fail", "old failure", "success", "tick", "healthy", "ill"]),
        st.integers(0, 90 * SECOND),
    ),
    max_size=60,
)


@given(events)
def test_whatever_happens_the_record_stays_within_its_limits(course: list[tuple[str, int]]) -> None:
    outage, now_us, last_claim_us = out(), NOW, 0
    for event, passed_us in course:
        now_us += passed_us
        before = outage
        if event == "claim" and rules.room(outage, now_us):
            if outage.phase is OutagePhase.OUT and not outage.has_health_check:
                assert now_us - last_claim_us >= FIRST_PAUSE_US, "a pause between probes"
            outage, last_claim_us = rules.claimed(outage, now_us), now_us
            assert rules.room(outage, now_us) == rules.room(before, now_us) - 1
        elif event == "fail":
            outage = rules.failed(outage, FAILURE, last_claim_us, now_us)
        elif event == "old failure":
            assert rules.failed(outage, FAILURE, NOW - 1, now_us) == outage
        else:
            report = DependencyReport(
                "api",
                int(event == "success"),
                last_claim_us if event == "success" else 0,
                has_health_check=event in ("healthy", "ill"),
                healthy={"healthy": True, "ill": False}.get(event),
            )
            after = rules.observe(outage, report, now_us)
            assert after is not None
            outage = after
        if not outage.active:
            assert outage.ended_at_us == now_us
            return
        assert MIN_RATE <= outage.rate <= MAX_RATE
        assert FIRST_PAUSE_US <= outage.pause_us <= MAX_PAUSE_US
        opens_us = rules.opens_at_us(outage, now_us)
        assert (opens_us is None) == (rules.room(outage, now_us) > 0)
        if opens_us is not None:
            assert rules.room(outage, opens_us) > 0
            assert rules.room(outage, opens_us - 1) == 0
        assert now_us < rules.retry_at_us(outage, now_us) <= now_us + 2 * MAX_PAUSE_US
