"""Fixtures for all tests of this directory."""

import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from .stores import Stores


@pytest.fixture(autouse=True)
def fail_on_asyncio_errors(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail a test for errors that asyncio only logs, such as unretrieved task exceptions."""
    yield
    for when in ("setup", "call"):
        for record in caplog.get_records(when):
            if record.name == "asyncio" and record.levelno >= logging.ERROR:
                pytest.fail(f"asyncio logged: {record.getMessage()}")


@pytest.fixture
def free_port() -> int:
    """A free TCP port of this machine."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.fixture
def stores(tmp_path: Path, request: pytest.FixtureRequest) -> Stores:
    """Applications on every kind of store."""
    return Stores(tmp_path, request)
