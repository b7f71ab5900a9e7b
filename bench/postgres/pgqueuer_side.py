"""pgqueuer on asyncpg: its own worker on uvloop, 250 jobs a batch, its tables logged.

Batches of 100 and of 1,000 were slower, a pool instead of a connection was no faster. It is started
by a call: its command line (1.6.0), which does the same, fails with the newest typer.
"""

import asyncpg
import uvloop
from pgqueuer import PgQueuer, Queries
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job

from bench.brokers.progress import started

from .side import BULK, TEXT, Side, url

_PAYLOAD = TEXT.encode()
_NAME = "nothing"
_BATCH = 250
_open: list[tuple[asyncpg.Connection, Queries]] = []


async def work() -> None:
    """Do what its command line does."""
    connection = await asyncpg.connect(url())
    queue = PgQueuer.from_asyncpg_connection(connection)

    @queue.entrypoint(_NAME)
    async def nothing(_job: Job) -> None:
        started()

    await queue.run(batch_size=_BATCH)


async def _connect() -> None:
    connection = await asyncpg.connect(url())
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    _open.append((connection, queries))


async def _put() -> None:
    await _open[0][1].enqueue(_NAME, _PAYLOAD)


async def _put_many() -> None:
    await _open[0][1].enqueue([_NAME] * BULK, [_PAYLOAD] * BULK, [0] * BULK)


async def _close() -> None:
    await _open.pop()[0].close()


SIDE = Side(
    open=_connect,
    put=_put,
    put_many=_put_many,
    close=_close,
    worker=("-m", f"{__package__}.pgqueuer_side"),
    unfinished="SELECT EXISTS (SELECT FROM pgqueuer)",
    clear="TRUNCATE pgqueuer",
    backlog_per_second=10_000,
)

if __name__ == "__main__":
    uvloop.run(work())
