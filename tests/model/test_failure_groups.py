"""Dead letters in groups."""

import pytest
from msgspec.structs import replace

from holdfast.model.access import SYSTEM, Caller
from holdfast.model.errors import InvalidInput
from holdfast.model.failure import Failure, FailureClass
from holdfast.model.failure_groups import group_dead_jobs, key_of, life_of, narrowed, with_lives
from holdfast.model.group_life import GroupChange, GroupState, GroupVerb, change_life, group_key
from holdfast.model.job import Job, State
from holdfast.model.search import HOUR_US, Filter

TIMEOUT = Failure.of("timeout", "took 31 s")
NOW_US = 5 * HOUR_US + 99


def dead(number: int, failure: Failure | None = TIMEOUT, **fields: object) -> Job:
    job = Job(
        f"j{number}",
        "acme",
        "",
        "mail",
        "send",
        b"{}",
        0,
        3,
        created_at_us=1,
        run_at_us=1,
        seq=number,
        state=State.DEAD,
        failure=failure,
        finished_at_us=5 * HOUR_US + number,
    )
    return replace(job, **fields)


def test_what_is_alike_is_one_group_with_its_counts_and_times() -> None:
    [group] = group_dead_jobs(
        [
            dead(3, Failure.of("timeout", "took 7 s")),
            dead(1, tenant="other"),
            dead(2, scope="library:1"),
            dead(4, scope="library:1"),
        ],
        NOW_US,
    )
    assert (group.count, group.tenants, group.scopes) == (4, 2, 3)
    assert (group.first_at_us, group.last_at_us) == (5 * HOUR_US + 1, 5 * HOUR_US + 4)
    assert (group.trend[-1], group.held_behind, group.state) == (4, 0, GroupState.OPEN)
    assert (group.queue, group.error_reason) == ("mail", "timeout")
    assert (group.failure_class, group.fingerprint) == (FailureClass.TRANSIENT, "took <number> s")


def test_each_thing_that_differs_makes_another_group() -> None:
    different = [
        dead(1),
        dead(2, queue="slow"),
        dead(3, Failure.of("connection", "took 31 s")),
        dead(4, Failure.of("timeout", "gave up")),
        dead(5, task="other"),
        dead(6, replace(TIMEOUT, status=504)),
    ]
    assert len({group_key(job) for job in different}) == 6
    groups = group_dead_jobs(different, NOW_US)
    assert len({group.id for group in groups}) == len(groups) == 6


def test_hours_and_classes_do_not_separate_groups() -> None:
    [group] = group_dead_jobs(
        [
            dead(1, Failure("timeout", FailureClass.UNKNOWN, "took 31 s")),
            dead(2, finished_at_us=3 * HOUR_US),
        ],
        NOW_US,
    )
    assert (group.count, group.failure_class) == (2, FailureClass.TRANSIENT)
    assert group.trend == (*[0] * 21, 1, 0, 1)


def test_an_id_stays_the_same_for_ever() -> None:
    """It is in the notes and links of people, and stored."""
    [group] = group_dead_jobs([dead(1)], NOW_US)
    assert group.id == "g-d59bb2d18f"


def test_a_filter_is_narrowed_to_a_group_or_refused() -> None:
    [group] = group_dead_jobs([dead(1, replace(TIMEOUT, status=504))], NOW_US)
    wanted = narrowed(Filter(queues=("mail", "slow"), tenant="acme"), group)
    assert wanted == Filter(
        queues=("mail",),
        tenant="acme",
        tasks=("send",),
        error_reasons=("timeout",),
        statuses=(504,),
        fingerprint="took <number> s",
    )
    for other in (
        Filter(queues=("slow",)),
        Filter(tasks=("other",)),
        Filter(statuses=(404,)),
        Filter(fingerprint="other"),
    ):
        with pytest.raises(InvalidInput, match=group.id):
            narrowed(other, group)


def test_a_touched_group_is_listed_without_letters_to_whoever_reaches_everything() -> None:
    [group] = group_dead_jobs([dead(1)], NOW_US)
    life = change_life(life_of(group), GroupChange(GroupVerb.ACKNOWLEDGE), "ann", "mine", NOW_US)
    assert life is not None
    lives = {group.id: life}
    [listed] = with_lives([], lives, Filter(), SYSTEM, NOW_US)
    assert (listed.id, listed.count, listed.state) == (group.id, 0, GroupState.ACKNOWLEDGED)
    assert with_lives([], lives, Filter(), Caller("acme"), NOW_US) == []
    assert with_lives([], lives, Filter(tenant="acme"), SYSTEM, NOW_US) == []
    assert with_lives([], lives, Filter(queues=("slow",)), SYSTEM, NOW_US) == []


def test_a_group_is_told_by_the_key_of_its_jobs() -> None:
    [group] = group_dead_jobs([dead(1)], NOW_US)
    assert key_of(group) == group_key(dead(1))


def test_the_largest_comes_first_then_the_latest_then_by_name() -> None:
    groups = group_dead_jobs(
        [
            dead(1, queue="b"),
            dead(1, queue="a"),
            dead(2, queue="late"),
            dead(1, queue="large"),
            dead(2, queue="large"),
        ],
        NOW_US,
    )
    assert [group.queue for group in groups] == ["large", "late", "a", "b"]


def test_what_has_no_failure_is_in_no_group() -> None:
    assert group_key(dead(1, None)) is None
    assert group_dead_jobs([dead(1, None)], NOW_US) == []
