"""What makes a worker process report an outage."""

import pytest

from holdfast.model import outage as rules
from holdfast.model.failure import Failure
from holdfast.model.flags import outage_mode_on
from holdfast.model.job import Job, State
from holdfast.model.outage import DependencyReport
from holdfast.model.outcome import completed, retry, snooze
from holdfast.worker.outage_detector import OutageDetector

DOWN = Failure.of("connection", "refused")


class Seen:
    """A detector with a clock, and jobs of one queue."""

    def __init__(self, queue: str) -> None:
        self.now = 0.0
        self.queue = queue
        self.trips = 0
        self.detector = OutageDetector(lambda: self.now)
        self.detector.on_trip = self._tripped

    def _tripped(self) -> None:
        self.trips += 1

    def job(self, job_id: str, task: str = "t") -> Job:
        return Job(
            id=job_id,
            tenant="default",
            scope="",
            task=task,
            queue=self.queue,
            payload=b"{}",
            priority=0,
            max_attempts=20,
            created_at_us=0,
            run_at_us=0,
            seq=1,
            state=State.IN_FLIGHT,
            attempt=1,
            token=7,
            claimed_at_us=99,
        )

    def fails(self, *ids: str, task: str = "t", failure: Failure = DOWN) -> None:
        for job_id in ids:
            job = self.job(job_id, task)
            self.detector.observe(job, retry(job, failure))

    def works(self, *ids: str, task: str = "t") -> None:
        for job_id in ids:
            job = self.job(job_id, task)
            self.detector.observe(job, completed(job))

    def reports(self) -> list[DependencyReport]:
        return self.detector.reports({}, ())


def test_five_failures_in_a_row_of_three_jobs() -> None:
    seen = Seen("mail@api")
    seen.fails(*"abca")
    assert seen.reports() == []
    seen.fails("b")
    assert seen.trips == 1
    assert seen.reports() == [DependencyReport("api", tripped=True, failure=DOWN)]
    assert seen.reports() == [], "it is reported once"


@pytest.mark.parametrize("reason", ["rate_limited", "upstream_4xx"])
def test_an_answer_of_any_kind_starts_the_count_anew(reason: str) -> None:
    seen = Seen("mail@api")
    seen.fails(*"abcd")
    seen.fails("e", failure=Failure.of(reason, "no"))
    seen.fails(*"fghi")
    assert seen.reports() == []


def test_what_tells_nothing_changes_nothing() -> None:
    seen = Seen("mail@api")
    seen.fails(*"abcd")
    seen.fails("e", failure=Failure.of("parse_error", "not JSON"))
    job = seen.job("f")
    seen.detector.observe(job, snooze(job, 5))
    seen.fails("g")
    assert [one.tripped for one in seen.reports()] == [True]


def test_failures_of_long_ago_are_forgotten() -> None:
    seen = Seen("mail@api")
    seen.fails(*"abcd")
    seen.now += 601
    seen.fails("e")
    assert seen.reports() == []


def test_a_queue_without_a_declared_dependency_needs_every_task_to_fail() -> None:
    seen = Seen("mail")
    seen.works("x", task="other")
    seen.fails(*"abcdef")
    assert seen.reports() == []
    seen.fails("y", task="other")
    assert [one.dependency for one in seen.reports()] == ["mail"]


def test_a_task_that_was_not_seen_lately_does_not_count() -> None:
    seen = Seen("mail")
    seen.works("x", task="other")
    seen.now += 601
    seen.fails(*"abcde")
    assert [one.dependency for one in seen.reports()] == ["mail"]


def test_while_it_is_out_successes_are_reported_and_failures_are_not_counted() -> None:
    seen = Seen("mail@api")
    active = {"api": rules.start("api", 1)}
    seen.fails(*"abcdef")
    assert seen.detector.reports(active, ()) == []
    assert seen.detector.reports({}, ()) == [], "they belonged to that one"
    seen.works("g")
    assert seen.detector.reports(active, ()) == [DependencyReport("api", 1, 99)]
    assert seen.detector.reports(active, ["api"]) == [
        DependencyReport("api", 0, 99, has_health_check=True)
    ]


@pytest.mark.parametrize(
    ("flags", "on"),
    [
        ({}, True),
        ({"outage_mode": True}, True),
        ({"outage_mode": False}, False),
        ({"outage_mode": False, "outage_mode/mail": True}, True),
        ({"outage_mode/mail": False}, False),
        ({"outage_mode/api": False, "outage_mode/mail": True}, False),
        ({"outage_mode/other": False}, True),
    ],
)
def test_flags(flags: dict[str, bool], on: bool) -> None:
    assert outage_mode_on(flags, "mail", "api") is on
