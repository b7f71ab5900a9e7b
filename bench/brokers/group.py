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

# A killed process stays in the group until its new parent has reaped it.
END_SECONDS = 0.2


def run_module(
    module: str,
    arguments: Sequence[str],
    directory: Path,
    seconds: float,
    environment: Mapping[str, str] | None = None,
) -> dict[str, float]:
    """Run a module in its own process group, and kill the whole group afterwards.

    It gets the directory and the arguments, and prints figures as JSON within ``seconds``.
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
        output_text = driver.stdout.read()
    except subprocess.TimeoutExpired:
        status, output_text = -1, b""
    finally:
        driver.kill()
        driver.wait()
        end(driver.pid)
        driver.stdin.close()
        driver.stdout.close()
    if status != 0:
        command = " ".join([module, *arguments])
        raise RuntimeError(f"{command} was not measured: {log.read_text()[-4000:]}")
    return dict(json.loads(output_text))


def end(group: int) -> None:
    """Kill a whole group and wait briefly until it is gone."""
    until = time.monotonic() + END_SECONDS
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < until:
            os.killpg(group, signal.SIGKILL)
            time.sleep(0.01)


def end_with_parent(directory: Path) -> None:
    """Kill this process group and remove its directory when the parent process has ended.

    The parent holds the writing end of standard input and never writes to it, so end-of-file shows
    its end, even after a kill. The forked cleaner leaves the group first, to survive it.
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
