"""What Prometheus reads: every family of the catalogue, from the numbers and from the store."""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from holdfast.engines.histogram import Histogram
from holdfast.engines.survey import QueueSurvey, StoreFigures

from .counting import JOB_COUNTERS, Metrics, ProcessFigures
from .metrics import METRICS

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as Family

Samples = Iterable[tuple[tuple[str, ...], float | Histogram]]
Found = tuple[str, Samples]
"""The name of a metric, and its values, each with its labels."""


def exposition(metrics: Metrics, version: str = "") -> tuple[str, bytes]:
    """Return the content type and the text that Prometheus reads."""
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 - lazy
    from prometheus_client.exposition import CONTENT_TYPE_LATEST  # noqa: PLC0415

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(metrics, version))
    return CONTENT_TYPE_LATEST, generate_latest(registry)


class _Collector:
    """One for all: it asks the store once."""

    def __init__(self, metrics: Metrics, version: str) -> None:
        self._metrics = metrics
        self._version = version

    def collect(self) -> Iterator[Family]:
        """Yield every family."""
        metrics = self._metrics
        found: list[Found] = [*_counted(metrics), *_processes(metrics.processes())]
        if metrics.store is not None:
            found += _stored(metrics, metrics.store())
        found.append(("holdfast_build_info", [((self._version, platform.python_version()), 1)]))
        for name, samples in found:
            yield _family(name, samples)


def _counted(metrics: Metrics) -> Iterator[Found]:
    queues = sorted(metrics.queues.items())
    for counter in JOB_COUNTERS:
        yield (
            f"queue_jobs_{counter}_total",
            [((queue,), getattr(numbers, counter)) for queue, numbers in queues],
        )
    yield "queue_job_duration_seconds", [((queue,), one.durations) for queue, one in queues]
    yield "retry_scheduled_total", [((queue,), numbers.retried) for queue, numbers in queues]
    yield "queue_attempts_failed_total", sorted(metrics.failed.items())
    yield "terminal_failed_total", sorted(metrics.terminal.items())
    yield "holdfast_late_acks_refused_total", [((verb,), n) for verb, n in metrics.late.items()]
    yield "holdfast_claims_total", [((result,), n) for result, n in metrics.claims.items()]


def _processes(figures: Mapping[str, ProcessFigures]) -> Iterator[Found]:
    def of(field: str) -> Samples:
        return [((number,), getattr(one, field)) for number, one in sorted(figures.items())]

    yield "holdfast_worker_slots", of("slots")
    yield "holdfast_worker_slots_busy", of("busy")
    yield "holdfast_abandoned_threads", of("abandoned_threads")
    yield "holdfast_abandoned_tasks", of("abandoned_tasks")
    yield "holdfast_child_kills_total", of("child_kills")
    yield "holdfast_event_loop_lag_seconds", of("loop_lag_seconds")


def _stored(metrics: Metrics, figures: StoreFigures) -> Iterator[Found]:
    sums: defaultdict[str, defaultdict[tuple[str, ...], float]] = defaultdict(_zeroes)
    for queue in metrics.queues:
        _add(sums, queue, QueueSurvey(), 0.0)
    survey = figures.survey
    for queue, one in survey.queues.items():
        _add(sums, metrics.queue_name(queue), one, survey.oldest_age_seconds(queue))
    for name, samples in sums.items():
        yield name, samples.items()
    yield "queue_recovery_seconds", [((), figures.recovery_seconds)]
    yield "holdfast_history_backlog", [((), figures.history_backlog)]
    yield "holdfast_history_failing", [((), figures.history_failing)]
    yield "holdfast_fsync_seconds", [((), figures.fsync_seconds)]
    yield "holdfast_commit_batch_records", [((), figures.batch_records)]


def _add(
    sums: defaultdict[str, defaultdict[tuple[str, ...], float]],
    queue: str,
    one: QueueSurvey,
    age_seconds: float,
) -> None:
    """Add a queue to its label; several may share one."""
    counts, label = one.counts, (queue,)
    for name, count in (
        ("queue_depth", counts.pending + counts.blocked),
        ("queue_active_claims", counts.in_flight),
        ("queue_scheduled_jobs", one.scheduled),
        ("queue_blocked_jobs", counts.blocked),
        ("queue_held_jobs", one.held),
        ("queue_dead_letters", counts.dead),
        ("outbox_lag", counts.pending - one.scheduled),
        ("outbox_inflight", counts.in_flight),
        ("stuck_processing_events", one.stuck),
    ):
        sums[name][label] += count
    for name, value in (
        ("outbox_oldest_age_seconds", age_seconds),
        ("queue_paused", float(one.paused)),
        ("queue_outage", float(one.outage)),
    ):
        sums[name][label] = max(sums[name][label], value)


def _family(name: str, samples: Samples) -> Family:
    from prometheus_client.core import (  # noqa: PLC0415 - lazy
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    metric = METRICS[name]
    labels = list(metric.labels)
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(metric.family, metric.help, labels=labels)
        for label, value in samples:
            if isinstance(value, Histogram):
                histogram.add_metric(list(label), value.cumulative(), value.total)
        return histogram
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.family, metric.help, labels=labels)
    for label, value in samples:
        if not isinstance(value, Histogram):
            family.add_metric(list(label), value)
    return family


def _zeroes() -> defaultdict[tuple[str, ...], float]:
    return defaultdict(float)
