"""A directory to be in, with nothing of ours in the environment."""

import os
from pathlib import Path

import pytest

NAMES = ("HOLDFAST_", "OUTBOX_", "DATABASE_URL")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory; no test reads the repository's own file unless it says so."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(NAMES):
            monkeypatch.delenv(name)
    return tmp_path
