"""The metrics in the format of Prometheus: from the counters and from the store."""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from holdfast.engines.histogram import Histogram
from holdfast.engines.queue_stats import QueueStats, StoreMetrics

from .counters import JOB_COUNTERS, Metrics, ProcessMetrics
from .metrics import METRICS, Metric
from .projection_metrics import lags

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as Family

Samples = Iterable[tuple[tuple[str, ...], float | Histogram]]
Found = tuple[str, Samples]
"""The name of a metric, and its values, each with its labels."""


def exposition(metrics: Metrics, version: str = "") -> tuple[str, bytes]:
    """Return the content type and the text that Prometheus reads."""
    return render(lambda: _families(metrics, version))


def render(families: Callable[[], Iterator[Family]]) -> tuple[str, bytes]:
    """Return the content type and the text of these families."""
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 - lazy
    from prometheus_client.exposition import CONTENT_TYPE_LATEST  # noqa: PLC0415

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(families))
    return CONTENT_TYPE_LATEST, generate_latest(registry)


class _Collector:
    """What prometheus_client asks for families."""

    def __init__(self, families: Callable[[], Iterator[Family]]) -> None:
        self._families = families

    def collect(self) -> Iterator[Family]:
        """Yield every family."""
        return self._families()


def _families(metrics: Metrics, version: str) -> Iterator[Family]:
    """Yield every family, with one call of the store."""
    found: list[Found] = [*_counted(metrics), *_processes(metrics.processes())]
    if metrics.store is not None:
        found += _stored(metrics, metrics.store())
    found.append(("holdfast_build_info", [((version, platform.python_version()), 1)]))
    for name, samples in found:
        yield family_of(METRICS[name], samples)


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
    yield (
        "holdfast_operation_members_total",
        [((action,), n) for action, n in sorted(metrics.operation_members.items())],
    )
    yield "holdfast_events_appended_total", [((), metrics.events_appended)]
    yield "holdfast_operations_running", [((), metrics.operations_running())]
    yield "holdfast_projection_rebuilds_total", sorted(metrics.rebuilds.items())
    yield (
        "holdfast_projection_rebuild_seconds",
        [((name,), one) for name, one in sorted(metrics.rebuild_seconds.items())],
    )
    yield (
        "holdfast_projection_lag_slo_seconds",
        [((name,), seconds) for name, seconds in sorted(metrics.lag_slos.items())],
    )


def _processes(figures: Mapping[str, ProcessMetrics]) -> Iterator[Found]:
    def of(field: str) -> Samples:
        return [((number,), getattr(one, field)) for number, one in sorted(figures.items())]

    yield "holdfast_worker_slots", of("slots")
    yield "holdfast_worker_slots_busy", of("busy")
    yield "holdfast_abandoned_threads", of("abandoned_threads")
    yield "holdfast_abandoned_tasks", of("abandoned_tasks")
    yield "holdfast_child_kills_total", of("child_kills")
    yield "holdfast_event_loop_lag_seconds", of("loop_lag_seconds")


def _stored(metrics: Metrics, figures: StoreMetrics) -> Iterator[Found]:
    survey = figures.survey
    found: defaultdict[str, list[tuple[QueueStats, float]]] = defaultdict(list)
    if survey.now_us:  # otherwise it was not counted yet, and 0 would be a guess
        for queue in metrics.queues:
            found[queue] = []
    for queue, one in survey.queues.items():
        # Several queues may share one label.
        found[metrics.queue_name(queue)].append((one, survey.oldest_age_seconds(queue)))
    queues = sorted(found.items())
    for name, count in _SUMMED.items():
        yield name, [((queue,), sum(count(one) for one, _age in ones)) for queue, ones in queues]
    for name, value in _WORST.items():
        yield (
            name,
            [((queue,), max((value(*one) for one in ones), default=0)) for queue, ones in queues],
        )
    yield (
        "holdfast_outage_seconds",
        [
            ((metrics.queue_name(name),), max(0, survey.now_us - since_us) / 1_000_000)
            for name, since_us in sorted(survey.outages.items())
        ],
    )
    states = metrics.projections()
    behind = list(lags(states, survey)) if survey.now_us else []
    yield "holdfast_projection_lag_events", [((name,), events) for name, events, _age in behind]
    yield "holdfast_projection_lag_seconds", [((name,), age) for name, _events, age in behind]
    yield (
        "holdfast_projection_incomplete",
        [((name,), state.incomplete) for name, state in sorted(states.items())],
    )
    yield "queue_recovery_seconds", [((), figures.recovery_seconds)]
    yield "holdfast_history_backlog", [((), figures.history_backlog)]
    yield "holdfast_history_failing", [((), figures.history_failing)]
    yield "holdfast_fsync_seconds", [((), figures.fsync_seconds)]
    yield "holdfast_commit_batch_records", [((), figures.batch_records)]


_SUMMED: Mapping[str, Callable[[QueueStats], int]] = {
    "queue_depth": lambda one: one.counts.pending + one.counts.blocked,
    "queue_active_claims": lambda one: one.counts.in_flight,
    "queue_scheduled_jobs": lambda one: one.scheduled,
    "queue_blocked_jobs": lambda one: one.counts.blocked,
    "queue_held_jobs": lambda one: one.held,
    "queue_dead_letters": lambda one: one.counts.dead,
    "outbox_lag": lambda one: one.counts.pending - one.scheduled,
    "outbox_inflight": lambda one: one.counts.in_flight,
    "stuck_processing_events": lambda one: one.stuck,
}
_WORST: Mapping[str, Callable[[QueueStats, float], float]] = {
    "outbox_oldest_age_seconds": lambda _one, age_seconds: age_seconds,
    "queue_paused": lambda one, _age: one.paused,
    "queue_outage": lambda one, _age: one.outage,
}


def family_of(metric: Metric, samples: Samples) -> Family:
    """Return a family with these samples."""
    from prometheus_client.core import (  # noqa: PLC0415 - lazy
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

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
