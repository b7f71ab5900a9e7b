"""A store on a simulated disk for most tests, and one on the real disk where that matters."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.engines.journal.history.check import verify
from holdfast.engines.journal.history.store import SqliteHistory
from holdfast.engines.journal.wal.disk import LocalDisk
from holdfast.testing import SimDisk

from .world import World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def store() -> Iterator[SqliteHistory]:
    store = SqliteHistory.open(SimDisk().database())
    yield store
    assert verify(store) == []
    store.close()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LocalDisk]:
    disk = LocalDisk(tmp_path / "data")
    disk.lock()
    yield disk
    disk.unlock()
