"""Fixtures for all tests of this directory, in addition to the servers."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

from holdfast.engines.postgres.connection import statements
from holdfast.engines.postgres.schema.migrate import migrate

from .servers import Databases, Server, store_of
from .shops import Shop


@pytest.fixture(scope="session")
def shop_database(server18: Databases) -> Iterator[str]:
    """One database for all tests of caller transactions; each test starts without jobs."""
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


@pytest.fixture
def rewritten(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[..., str]], None]]:
    """Change SQL statements as they are read: the given function gets the name and the text."""
    usual = statements._read

    def forget() -> None:
        statements.statement.cache_clear()
        statements.numbered.cache_clear()

    def rewrite(change: Callable[..., str]) -> None:
        read = lambda directory, name: change(name, usual(directory, name))
        monkeypatch.setattr(statements, "_read", read)
        forget()

    yield rewrite
    forget()


class Durable(NamedTuple):
    """A server that syncs every commit."""

    server: Server
    databases: Databases


@pytest.fixture(scope="session")
def durable() -> Iterator[Durable]:
    server = Server(18, ("max_connections=40",))
    try:
        server.start()
        databases = Databases(server.url, "hf")
        migrate(databases.url(databases.template))
        yield Durable(server, databases)
        databases.close()
    finally:
        server.remove()


@pytest.fixture(scope="session")
def byte_code(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The shared directory of compiled modules."""
    base = tmp_path_factory.getbasetemp()
    return (base if worker_id == "master" else base.parent) / "byte-code"
