"""What holds for every test here."""

import logging
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
