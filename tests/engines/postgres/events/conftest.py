"""An empty store for each test, and an engine on it."""

import contextlib
import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager

import pytest
from psycopg.conninfo import make_conninfo

from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.engines.postgres.jobs import key_lines
from tests.engines.postgres.servers import Databases

Opened = Callable[..., AbstractAsyncContextManager[PostgresEngine]]


@pytest.fixture
def url(server18: Databases) -> Iterator[str]:
    with server18.fresh() as one:
        yield one


@pytest.fixture(autouse=True)
def never_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find everything at once also where the machine is busy."""
    monkeypatch.setattr(key_lines, "SLOW_SECONDS", math.inf)


@pytest.fixture
def opened(url: str) -> Opened:
    """Open an engine that waits for a lock no longer than this, at each of its tries."""

    @contextlib.asynccontextmanager
    async def open_engine(lock_timeout_ms: int = 100) -> AsyncIterator[PostgresEngine]:
        impatient = make_conninfo(url, options=f"-c lock_timeout={lock_timeout_ms}ms")
        engine = await PostgresEngine.open(impatient)
        try:
            yield engine
        finally:
            await engine.close()

    return open_engine
