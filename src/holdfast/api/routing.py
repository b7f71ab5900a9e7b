"""Finds the route of a path as it was sent, so that an id may have any character in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import unquote

import msgspec

from holdfast.telemetry.http_metrics import NO_ROUTE

from . import (
    audit,
    chronicle,
    claims,
    event_ingest,
    events,
    failures,
    job_actions,
    job_ingest,
    jobs,
    keys,
    operations,
    overview,
    projections,
    queues,
    rebuilds,
    schedules,
    series,
    stream,
    tenants,
    v1_jobs,
    workers,
)
from .call import Route
from .problems import RequestRefused

PREFIX = "/v2"
ROUTES: Sequence[Route] = overview.routes_with_me(
    (
        *jobs.ROUTES,
        *job_ingest.ROUTES,
        *job_actions.ROUTES,
        *claims.ROUTES,
        *operations.ROUTES,
        *failures.ROUTES,
        *queues.ROUTES,
        *schedules.ROUTES,
        *workers.ROUTES,
        *events.ROUTES,
        *event_ingest.ROUTES,
        *projections.ROUTES,
        *rebuilds.ROUTES,
        *chronicle.ROUTES,
        *series.ROUTES,
        *audit.ROUTES,
        *keys.ROUTES,
        *tenants.ROUTES,
        *overview.ROUTES,
        *stream.ROUTES,
    )
)
VERSIONS: Mapping[str, Sequence[Route]] = {"v2": ROUTES, "v1": v1_jobs.ROUTES}


METRICS_PATH = b"/metrics"
UNROUTED = {
    METRICS_PATH: "getMetrics",
    b"/health/live": "getLive",
    b"/health/ready": "getReady",
    b"/v1/openapi.json": "getOpenApi",
    b"/v2/openapi.json": "getOpenApi",
}
"""What is answered without an envelope."""


class Match(msgspec.Struct, frozen=True):
    """A route, and what the path says."""

    route: Route
    path: Mapping[str, str]
    tenant: str | None


def find_route(method: str, raw_path: bytes) -> Match:
    """Return the route of a request; raise ``RequestRefused`` if there is none.

    Each part between two slashes is decoded once, after it was split: ``%2F`` is part of an id.
    """
    parts = raw_path.decode("latin-1").split("/")[1:]
    routes = VERSIONS.get(parts[0]) if parts else None
    if routes is None:
        raise _unknown()
    parts, tenant = parts[1:], None
    if len(parts) > 2 and parts[0] == "tenants":
        tenant, parts = _decoded(parts[1]), parts[2:]
    allowed: list[str] = []
    for route in routes:
        found = _matched(route.path.split("/")[1:], parts)
        if found is None:
            continue
        if route.method == method or (method == "HEAD" and route.method == "GET"):
            return Match(route, found, tenant)
        allowed.append(route.method)
    if allowed:
        methods = ", ".join(sorted({*allowed, *(["HEAD"] if "GET" in allowed else [])}))
        text = f"it has {methods}"
        raise RequestRefused("method-not-allowed", text, headers={"allow": methods})
    raise _unknown()


def operation_of(method: str, raw_path: bytes) -> str:
    """Return the operation id of a request, for counting; of one that has no route ``none``."""
    if raw_path in UNROUTED:
        return UNROUTED[raw_path]
    try:
        return find_route(method, raw_path).route.operation_id
    except RequestRefused:
        return NO_ROUTE


def resource_of(route: Route) -> Route | None:
    """Return the route that shows what another one changes, if there is one."""
    parts = route.path.split("/")
    [routes] = [every for every in VERSIONS.values() if route in every]
    for length in range(len(parts), 1, -1):
        path = "/".join(parts[:length])
        for one in routes:
            if one.method == "GET" and one.path == path and "{" in path:
                return one
    return None


def _matched(pattern: Sequence[str], parts: Sequence[str]) -> dict[str, str] | None:
    if len(pattern) != len(parts):
        return None
    found: dict[str, str] = {}
    for wanted, part in zip(pattern, parts, strict=True):
        if wanted.startswith("{") and part:
            found[wanted[1:-1]] = _decoded(part)
        elif wanted != part:
            return None
    return found


def _decoded(part: str) -> str:
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError:
        raise _unknown() from None


def _unknown() -> RequestRefused:
    return RequestRefused("not-found", "there is nothing at this path: see /v2/openapi.json")
