"""huey on Redis: two threads, which was faster than one, four or eight; no log line for each task.

It deletes a task as it takes it: at most once, so it does less than the others do.
"""

from huey import RedisHuey

from .peer import TEXT, Peer, url
from .progress import started

huey = RedisHuey(url=url())


def _nothing(_text: str) -> None:
    started()


nothing = huey.task()(_nothing)


async def _put() -> None:
    nothing(TEXT)


PEER = Peer(
    put=_put,
    worker=(
        *("-m", "huey.bin.huey_consumer", f"{__name__}.huey"),
        *("--workers", "2", "--worker-type", "thread", "--quiet"),
    ),
)
