"""What the driver needs to know of a peer. The same module is imported by driver and worker."""

import dataclasses
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence

# As many bytes as our own measurements carry.
TEXT = "y" * 200

URL = "HOLDFAST_BENCH_VALKEY"


async def _nothing() -> None:
    pass


def url() -> str:
    """Return where the driver's Valkey is."""
    return os.environ[URL]


@dataclasses.dataclass(frozen=True)
class Peer:
    """One library and its settings.

    ``put`` enqueues one job with the library's normal call. It is a coroutine for all of them: a
    call that never waits costs the blocking libraries a tenth of a microsecond.
    """

    put: Callable[[], Awaitable[object]]
    worker: Sequence[str]
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    open: Callable[[], Awaitable[object]] = _nothing
    close: Callable[[], Awaitable[object]] = _nothing
