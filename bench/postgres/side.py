"""What the driver needs to know of ours and of each peer: a broker's, and how a server keeps it."""

import dataclasses
import os
from collections.abc import Awaitable, Callable

from bench.brokers.peer import TEXT, Peer

__all__ = ["BULK", "TEXT", "URL", "Side", "url"]

URL = "HOLDFAST_BENCH_POSTGRES"
BULK = 1_000
"""How many jobs a call takes in bulk."""


def url() -> str:
    """Return where the driver's database is."""
    return os.environ[URL]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Side(Peer):
    """One library and its settings."""

    put_many: Callable[[], Awaitable[object]]
    """Enqueue so many in one call."""
    unfinished: str
    """SQL: whether any job is not yet recorded as done."""
    clear: str
    """SQL: forget all jobs."""
    backlog_per_second: int
    """About as many as one worker can do, a little more than less."""
    ours: bool = False
