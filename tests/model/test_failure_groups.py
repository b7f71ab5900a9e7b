"""Dead letters in groups."""

from msgspec.structs import replace

from holdfast.model.failure import Failure, FailureClass
from holdfast.model.failure_groups import group_dead_jobs, group_key, key_of
from holdfast.model.job import Job, State
from holdfast.model.search import HOUR_US

TIMEOUT = Failure.of("timeout", "took 31 s")


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
        ]
    )
    assert (group.count, group.tenants, group.scopes) == (4, 2, 3)
    assert (group.first_at_us, group.last_at_us) == (5 * HOUR_US + 1, 5 * HOUR_US + 4)
    assert (group.hour_us, group.held_behind) == (5 * HOUR_US, 0)
    assert (group.queue, group.error_reason) == ("mail", "timeout")
    assert (group.failure_class, group.fingerprint) == (FailureClass.TRANSIENT, "took <number> s")


def test_each_thing_that_differs_makes_another_group() -> None:
    different = [
        dead(1),
        dead(2, queue="slow"),
        dead(3, Failure.of("connection", "took 31 s")),
        dead(4, Failure.of("timeout", "gave up")),
        dead(5, Failure("timeout", FailureClass.UNKNOWN, "took 31 s")),
        dead(6, finished_at_us=6 * HOUR_US),
    ]
    assert len({group_key(job) for job in different}) == len(group_dead_jobs(different)) == 6


def test_a_group_is_told_by_the_key_of_its_jobs() -> None:
    [group] = group_dead_jobs([dead(1)])
    assert key_of(group) == group_key(dead(1))


def test_an_hour_begins_on_the_hour() -> None:
    last, first = dead(1, finished_at_us=6 * HOUR_US - 1), dead(2, finished_at_us=6 * HOUR_US)
    assert [group.hour_us for group in group_dead_jobs([last, first])] == [6 * HOUR_US, 5 * HOUR_US]


def test_the_largest_comes_first_then_the_latest_then_by_name() -> None:
    groups = group_dead_jobs(
        [
            dead(1, queue="b"),
            dead(1, queue="a"),
            dead(2, queue="late"),
            dead(1, queue="large"),
            dead(2, queue="large"),
        ]
    )
    assert [group.queue for group in groups] == ["large", "late", "a", "b"]


def test_what_has_no_failure_is_in_no_group() -> None:
    assert group_key(dead(1, None)) is None
    assert group_dead_jobs([dead(1, None)]) == []
