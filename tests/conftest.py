"""Fixtures and hooks for all tests."""

import asyncio
import inspect
import logging
from collections.abc import Iterator

import pytest

from holdfast.telemetry import log_output

from .engines.postgres.fixtures import roles18, server16, server18

__all__ = ["roles18", "server16", "server18"]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function on a new event loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.function):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True


@pytest.fixture(autouse=True)
def no_log_of_others() -> Iterator[None]:
    """Remove the log handler that a command run in this process has installed."""
    yield
    root = logging.getLogger()
    root.handlers[:] = [
        one for one in root.handlers if not isinstance(one, log_output.RateLimitedHandler)
    ]
    log_output._options = None
