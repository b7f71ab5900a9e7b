"""taskiq on its Redis stream broker, the only one of its Redis brokers that acknowledges.

One process, 300 tasks at a time: more gain nothing beyond starts that run further ahead of their
acknowledgements. It keeps no results, and asks for as many messages at once as it may run.
"""

from taskiq_redis import RedisStreamBroker

from .peer import TEXT, Peer, url
from .progress import started

# "0": a group that is made after the first job is enqueued still gets it.
broker = RedisStreamBroker(url(), consumer_id="0", xread_count=300)


@broker.task
async def nothing(_text: str) -> None:
    """Do nothing."""
    started()


async def _put() -> None:
    await nothing.kiq(TEXT)


PEER = Peer(
    put=_put,
    open=broker.startup,
    close=broker.shutdown,
    worker=(
        *("-m", "taskiq", "worker", f"{__name__}:broker", "--workers", "1"),
        *("--max-async-tasks", "300", "--log-level", "WARNING"),
    ),
)
