"""Tasks that show what a setting does."""

import asyncio
import os
import signal
import threading
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


@app.task(run_in="process")
def spin(seconds: float) -> float:
    while (used := time.process_time()) < seconds:
        pass
    return used


@app.on_start
def tell_the_loop() -> None:
    """Write down what this process runs on, if the environment says where."""
    directory = os.environ.get("HOLDFAST_TELL_LOOP")
    if directory:
        kind = type(asyncio.get_running_loop()).__module__.partition(".")[0]
        Path(directory, str(os.getpid())).write_text(kind)


@app.on_start
def hang_for_a_while() -> None:
    """Hold the event loop, if the environment says for how long, and stop.

    Once, also if the process starts over, and only when it is watched.
    """
    seconds = os.environ.get("HOLDFAST_HANG")
    if seconds:
        loop = asyncio.get_running_loop()
        threading.Thread(target=_hang, args=(loop, float(seconds)), daemon=True).start()


def _hang(loop: asyncio.AbstractEventLoop, seconds: float) -> None:
    while not any(thread.name == "holdfast-watchdog" for thread in threading.enumerate()):
        time.sleep(0.005)
    if not Path("hung").exists():
        Path("hung").touch()
        loop.call_soon_threadsafe(time.sleep, seconds)
    loop.call_soon_threadsafe(os.kill, os.getpid(), signal.SIGTERM)
