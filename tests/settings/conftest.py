"""Fixtures: a working directory, and an environment without our variables."""

import os
from pathlib import Path

import pytest

NAMES = ("HOLDFAST_", "OUTBOX_", "DATABASE_URL")


@pytest.fixture(scope="session")
def byte_code(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The shared directory of compiled modules."""
    base = tmp_path_factory.getbasetemp()
    return (base if worker_id == "master" else base.parent) / "byte-code"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, byte_code: Path) -> Path:
    """The working directory; no test reads the repository's own file unless it asks for it."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(NAMES):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(byte_code))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    return tmp_path
