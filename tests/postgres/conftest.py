"""Servers for the tests of this directory: one of each version for a whole run of a process."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import holdfast.engines.postgres

from .servers import Databases, Server
from .shops import Shop, store_of

MIGRATION = Path(holdfast.engines.postgres.__file__).parent / "migrations" / "0001_work.sql"


def prepared(server: Server) -> Databases:
    databases = Databases(server.url, "hf")
    with psycopg.connect(databases.url(databases.template), autocommit=True) as connection:
        connection.execute("CREATE SCHEMA holdfast")
        connection.execute(MIGRATION.read_bytes())
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
