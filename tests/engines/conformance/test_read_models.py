"""The rules of read models, on the embedded engines and on PostgreSQL."""

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.engines.contract import Engine, EngineOptions
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.testing import VirtualClock
from holdfast.testing.conformance.read_models import ReadModelConformance
from tests.engines.postgres.servers import Databases
from tests.engines.postgres.test_conformance import postgres_options

from .test_engines import journal_options


class TestMemory(ReadModelConformance):
    async def open_engine(self, clock: VirtualClock, options: EngineOptions) -> Engine:
        return MemoryEngine(clock=clock, options=options)


class TestJournal(ReadModelConformance):
    @pytest.fixture(autouse=True)
    def directories(self, tmp_path: Path) -> None:
        self._directories = (tmp_path / str(number) for number in itertools.count())

    async def open_engine(self, clock: VirtualClock, options: EngineOptions) -> Engine:
        return await JournalEngine.open(
            next(self._directories), clock=clock, options=journal_options(options)
        )


class TestPostgres18(ReadModelConformance):
    @pytest.fixture(autouse=True)
    def server(self, server18: Databases) -> Iterator[None]:
        with contextlib.ExitStack() as self._stack:
            self._databases = server18
            yield

    async def open_engine(self, clock: VirtualClock, options: EngineOptions) -> Engine:
        url = self._stack.enter_context(self._databases.fresh())
        return await PostgresEngine.open(url, clock=clock, options=postgres_options(options))


class TestPostgres16(TestPostgres18):
    @pytest.fixture(autouse=True)
    def server(self, server16: Databases) -> Iterator[None]:
        with contextlib.ExitStack() as self._stack:
            self._databases = server16
            yield
