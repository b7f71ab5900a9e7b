"""The one suite, on every engine."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from holdfast.engines.contract import Engine, EngineOptions
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.engines.journal.wal.group_commit import GroupCommit
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.testing import SimDisk, VirtualClock
from holdfast.testing.conformance import EngineConformance


class TestMemory(EngineConformance):
    async def open_engine(self, clock: VirtualClock, options: EngineOptions) -> Engine:
        return MemoryEngine(clock=clock, options=options)


def journal_options(options: EngineOptions, **more: Any) -> JournalOptions:
    shared = {field: getattr(options, field) for field in EngineOptions.__struct_fields__}
    return JournalOptions(**shared, **more)


@pytest.mark.sample(3)
class TestJournalOnSimDisk(EngineConformance):
    """Every enqueue is decided by itself."""

    many_callers = False

    @pytest.fixture(autouse=True)
    def crowd(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(GroupCommit, "many_callers", self.many_callers)

    async def open_engine(self, clock: VirtualClock, options: EngineOptions) -> Engine:
        return await JournalEngine.open(
            SimDisk(),
            clock=clock,
            options=journal_options(options, inline=True, segment_bytes=8 << 20),
        )


@pytest.mark.sample(8)
class TestJournalInACrowd(TestJournalOnSimDisk):
    """Every enqueue goes the way of those that are decided together."""

    many_callers = True


class TestJournalOnDisk(EngineConformance):
    @pytest.fixture(autouse=True)
    def directories(self, tmp_path: Path) -> None:
        self._directories = (tmp_path / str(number) for number in itertools.count())

    async def open_engine(self, clock: VirtualClock, options: EngineOptions) -> Engine:
        return await JournalEngine.open(
            next(self._directories),
            clock=clock,
            options=journal_options(options, segment_bytes=8 << 20),
        )
