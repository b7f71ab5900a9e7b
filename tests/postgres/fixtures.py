"""Servers for tests: one of each version for a run of a process, started when asked for."""

from collections.abc import Iterator

import pytest

from .servers import Databases, Server


def prepared(server: Server) -> Databases:
    from holdfast.engines.postgres.migrating import migrate  # noqa: PLC0415 - for those who ask

    databases = Databases(server.url, "hf")
    migrate(databases.url(databases.template))
    return databases


@pytest.fixture(scope="session")
def server18() -> Iterator[Databases]:
    server = Server(18)
    try:
        server.start()
        yield prepared(server)
    finally:
        server.remove()


@pytest.fixture(scope="session")
def server16() -> Iterator[Databases]:
    server = Server(16)
    try:
        server.start()
        yield prepared(server)
    finally:
        server.remove()
