"""A peer's driver, its Valkey and its worker are one process group: they end together."""

import contextlib
import os
import shutil
import signal
import threading
import time
from pathlib import Path

# A killed process is gone at once, but counts until its new parent has noticed.
END_SECONDS = 0.2


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
