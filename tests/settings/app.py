"""Tasks that show what a setting does."""

import asyncio
import os
import time
from pathlib import Path

from holdfast import Holdfast

app = Holdfast()


@app.task
async def other() -> None:
    """Be the task of jobs that name none."""


@app.task(run_in="process")
def fill(megabytes: int) -> int:
    return len(bytearray(megabytes * 1024 * 1024))


@app.on_start
def hang_for_a_while() -> None:
    """Hold the event loop, if the environment says for how long: once, also if it starts over."""
    seconds = os.environ.get("HOLDFAST_HANG")
    if seconds and not Path("hung").exists():
        Path("hung").touch()
        asyncio.get_running_loop().call_later(0.05, time.sleep, float(seconds))
