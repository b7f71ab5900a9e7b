"""dramatiq on its Redis broker: one process, eight threads, its default middleware.

Two of its settings are changed in its favour. With its own prefetch (two a thread) it sleeps for 5
to 10 ms whenever so many are out: 1,700 to 1,900 jobs/s, where 256 gave 2,300 to 5,000. It polls,
and while idle backs off up to its time-out: 10 ms instead of 1,000 took the p99 from 40 ms to 10.
"""

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from .peer import TEXT, Peer, url
from .progress import started

broker = RedisBroker(url=url())  # type: ignore[no-untyped-call]


@dramatiq.actor(broker=broker)
def nothing(_text: str) -> None:
    """Do nothing."""
    started()


async def _put() -> None:
    nothing.send(TEXT)


PEER = Peer(
    put=_put,
    worker=("-m", "dramatiq", f"{__name__}:broker", "--processes", "1", "--threads", "8"),
    environment={"dramatiq_queue_prefetch": "256", "dramatiq_worker_timeout": "10"},
)
