"""The application that the daemons of these tests run: ordinary tasks, and tasks that wait."""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import Holdfast, current

sys.path.insert(0, str(Path(__file__).parent))

if TYPE_CHECKING:
    from .ledger import note
else:
    from ledger import note  # this is read as a file, not as part of a package

app = Holdfast()


def begin() -> None:
    note("begin", current().id, current().number)


def end() -> None:
    note("end", current().id, current().number)


@app.task
async def quick(seconds: float = 0.0) -> None:
    begin()
    await asyncio.sleep(seconds)
    end()


@app.task
async def failing() -> None:
    begin()
    raise RuntimeError("it fails, always")


@app.task
def blocking(seconds: float = 0.0) -> None:
    begin()
    time.sleep(seconds)
    end()


@app.task(run_in="process")
def computing(seconds: float = 0.0) -> None:
    begin()
    time.sleep(seconds)
    end()


@app.task(timeout=300)
async def gated(gate: str) -> str:
    """Wait until a file of this name is there; a process with a name has its own."""
    begin()
    name = os.environ.get("DAEMON_TEST_NAME", "")
    awaited = Path(f"{gate}-{name}" if name else gate)
    while not awaited.exists():  # noqa: ASYNC110, ASYNC240 - another process makes it
        await asyncio.sleep(0.02)
    end()
    return name


@app.task(timeout=300)
def gated_blocking(gate: str) -> None:
    begin()
    while not Path(gate).exists():
        time.sleep(0.02)
    end()


@app.task(timeout=300, run_in="process")
def gated_computing(gate: str) -> None:
    begin()
    while not Path(gate).exists():
        time.sleep(0.02)
    end()
