"""Prometheus' own tool, which tests alert rules. Debian's package ``prometheus`` has it."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

_INSTALL = "apt-get install -y --no-install-recommends prometheus"


def promtool() -> str:
    """Return the path of promtool; install it where that is possible, else fail."""
    found = shutil.which("promtool")
    if found is None and os.geteuid() == 0 and shutil.which("apt-get") is not None:
        _install()
        found = shutil.which("promtool")
    if found is None:
        pytest.fail(f"promtool is missing: install it with `{_INSTALL}`")
    return found


def _install() -> None:
    """Install it; of several test processes one does."""
    with (Path(tempfile.gettempdir()) / "holdfast-promtool.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if shutil.which("promtool") is None:
            # Without a policy the package would start a server.
            environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
            for command in ("apt-get update", _INSTALL):
                subprocess.run(
                    command.split(),
                    env=environment,
                    capture_output=True,
                    check=False,
                    timeout=300,
                )
