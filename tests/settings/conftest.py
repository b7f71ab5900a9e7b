"""A directory to be in, with nothing of ours in the environment."""

import os
from pathlib import Path

import pytest

NAMES = ("HOLDFAST_", "OUTBOX_", "DATABASE_URL")


@pytest.fixture(scope="session")
def byte_code(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """Where compiled modules are kept, for all processes of all tests."""
    base = tmp_path_factory.getbasetemp()
    return (base if worker_id == "master" else base.parent) / "byte-code"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, byte_code: Path) -> Path:
    """The working directory; no test reads the repository's own file unless it says so."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(NAMES):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(byte_code))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    return tmp_path
