"""What is counted, and how Prometheus reads it.

Counting is plain arithmetic on dictionaries, so that it costs next to nothing per job; the
collector turns it into samples when somebody looks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from holdfast.engines.base import Counts

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

BUCKETS = (0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)

COUNTERS: Mapping[str, str] = {
    "queue_jobs_created": "Jobs taken in.",
    "queue_jobs_dispatched": "Jobs handed to a worker.",
    "queue_jobs_completed": "Jobs whose completion was recorded.",
    "queue_jobs_retried": "Attempts that failed and will be tried again.",
    "queue_jobs_dead": "Jobs that were buried.",
    "queue_jobs_timeout": "Attempts that ran into their time-out or let their lease run out.",
    "queue_jobs_released": "Attempts handed back without being charged.",
    "queue_jobs_cancelled": "Jobs that ended as cancelled.",
}


class Metrics:
    """The numbers of one process."""

    def __init__(self) -> None:
        self.counters: dict[str, defaultdict[str, int]] = {
            name: defaultdict(int) for name in COUNTERS
        }
        self.durations: dict[str, list[int]] = {}
        self.duration_sums: defaultdict[str, float] = defaultdict(float)
        self.gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        self.counts: Callable[[], Mapping[str, Counts]] = dict
        """What the store holds; asked once per scrape."""

    def count(self, name: str, queue: str, by: int = 1) -> None:
        """Add to a counter."""
        self.counters[name][queue] += by

    def observe(self, queue: str, seconds: float) -> None:
        """Take note of how long an attempt took."""
        buckets = self.durations.get(queue)
        if buckets is None:
            buckets = self.durations[queue] = [0] * (len(BUCKETS) + 1)
        buckets[bisect_left(BUCKETS, seconds)] += 1
        self.duration_sums[queue] += seconds

    def gauge(self, name: str, documentation: str, value: Callable[[], float]) -> None:
        """Show a number that is known elsewhere."""
        self.gauges[name] = documentation, value


def exposition(metrics: Metrics) -> tuple[str, bytes]:
    """Return the content type and the text that Prometheus reads."""
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 - lazy
    from prometheus_client.exposition import CONTENT_TYPE_LATEST  # noqa: PLC0415

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(metrics))
    return CONTENT_TYPE_LATEST, generate_latest(registry)


class _Collector:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        from prometheus_client.core import (  # noqa: PLC0415 - lazy
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        metrics = self._metrics
        for name, documentation in COUNTERS.items():
            counter = CounterMetricFamily(name, documentation, labels=["queue"])
            for queue, value in sorted(metrics.counters[name].items()):
                counter.add_metric([queue], value)
            yield counter
        histogram = HistogramMetricFamily(
            "queue_job_duration_seconds", "How long attempts took.", labels=["queue"]
        )
        for queue, buckets in sorted(metrics.durations.items()):
            running, cumulative = 0, []
            for bound, count in zip([*map(str, BUCKETS), "+Inf"], buckets, strict=True):
                running += count
                cumulative.append((bound, running))
            histogram.add_metric([queue], cumulative, metrics.duration_sums[queue])
        yield histogram
        depth = GaugeMetricFamily("queue_depth", "Jobs that wait.", labels=["queue"])
        claims = GaugeMetricFamily(
            "queue_active_claims", "Jobs that a worker holds.", labels=["queue"]
        )
        for queue, counts in sorted(metrics.counts().items()):
            depth.add_metric([queue], counts.pending + counts.blocked)
            claims.add_metric([queue], counts.in_flight)
        yield depth
        yield claims
        for name, (documentation, known) in metrics.gauges.items():
            yield GaugeMetricFamily(name, documentation, value=known())
