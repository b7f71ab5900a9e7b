"""The description of a peer. Driver and worker import the same module."""

import dataclasses
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence

# The payload size of our own measurements.
TEXT = "y" * 200

URL = "HOLDFAST_BENCH_VALKEY"


async def _nothing() -> None:
    pass


def url() -> str:
    """Return the URL of the driver's Valkey."""
    return os.environ[URL]


@dataclasses.dataclass(frozen=True)
class Peer:
    """One library and its settings.

    ``put`` enqueues one job with the library's normal call. It is always a coroutine, which
    costs the blocking libraries a tenth of a microsecond.
    """

    put: Callable[[], Awaitable[object]]
    worker: Sequence[str]
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    open: Callable[[], Awaitable[object]] = _nothing
    close: Callable[[], Awaitable[object]] = _nothing
