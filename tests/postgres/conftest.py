"""Servers for the tests of this directory: one of each version for a whole run of a process."""

from collections.abc import Iterator

import pytest

from holdfast.engines.postgres.migrating import migrate

from .servers import Databases, Server
from .shops import Shop, store_of


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


@pytest.fixture(scope="session")
def shop_database(server18: Databases) -> Iterator[str]:
    """One database for all tests of transactions of others; each begins with no jobs."""
    with server18.fresh() as database:
        yield store_of(database)


@pytest.fixture
def shop(shop_database: str) -> Iterator[Shop]:
    with psycopg.connect(shop_database, autocommit=True) as connection:
        connection.execute("SET lock_timeout = '5s'")
        connection.execute("TRUNCATE holdfast.jobs, holdfast.dead, holdfast.history")
        connection.execute("DROP TABLE IF EXISTS orders")
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    made = Shop(shop_database)
    yield made
    made.app.close_sync()
