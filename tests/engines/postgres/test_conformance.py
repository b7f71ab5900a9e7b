"""The one suite, on PostgreSQL."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.engines.contract import Engine, EngineOptions
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.testing import VirtualClock
from holdfast.testing.conformance import EngineConformance

from .servers import Databases


def postgres_options(options: EngineOptions, **more: Any) -> PostgresOptions:
    shared: dict[str, Any] = {
        field: getattr(options, field) for field in EngineOptions.__struct_fields__
    }
    return PostgresOptions(**shared, **more)


class TestPostgres18(EngineConformance):
    @pytest.fixture(autouse=True)
    def server(self, server18: Databases) -> Iterator[None]:
        with contextlib.ExitStack() as self._stack:
            self._databases = server18
            yield

    async def open_engine(self, clock: VirtualClock, options: EngineOptions) -> Engine:
        url = self._stack.enter_context(self._databases.fresh())
        return await PostgresEngine.open(url, clock=clock, options=postgres_options(options))


@pytest.mark.sample(6)
class TestPostgres16(TestPostgres18):
    @pytest.fixture(autouse=True)
    def server(self, server16: Databases) -> Iterator[None]:
        with contextlib.ExitStack() as self._stack:
            self._databases = server16
            yield
