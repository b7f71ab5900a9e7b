"""``/v1`` is deprecated: every answer says since when, until when, and what comes after it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime

from holdfast.engines.clock import SystemClock
from holdfast.model.job import MICROSECONDS

from .problems import RequestRefused

DEPRECATED_AT = datetime(2026, 11, 18, tzinfo=UTC)
SUNSET = datetime(2027, 11, 18, tzinfo=UTC)
"""From then on it answers 410; at least a year after it was deprecated."""
DEPRECATED = ("v1",)
HEADERS: Mapping[str, str] = {
    "deprecation": f"@{int(DEPRECATED_AT.timestamp())}",
    "sunset": format_datetime(SUNSET, usegmt=True),
    "link": (
        '</v1/openapi.json>; rel="deprecation"; type="application/json", '
        '</v1/openapi.json>; rel="sunset"; type="application/json", '
        '</v2/openapi.json>; rel="successor-version"; type="application/json"'
    ),
}
NOTICE = (
    f"Deprecated since {DEPRECATED_AT:%Y-%m-%d}: use /v2. From {SUNSET:%Y-%m-%d} on every path "
    "below /v1 answers 410."
)


def refuse_after_sunset() -> None:
    """Raise ``RequestRefused`` once the time of ``/v1`` is over."""
    if SystemClock().now_us() >= SUNSET.timestamp() * MICROSECONDS:
        raise RequestRefused("sunset", f"/v1 ended on {SUNSET:%Y-%m-%d}: use /v2")


def deprecated(refused: RequestRefused) -> RequestRefused:
    """Return a refusal by ``/v1``: it has the same headers as an answer."""
    refused.headers = {**HEADERS, **refused.headers}
    refused.api_version = "1"
    return refused
