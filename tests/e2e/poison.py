"""Tasks that misbehave, in addition to the tasks of ``jobs``."""

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import Dead, Retry, Snooze, current

sys.path.insert(0, str(Path(__file__).parent))

if TYPE_CHECKING:
    from .jobs import app, begin
    from .ledger import note
else:
    from jobs import app, begin
    from ledger import note  # this is read as a file, not as part of a package

BIG = 10_000_000


@app.task
async def exit_async() -> None:
    begin()
    os._exit(9)


@app.task
def exit_thread() -> None:
    begin()
    os._exit(0)


@app.task(run_in="process")
def exit_process() -> None:
    begin()
    os._exit(0)


@app.task
async def segfault_async() -> None:
    begin()
    os.kill(os.getpid(), signal.SIGSEGV)


@app.task
def segfault_thread() -> None:
    begin()
    ctypes.string_at(0)


@app.task(run_in="process")
def segfault_process() -> None:
    begin()
    ctypes.string_at(0)


@app.task(run_in="process")
def hog_process() -> None:
    begin()
    hoard = []
    while True:
        hoard.append(bytearray(16 << 20))


@app.task
async def spin_async() -> None:
    begin()
    while True:
        pass


@app.task
def spin_thread() -> None:
    begin()
    while True:
        pass


@app.task(run_in="process")
def spin_process() -> None:
    begin()
    while True:
        pass


@app.task
async def huge_message() -> None:
    begin()
    raise RuntimeError("x" * BIG)


@app.task
def huge_traceback(depth: int = 0) -> None:
    if depth == 0:
        begin()
    if depth < 900:
        huge_traceback(depth + 1)
    raise RuntimeError("deep")


@app.task(run_in="process")
def huge_message_process() -> None:
    begin()
    raise RuntimeError("x" * BIG)


class Unreadable(Exception):
    """An error that cannot even be printed."""

    def __str__(self) -> str:
        raise SystemExit("no text for you")


@app.task
async def unreadable_error() -> None:
    begin()
    raise Unreadable


@app.task
async def system_exit_async() -> None:
    begin()
    sys.exit(0)


@app.task
def system_exit_thread() -> None:
    begin()
    sys.exit(3)


@app.task(run_in="process")
def system_exit_process() -> None:
    begin()
    sys.exit(0)


@app.task
async def interrupt_async() -> None:
    begin()
    raise KeyboardInterrupt


@app.task
def interrupt_thread() -> None:
    begin()
    raise KeyboardInterrupt


@app.task
async def exit_in_the_background() -> None:
    """Raise SystemExit where only the event loop can catch it."""
    begin()

    async def leave() -> None:
        sys.exit(0)

    background = asyncio.create_task(leave())
    await asyncio.wait([background])


@app.task
async def swallow_for_ever() -> None:
    """Ignore every cancellation."""
    begin()
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3_600)


@app.task
async def swallow_once() -> str:
    begin()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(3_600)
    return "done all the same"


@app.task
async def cancel_itself() -> None:
    begin()
    raise asyncio.CancelledError


@app.task
async def not_json() -> object:
    begin()
    return {"when": object(), "pipe": lambda: None}


class Treacherous(dict):
    """A mapping that raises when it is read."""

    def items(self):
        raise SystemExit("not for your eyes")

    def keys(self):
        raise SystemExit("not for your eyes")


@app.task
async def treacherous_result() -> object:
    begin()
    return Treacherous(a=1)


@app.task(timeout=60)
async def large_result(gate: str) -> str:
    begin()
    while not Path(gate).exists():  # noqa: ASYNC110, ASYNC240 - another process makes it
        await asyncio.sleep(0.02)
    return "x" * 250_000


@app.task(run_in="process")
def start_a_sleeper() -> None:
    with subprocess.Popen(["sleep", "600"]) as sleeper:  # noqa: S607 - it is on the path
        note("sleeper", current().id, sleeper.pid)


@app.task(timeout=300)
async def terminate_a_sleeper(gate: str) -> int:
    """Start a process and terminate it, as libraries do."""
    begin()
    while not Path(gate).exists():  # noqa: ASYNC110, ASYNC240 - another process makes it
        await asyncio.sleep(0.02)
    sleeper = await asyncio.create_subprocess_exec("sleep", "600")
    sleeper.terminate()
    return await sleeper.wait()


@app.task(timeout=300)
def fork_and_wait(gate: str) -> None:
    """Fork a copy of the worker with all its open files."""
    begin()
    pid = os.fork()
    if not pid:
        time.sleep(600)
        os._exit(0)
    note("fork", current().id, pid)
    while not Path(gate).exists():
        time.sleep(0.02)


@app.task(timeout=300)
def ask_the_operator(gate: str) -> str:
    """Read from standard input, which has no data."""
    begin()
    while not Path(gate).exists():
        time.sleep(0.02)
    return sys.stdin.readline()


@app.task(run_in="process")
def ask_the_operator_process() -> str:
    begin()
    return sys.stdin.read()


@app.task
async def typed(number: int) -> None:
    begin()


@app.task
async def long_farewell() -> None:
    begin()
    raise Dead("x" * 1_000_000, error_reason="y" * 1_000)


@app.task
async def next_aeon() -> None:
    begin()
    raise Snooze(1e300)


@app.task
async def retry_next_aeon() -> None:
    begin()
    raise Retry("x" * 100_000, after=1e300)


@app.task
async def in_a_pool() -> None:
    """Wait for a thread that cannot be stopped."""
    begin()
    await asyncio.to_thread(time.sleep, 3_600)


@app.task
def chatter(seconds: float = 3_600.0) -> None:
    """Print all the time."""
    begin()
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        print("still here" * 100)  # noqa: T201
