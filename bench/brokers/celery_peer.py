"""celery on Redis: acknowledged after the run, 128 prefetched, no results, no gossip, no events.

One thread: as fast as the solo pool, and at least as fast as prefork with one or two processes.
"""

from celery import Celery

from .peer import TEXT, Peer, url
from .progress import started

app = Celery(broker=url().replace("unix://", "redis+socket://", 1))
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    worker_disable_rate_limits=True,
    worker_prefetch_multiplier=128,
)


def _nothing(_text: str) -> None:
    started()


nothing = app.task(name="nothing")(_nothing)


async def _put() -> None:
    nothing.delay(TEXT)


PEER = Peer(
    put=_put,
    worker=(
        *("-m", "celery", "--app", __name__, "worker", "--pool", "threads", "--concurrency", "1"),
        *("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "WARNING"),
    ),
)
