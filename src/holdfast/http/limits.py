"""How much one listener takes from its peers."""

from __future__ import annotations

import msgspec

UNTIL_CLOSED = 24 * 3_600.0
"""Clients of the socket keep their connection: one that the server closes may lose a reply."""


class HttpLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one listener. Times are for a peer that is slow on purpose, too."""

    max_connections: int = 512
    """More wait to be accepted, or push out others: see ``evict``."""
    evict: bool = True
    """Whether a new connection pushes out the one that has waited for its peer for longest."""
    backlog: int = 128
    """How many connections may wait to be accepted."""
    max_head_bytes: int = 16 * 1024
    max_headers: int = 100
    max_body_bytes: int = 1 << 20
    max_pipelined: int = 16
    """How many requests a connection may send ahead before reading pauses."""
    buffer_bytes: int = 16 * 1024
    """How much is read at once; so no turn of the event loop parses more."""
    head_seconds: float = 10.0
    """From the first byte of a request to the end of its headers."""
    body_seconds: float = 20.0
    """For a body, and a second more for every ``min_body_bytes_per_second`` of it."""
    min_body_bytes_per_second: int = 16 * 1024
    idle_seconds: float = 75.0
    """Between two requests, and before the first."""
    write_seconds: float = 30.0
    """How long a peer may read nothing of an answer."""
    cpu_share: float | None = None
    """Of the event loop's time, what this listener may take; then its peers wait. None: all."""


def local_limits(max_body_bytes: int, max_connections: int) -> HttpLimits:
    """Return the limits of the socket: its peers are processes of the same user."""
    return HttpLimits(
        max_connections=max_connections,
        evict=False,
        backlog=2_048,
        max_head_bytes=32 * 1024,
        max_body_bytes=max_body_bytes,
        buffer_bytes=64 * 1024,
        head_seconds=60.0,
        body_seconds=60.0,
        idle_seconds=UNTIL_CLOSED,
        write_seconds=UNTIL_CLOSED,
    )


PROBE_LIMITS = HttpLimits(
    max_connections=64,
    max_head_bytes=8 * 1024,
    max_headers=64,
    max_body_bytes=0,
    max_pipelined=4,
    buffer_bytes=4 * 1024,
    idle_seconds=20.0,
    write_seconds=10.0,
    cpu_share=0.05,
)
"""Of the port of metrics and health: anybody who reaches it may do their worst."""
