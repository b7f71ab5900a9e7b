"""The numbers of one process: plain arithmetic, so that counting costs next to nothing per job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

import msgspec

from holdfast.engines.histogram import Histogram
from holdfast.engines.survey import StoreFigures

from .metrics import DURATION_BOUNDS, MOST_NAMES, MOST_SERIES, OTHER

JOB_COUNTERS = (
    "created",
    "dispatched",
    "completed",
    "retried",
    "dead",
    "timeout",
    "released",
    "cancelled",
    "lost",
)
"""What is counted for each queue, as ``queue_jobs_…_total``."""


class QueueNumbers:
    """What happened to the jobs of one queue."""

    __slots__ = (*JOB_COUNTERS, "durations")

    def __init__(self) -> None:
        self.created = 0
        self.dispatched = 0
        self.completed = 0
        self.retried = 0
        self.dead = 0
        self.timeout = 0
        self.released = 0
        self.cancelled = 0
        self.lost = 0
        self.durations = Histogram(DURATION_BOUNDS)


class Names:
    """The values of one label: the first so many have a name, the rest are ``other``."""

    def __init__(self, most: int = MOST_NAMES) -> None:
        self._most = most
        self._known: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        """Return the value to show for this name."""
        if name in self._known:
            return name
        if len(self._known) >= self._most:
            return OTHER
        self._known[name] = name
        return name


class ProcessFigures(msgspec.Struct, frozen=True):
    """How a process that runs jobs is doing."""

    slots: int = 0
    busy: int = 0
    abandoned_threads: int = 0
    abandoned_tasks: int = 0
    child_kills: int = 0
    loop_lag_seconds: float = 0.0
    draining: bool = False


class Metrics:
    """Everything that is counted, and whom to ask for what is known elsewhere."""

    def __init__(self) -> None:
        self.queues: dict[str, QueueNumbers] = {}
        self.failed: Counter[tuple[str, str, str]] = Counter()
        """Attempts that failed, by queue, task and error_reason."""
        self.terminal: Counter[tuple[str, str]] = Counter()
        """Jobs that failed for good, by queue and error_reason."""
        self.late: Counter[str] = Counter(settle=0, extend=0)
        self.claims: Counter[str] = Counter(jobs=0, empty=0)
        self.store: Callable[[], StoreFigures] | None = None
        """Asked once per scrape."""
        self.processes: Callable[[], dict[str, ProcessFigures]] = dict
        """Asked once per scrape; by the number of the process."""
        self.queue_name = Names()
        self._task_name = Names()
        self._reason_name = Names()

    def know(self, queues: Collection[str]) -> None:
        """Give these queues names of their own, and zeroes to begin with."""
        for queue in queues:
            self.queue(queue)

    def queue(self, name: str) -> QueueNumbers:
        """Return the numbers of a queue, or of all those that have no name of their own."""
        numbers = self.queues.get(name)
        if numbers is None:
            numbers = self.queues.setdefault(self.queue_name(name), QueueNumbers())
        return numbers

    def totals(self) -> dict[str, int]:
        """Return what was counted, of all queues together, by the name of its counter."""
        return {
            f"queue_jobs_{name}": sum(getattr(numbers, name) for numbers in self.queues.values())
            for name in JOB_COUNTERS
        }

    def attempt_failed(self, queue: str, task: str, error_reason: str) -> None:
        """Count an attempt that failed."""
        series = self.queue_name(queue), self._task_name(task), self._reason_name(error_reason)
        if series not in self.failed and len(self.failed) >= MOST_SERIES:
            series = OTHER, OTHER, OTHER
        self.failed[series] += 1

    def job_died(self, queue: str, error_reason: str) -> None:
        """Count a job that failed for good."""
        self.queue(queue).dead += 1
        series = self.queue_name(queue), self._reason_name(error_reason)
        if series not in self.terminal and len(self.terminal) >= MOST_SERIES:
            series = OTHER, OTHER
        self.terminal[series] += 1
