"""Servers for tests: one of each version for a run of a process, started when asked for."""

import contextlib
import os
from collections.abc import Iterator

import pytest

from .roles import RoleDatabases, with_roles
from .servers import Databases, Server

OTHER = os.environ.get("HOLDFAST_TEST_POSTGRES_URL")
"""A server to use instead of our own, where a test does not stop or harm it; as a superuser."""


@contextlib.contextmanager
def databases_of(version: int) -> Iterator[Databases]:
    from holdfast.engines.postgres.schema.migrate import migrate  # noqa: PLC0415 - for those who ask

    with contextlib.ExitStack() as stack:
        url = OTHER
        if url is None:
            server = Server(version)
            stack.callback(server.remove)
            server.start()
            url = server.url
        databases = Databases(url, "hf")
        stack.callback(databases.drop)
        migrate(databases.url(databases.template))
        yield databases


@pytest.fixture(scope="session")
def server18() -> Iterator[Databases]:
    with databases_of(18) as databases:
        yield databases


@pytest.fixture(scope="session")
def server16() -> Iterator[Databases]:
    with databases_of(16) as databases:
        yield databases


@pytest.fixture(scope="session")
def roles18(server18: Databases) -> Iterator[RoleDatabases]:
    with with_roles(server18) as databases:
        yield databases
