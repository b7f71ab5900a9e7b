"""Notices in a worker process that a dependency has stopped to answer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from holdfast.model.failure import Failure
from holdfast.model.flags import outage_mode_on
from holdfast.model.job import Job
from holdfast.model.outage import (
    ANSWER_REASONS,
    DependencyReport,
    Outage,
    dependency_of,
    is_outage_failure,
)
from holdfast.model.outcome import Outcome, OutcomeKind

TRIP_FAILURES = 5
"""How many failures in a row, without a success, mean an outage …"""
TRIP_JOBS = 3
"""… if they are of this many jobs: one that always fails is no outage."""
FORGET_SECONDS = 600.0
"""What was seen longer ago than this does not count."""

_COMPLETED = OutcomeKind.COMPLETED


class DependencyHealth:
    """What this process has seen of one dependency."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.declared = False
        """Whether a queue names it, as in ``mail@payments-api``."""
        self.successes = 0
        self.claimed_at_us = 0
        self.failure: Failure | None = None
        self._in_a_row = 0
        self._jobs: set[str] = set()
        self._failed_at = 0.0
        self._tasks: dict[str, tuple[bool, float]] = {}
        """For each task: whether its last run failed, and when that was."""

    def succeeded(self, job: Job, now: float) -> None:
        """Count an answer."""
        self.forget_failures()
        self.successes += 1
        self.claimed_at_us = max(self.claimed_at_us, job.claimed_at_us)
        self._tasks[job.task] = False, now

    def failed(self, job: Job, failure: Failure, now: float) -> None:
        """Count a failure."""
        if now - self._failed_at > FORGET_SECONDS:
            self.forget_failures()
        self._in_a_row += 1
        self._jobs.add(job.id)
        self._failed_at = now
        self.failure = failure
        self._tasks[job.task] = True, now

    def forget_failures(self) -> None:
        """Start to count anew."""
        self._in_a_row = 0
        self._jobs.clear()

    def is_out(self, now: float) -> bool:
        """Whether so many failed that it seems to be out.

        Tasks of a queue that is not declared to have one dependency may need different things:
        there each one that was seen lately must fail.
        """
        if self._in_a_row < TRIP_FAILURES or len(self._jobs) < TRIP_JOBS:
            return False
        lately = [failed for failed, at in self._tasks.values() if now - at <= FORGET_SECONDS]
        return self.declared or all(lately)


class OutageDetector:
    """Follows the outcomes of a worker process; see ``OutageLoop`` for what comes of it."""

    def __init__(self, time: Callable[[], float]) -> None:
        self.flags: Mapping[str, bool] = {}
        self.on_trip: Callable[[], None] = lambda: None
        """Called when a dependency seems to be out: to be reported at once."""
        self._time = time
        self._seen: dict[str, DependencyHealth] = {}

    def observe(self, job: Job, outcome: Outcome) -> None:
        """Take the outcome of an attempt."""
        failure = outcome.failure
        answered = outcome.kind is _COMPLETED or (
            failure is not None and failure.error_reason in ANSWER_REASONS
        )
        if not answered and not is_outage_failure(failure):
            return
        name = dependency_of(job.queue)
        health = self._seen.get(name)
        if health is None:
            health = self._seen[name] = DependencyHealth(name)
        health.declared = health.declared or job.queue != name
        if answered:
            health.succeeded(job, self._time())
        elif failure is not None and outage_mode_on(self.flags, job.queue, name):
            health.failed(job, failure, self._time())
            if health.is_out(self._time()):
                self.on_trip()

    def reports(
        self, active: Mapping[str, Outage], health_checks: Collection[str]
    ) -> list[DependencyReport]:
        """Return what is to be reported now, given the outages that are known to last."""
        found: list[DependencyReport] = []
        for name in sorted({*self._seen, *active}):
            health = self._seen.get(name) or DependencyHealth(name)
            checked = name in health_checks
            if name in active:
                health.forget_failures()  # they belong to it
                if health.successes or checked:
                    found.append(
                        DependencyReport(
                            name,
                            health.successes,
                            health.claimed_at_us,
                            has_health_check=checked,
                        )
                    )
            elif health.is_out(self._time()):
                health.forget_failures()
                found.append(
                    DependencyReport(
                        name, tripped=True, failure=health.failure, has_health_check=checked
                    )
                )
            health.successes = 0
        return found
