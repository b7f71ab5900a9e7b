"""Fixtures for all tests of this directory."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def fail_on_asyncio_errors(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail a test for errors that asyncio only logs, such as unretrieved task exceptions."""
    yield
    for when in ("setup", "call"):
        for record in caplog.get_records(when):
            if record.name == "asyncio" and record.levelno >= logging.ERROR:
                pytest.fail(f"asyncio logged: {record.getMessage()}")
