"""Finds the route of a path as it was sent, so that an id may have any character in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import unquote

import msgspec

from . import claims, job_actions, jobs, overview
from .call import Route
from .problems import RequestRefused

PREFIX = "/v2"
ROUTES: Sequence[Route] = overview.routes_with_me(
    (*jobs.ROUTES, *job_actions.ROUTES, *claims.ROUTES, *overview.ROUTES)
)


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
    if parts[:1] != [PREFIX[1:]]:
        raise _unknown()
    parts, tenant = parts[1:], None
    if len(parts) > 2 and parts[0] == "tenants":
        tenant, parts = _decoded(parts[1]), parts[2:]
    allowed: list[str] = []
    for route in ROUTES:
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
