"""Fixtures: a working directory, commands in this process, a daemon in another process."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.main import main

if TYPE_CHECKING:
    from .shop import Shop

Command = Callable[..., Result]

APP = """
import asyncio
from holdfast import Holdfast, current
app = Holdfast()

@app.task(queue="mail", priority=3)
async def mail(to: str) -> str:
    return f"sent to {to}"

@app.task(timeout=600)
async def slow() -> None:
    current().progress(0.5, "half")
    await asyncio.sleep(600)

@app.task
async def fail() -> None:
    raise ValueError("this one fails")
"""


def invoke(*args: object, stdin: bytes | str | None = None) -> Result:
    """Run a command, which must never print a traceback."""
    result = CliRunner().invoke(main, [str(arg) for arg in args], input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert "Traceback" not in result.output
    assert "This was not foreseen" not in result.output
    return result


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory; the store is ./data in it."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(("HOLDFAST_", "OUTBOX_")):
            monkeypatch.delenv(name)
    return tmp_path


@pytest.fixture
def hold(here: Path) -> Command:
    """Run a command in this directory."""
    return invoke


class Daemon:
    """``holdfast run`` in another process."""

    def __init__(self, directory: Path, *args: str) -> None:
        self.store = directory / "data"
        (directory / "jobs_app.py").write_text(APP)
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "holdfast", "--store", str(self.store), "run"),
                *("jobs_app.py", "--metrics-port", "off", "--drain-seconds", "0", *args),
            ],
            cwd=directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.said = self._read_until("workers:")

    def _read_until(self, start: str) -> list[str]:
        assert self.process.stdout is not None
        lines: list[str] = []
        for line in self.process.stdout:
            lines.append(line)
            if line.startswith(start):
                return lines
        raise AssertionError(f"no line starts with {start!r}: {lines}")

    def stop(self) -> int:
        """Ask it to stop; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(20)
        finally:
            self.process.kill()
            if self.process.stdout is not None:
                self.said += list(self.process.stdout)
                self.process.stdout.close()
        return code

    def run(self, *args: object, stdin: bytes | str | None = None) -> Result:
        """Run a command on the daemon's store."""
        return invoke("--store", self.store, *args, stdin=stdin)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    made = Daemon(tmp_path_factory.mktemp("daemon"))
    yield made
    assert made.stop() == 0


@pytest.fixture(scope="session")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store for tests to copy."""
    from .shop import CATALOG, furnish  # noqa: PLC0415 - it imports from here

    path = tmp_path_factory.mktemp("furnished") / "data"
    asyncio.run(furnish(path))
    (path.parent / "catalog.yaml").write_text(CATALOG)
    return path


@pytest.fixture
def closed_shop(here: Path, furnished: Path) -> Shop:
    """A store without an owner."""
    from .shop import Shop  # noqa: PLC0415

    shutil.copytree(furnished, here / "data")
    shutil.copy(furnished.parent / "catalog.yaml", here)
    return Shop(here / "data", owned=False)


@pytest.fixture(params=["down", "up"])
def shop(request: pytest.FixtureRequest, closed_shop: Shop) -> Iterator[Shop]:
    """The same store, without an owner and with one."""
    from .shop import Shop, owner_of  # noqa: PLC0415

    if request.param == "down":
        yield closed_shop
        return
    with owner_of(closed_shop.path):
        yield Shop(closed_shop.path, owned=True)
