"""Fixtures for all tests of this directory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .rig import Rig


@pytest.fixture(scope="session")
def byte_code(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The shared directory of compiled modules."""
    base = tmp_path_factory.getbasetemp()
    return (base if worker_id == "master" else base.parent) / "byte-code"


@pytest.fixture
def rig(tmp_path: Path, byte_code: Path) -> Iterator[Rig]:
    made = Rig(tmp_path, byte_code)
    yield made
    made.close()
