"""A peer's driver, its Valkey and its worker are one process group: they end together."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]

# A killed process is gone at once, but counts until its new parent has noticed.
END_SECONDS = 0.2


def told(
    module: str,
    arguments: Sequence[str],
    directory: Path,
    seconds: float,
    environment: Mapping[str, str] | None = None,
) -> dict[str, float]:
    """Run a module in a process group of its own, and leave nothing of it behind.

    It gets the directory and these arguments, and prints what it found as JSON in so many seconds.
    """
    log = directory / "driver.log"
    with log.open("wb") as output:
        driver = subprocess.Popen(
            [sys.executable, "-m", module, str(directory), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
    assert driver.stdin is not None
    assert driver.stdout is not None
    try:
        status = driver.wait(timeout=seconds)
        said = driver.stdout.read()
    except subprocess.TimeoutExpired:
        status, said = -1, b""
    finally:
        driver.kill()
        driver.wait()
        end(driver.pid)
        driver.stdin.close()
        driver.stdout.close()
    if status != 0:
        words = " ".join([module, *arguments])
        raise RuntimeError(f"{words} was not measured: {log.read_text()[-4000:]}")
    return dict(json.loads(said))


def end(group: int) -> None:
    """Kill a whole group and wait a moment for it to be gone."""
    until = time.monotonic() + END_SECONDS
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < until:
            os.killpg(group, signal.SIGKILL)
            time.sleep(0.01)


def end_with_parent(directory: Path) -> None:
    """End this process's group and remove its directory when whoever started it is gone.

    The parent holds the other end of standard input and never writes to it, so its end is seen
    even if it was killed. The sweeper leaves the group first, to outlive it.
    """

    def watch() -> None:
        os.read(0, 1)
        group = os.getpgrp()
        if os.fork() == 0:
            os.setsid()
            end(group)
            shutil.rmtree(directory, ignore_errors=True)
            os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
