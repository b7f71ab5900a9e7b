"""Fixtures and hooks for all tests."""

import asyncio
import inspect
import logging
import os
import zlib
from collections.abc import Iterator

import pytest

from holdfast.telemetry import log_output

from .engines.postgres.fixtures import roles18, server16, server18

__all__ = ["roles18", "server16", "server18"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep one in so many of the tests that are marked ``sample``, others in each run.

    They repeat on a variant what runs in full elsewhere. ``make soak`` runs all of them, and so
    does who names a test, or has one process.
    """
    run_id = getattr(config, "workerinput", {}).get("testrunuid")
    named = any("::" in one for one in config.args) or config.option.keyword
    if run_id is None or named or "HOLDFAST_TEST_KILLS" in os.environ:
        return
    left_out = []
    for item in items:
        mark = item.get_closest_marker("sample")
        if mark is not None and zlib.crc32(f"{run_id} {item.nodeid}".encode()) % mark.args[0]:
            left_out.append(item)
    config.hook.pytest_deselected(items=left_out)
    gone = set(left_out)
    items[:] = [one for one in items if one not in gone]


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
