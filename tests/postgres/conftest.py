"""Servers for the tests of this directory: one of each version for a whole run of a process."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

import holdfast.engines.postgres

from .servers import Databases, Server

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


class Durable(NamedTuple):
    """A server that keeps what it has acknowledged, whatever happens to it."""

    server: Server
    databases: Databases


@pytest.fixture(scope="session")
def durable() -> Iterator[Durable]:
    server = Server(18, ("max_connections=40",))
    try:
        server.start()
        yield Durable(server, prepared(server))
    finally:
        server.remove()


@pytest.fixture(scope="session")
def byte_code(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """Where compiled modules are kept, for all processes of all tests."""
    base = tmp_path_factory.getbasetemp()
    return (base if worker_id == "master" else base.parent) / "byte-code"
