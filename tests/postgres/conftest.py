"""Servers for the tests of this directory: one of each version for a whole run of a process."""

from collections.abc import Iterator

import pytest

from holdfast.engines.postgres.migrating import migrate

from .servers import Databases, Server


def prepared(server: Server) -> Databases:
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
