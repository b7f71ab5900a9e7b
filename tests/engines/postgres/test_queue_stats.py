"""When a daemon has a server counted."""

import asyncio

from holdfast.daemon.daemon_store import StatsLoop
from holdfast.model.job import MICROSECONDS


class Server:
    """Takes so long to count."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.counted = 0

    async def refresh_stats(self) -> float:
        self.counted += 1
        return self.seconds


def test_a_daemon_that_starts_takes_up_its_work_before_it_counts():
    server = Server(0.001)
    loop = StatsLoop(server)  # type: ignore[arg-type]
    next_us = asyncio.run(loop.step(0))
    assert (server.counted, next_us) == (0, 5 * MICROSECONDS)
    asyncio.run(loop.step(next_us))
    assert server.counted == 1


def test_where_counting_takes_long_it_is_done_less_often():
    loop = StatsLoop(Server(1.0))  # type: ignore[arg-type]
    asyncio.run(loop.step(0))
    assert asyncio.run(loop.step(0)) == 20 * MICROSECONDS
