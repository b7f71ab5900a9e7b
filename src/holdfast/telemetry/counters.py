"""The counters of one process: plain arithmetic, so that counting is cheap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping

import msgspec

from holdfast.engines.histogram import Histogram
from holdfast.engines.queue_stats import StoreMetrics
from holdfast.model.projection import ProjectionState

from .metrics import DURATION_BOUNDS, MAX_NAMES, MAX_SERIES, OTHER, REBUILD_BOUNDS

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
"""The counters of each queue, as ``queue_jobs_…_total``."""


class QueueCounters:
    """The counters of one queue."""

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


class LabelValues:
    """The values of one label: beyond a limit the others are ``other``."""

    def __init__(self, most: int = MAX_NAMES) -> None:
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


class ProcessMetrics(msgspec.Struct, frozen=True):
    """The state of a process that runs jobs."""

    slots: int = 0
    busy: int = 0
    abandoned_threads: int = 0
    abandoned_tasks: int = 0
    child_kills: int = 0
    loop_lag_seconds: float = 0.0
    draining: bool = False


class CounterDelta(msgspec.Struct, frozen=True):
    """What another process has counted since its last report."""

    queues: dict[str, dict[str, int]] = {}
    durations: dict[str, tuple[list[int], float]] = {}
    failed: list[tuple[tuple[str, str, str], int]] = []
    terminal: list[tuple[tuple[str, str], int]] = []
    late: dict[str, int] = {}
    claims: dict[str, int] = {}


class ProcessReport(msgspec.Struct, frozen=True):
    """The periodic report of a worker process."""

    figures: ProcessMetrics
    counted: CounterDelta = CounterDelta()


class Metrics:
    """Every counter, and the sources of the other metrics."""

    def __init__(self) -> None:
        self.queues: dict[str, QueueCounters] = {}
        self.failed: Counter[tuple[str, str, str]] = Counter()
        """Attempts that failed, by queue, task and error_reason."""
        self.terminal: Counter[tuple[str, str]] = Counter()
        """Jobs that failed for good, by queue and error_reason."""
        self.late: Counter[str] = Counter(settle=0, extend=0)
        self.claims: Counter[str] = Counter(jobs=0, empty=0)
        self.events_appended = 0
        self.operation_members: Counter[str] = Counter()
        """Jobs that stored operations acted on, by action."""
        self.rebuilds: Counter[tuple[str, str]] = Counter()
        """Rebuilds that ended here, by projection and outcome."""
        self.rebuild_seconds: dict[str, Histogram] = {}
        """How long they took, by projection."""
        self.projections: Callable[[], Mapping[str, ProjectionState]] = dict
        """What is known of projections; called once per scrape."""
        self.lag_slos: Mapping[str, float] = {}
        """How far each projection may be behind, in seconds."""
        self.operations_running: Callable[[], int] = lambda: 0
        """Called once per scrape."""
        self.store: Callable[[], StoreMetrics] | None = None
        """Called once per scrape."""
        self.processes: Callable[[], dict[str, ProcessMetrics]] = dict
        """Called once per scrape; by the number of the process."""
        self.queue_name = LabelValues()
        self._task_name = LabelValues()
        self._projection_name = LabelValues()
        self._reason_name = LabelValues()

    def rebuilt(self, projection: str, outcome: str, seconds: float) -> None:
        """Count a rebuild that has ended, or stopped at an error."""
        name = self._projection_name(projection)
        self.rebuilds[name, outcome] += 1
        self.rebuild_seconds.setdefault(name, Histogram(REBUILD_BOUNDS)).observe(seconds)

    def add_queues(self, queues: Collection[str]) -> None:
        """Add these queues, with zero counts."""
        for queue in queues:
            self.queue(queue)

    def queue(self, name: str) -> QueueCounters:
        """Return the counters of a queue, or of ``other``."""
        numbers = self.queues.get(name)
        if numbers is None:
            numbers = self.queues.setdefault(self.queue_name(name), QueueCounters())
        return numbers

    def totals(self) -> dict[str, int]:
        """Return the sum of each counter over all queues."""
        return {
            f"queue_jobs_{name}": sum(getattr(numbers, name) for numbers in self.queues.values())
            for name in JOB_COUNTERS
        }

    def take(self) -> CounterDelta:
        """Return the counts so far, and reset them."""
        queues, self.queues = self.queues, {}
        failed, self.failed = self.failed, Counter()
        terminal, self.terminal = self.terminal, Counter()
        late, self.late = self.late, Counter()
        claims, self.claims = self.claims, Counter()
        return CounterDelta(
            {
                queue: {name: getattr(numbers, name) for name in JOB_COUNTERS}
                for queue, numbers in queues.items()
            },
            {
                queue: (numbers.durations.buckets, numbers.durations.total)
                for queue, numbers in queues.items()
            },
            list(failed.items()),
            list(terminal.items()),
            dict(late),
            dict(claims),
        )

    def add(self, counted: CounterDelta) -> None:
        """Add the counts of another process."""
        for queue, counters in counted.queues.items():
            numbers = self.queue(queue)
            for name, count in counters.items():
                setattr(numbers, name, getattr(numbers, name) + count)
        for queue, (buckets, total) in counted.durations.items():
            self.queue(queue).durations.add(buckets, total)
        for (queue, task, reason), count in counted.failed:
            self.failed[self._failed_series(queue, task, reason)] += count
        for (queue, reason), count in counted.terminal:
            self.terminal[self._terminal_series(queue, reason)] += count
        self.late.update(counted.late)
        self.claims.update(counted.claims)

    def attempt_failed(self, queue: str, task: str, error_reason: str) -> None:
        """Count an attempt that failed."""
        self.failed[self._failed_series(queue, task, error_reason)] += 1

    def job_died(self, queue: str, error_reason: str) -> None:
        """Count a job that failed for good."""
        self.queue(queue).dead += 1
        self.terminal[self._terminal_series(queue, error_reason)] += 1

    def _failed_series(self, queue: str, task: str, error_reason: str) -> tuple[str, str, str]:
        series = self.queue_name(queue), self._task_name(task), self._reason_name(error_reason)
        full = series not in self.failed and len(self.failed) >= MAX_SERIES
        return (OTHER, OTHER, OTHER) if full else series

    def _terminal_series(self, queue: str, error_reason: str) -> tuple[str, str]:
        series = self.queue_name(queue), self._reason_name(error_reason)
        full = series not in self.terminal and len(self.terminal) >= MAX_SERIES
        return (OTHER, OTHER) if full else series
