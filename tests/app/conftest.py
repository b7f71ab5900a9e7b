"""What holds for every test here."""

import logging
import socket
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def asyncio_has_nothing_to_complain_of(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Callbacks that fail, and tasks whose exception nobody has seen, are only logged."""
    yield
    for when in ("setup", "call"):
        for record in caplog.get_records(when):
            if record.name == "asyncio" and record.levelno >= logging.ERROR:
                pytest.fail(f"asyncio said: {record.getMessage()}")


@pytest.fixture
def free_port() -> int:
    """A port of this machine on which nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
