"""What a process that serves the HTTP API counts. No label has anything of a tenant in it."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.engines.histogram import Histogram

from .exposition import Found, family_of, render
from .metrics import DURATION_BOUNDS, METRICS, Metric

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as Family

NO_ROUTE = "none"
"""The operation of a request whose path has no route."""

_ALL = (
    Metric(
        "holdfast_http_requests_total",
        "counter",
        "Requests answered, by operation id (none: no route) and status. A rising rate of 401 is "
        "somebody without a key, of 403 one with too few roles, of 503 a store that is away.",
        ("operation", "status"),
    ),
    Metric(
        "holdfast_http_request_seconds",
        "histogram",
        "How long requests took from their body to their answer, by operation id.",
        ("operation",),
    ),
    Metric(
        "holdfast_http_requests_in_progress",
        "gauge",
        "Requests that are being answered now.",
    ),
)
HTTP_METRICS = {metric.name: metric for metric in _ALL}


class HttpMetrics:
    """The counters of one process that serves the API."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        self.seconds: dict[str, Histogram] = {}
        self.in_progress = 0

    def answered(self, operation: str, status: int, seconds: float) -> None:
        """Count a request."""
        self.requests[operation, str(status)] += 1
        self.seconds.setdefault(operation, Histogram(DURATION_BOUNDS)).observe(seconds)

    def exposition(self, version: str) -> tuple[str, bytes]:
        """Return the content type and the text that Prometheus reads."""
        return render(lambda: self._families(version))

    def _families(self, version: str) -> Iterator[Family]:
        found: list[Found] = [
            ("holdfast_http_requests_total", sorted(self.requests.items())),
            (
                "holdfast_http_request_seconds",
                [((operation,), one) for operation, one in sorted(self.seconds.items())],
            ),
            ("holdfast_http_requests_in_progress", [((), self.in_progress)]),
        ]
        for name, samples in found:
            yield family_of(HTTP_METRICS[name], samples)
        info = METRICS["holdfast_build_info"]
        yield family_of(info, [((version, platform.python_version()), 1)])
