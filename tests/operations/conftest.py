"""Fixtures for all tests of this directory."""

from tests.worker.conftest import fail_on_asyncio_errors

__all__ = ["fail_on_asyncio_errors"]
