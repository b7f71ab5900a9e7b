"""An application on every kind of store: who runs the jobs, and who enqueues them."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from holdfast import Holdfast
from tests.engines.postgres.servers import Databases, store_of

Declare = Callable[[Holdfast], None]

KINDS = ["journal", "client", "postgres"]


class Stores:
    """Makes a pair of applications: one runs jobs, the other, on ``client``, only enqueues."""

    def __init__(self, directory: Path, request: pytest.FixtureRequest) -> None:
        self._directory = directory
        self._request = request

    @contextmanager
    def url(self, kind: str) -> Iterator[str | Path]:
        if kind == "postgres":
            databases: Databases = self._request.getfixturevalue("server18")
            with databases.fresh() as database:
                yield store_of(database)
        else:
            yield self._directory / "data"

    @asynccontextmanager
    async def running(self, kind: str, declare: Declare) -> AsyncIterator[Holdfast]:
        """Declare the tasks and run a worker; yield the application that enqueues."""
        with self.url(kind) as store:
            worker = Holdfast(store)
            declare(worker)
            async with worker.running(poll_interval_seconds=0.05):
                if kind != "client":
                    yield worker
                    return
                producer = Holdfast(store)
                declare(producer)
                yield producer
                await producer.close()
