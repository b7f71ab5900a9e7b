"""The application that the daemons of these tests run: ordinary tasks, and tasks that wait."""

import asyncio
import os
import sys
import time
from pathlib import Path

from holdfast import Holdfast, current

sys.path.insert(0, str(Path(__file__).parent))

from ledger import note  # type: ignore[import-not-found]  # noqa: E402 - as a file, not a package

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
    """Wait until a file of this name is there."""
    begin()
    while not Path(gate).exists():  # noqa: ASYNC240 - a test's own small file
        await asyncio.sleep(0.02)
    end()
    return os.environ.get("DAEMON_TEST_NAME", "")


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
