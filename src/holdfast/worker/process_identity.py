"""What identifies this process on its machine, and the proof that another one has ended."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from holdfast.model.fleet import WorkerProcess

_GONE_STATES = (b"Z", b"X")
"""A zombie has ended: only its parent has not looked yet."""


def host_name() -> str:
    """Return the name of this machine."""
    return socket.gethostname() or "unknown"


def machine_identity() -> str:
    """Return the running kernel and the namespace of its pids; empty where that cannot be known.

    Two processes that have the same one see each other by pid.
    """
    if sys.platform != "linux":
        return ""
    try:
        if str(Path("/proc/self").readlink()) != str(os.getpid()):
            return ""  # this is the /proc of another namespace of pids
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot_id} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def started_ticks(pid: int) -> int:
    """Return when the kernel says this process started; 0 if it has ended, or cannot be seen."""
    try:
        # The name of the program, in brackets, may contain anything.
        state, *fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return 0 if state in _GONE_STATES else int(fields[18])
    except (OSError, ValueError, IndexError):
        return 0


def is_gone(process: WorkerProcess) -> bool:
    """Whether it is certain that this process has ended."""
    return _is_gone(process, process.pid, process.started_ticks)


def is_this_process(process: WorkerProcess) -> bool:
    """Whether an entry has the pid and start time of this very process."""
    pid = os.getpid()
    here = host_name(), machine_identity(), pid, started_ticks(pid)
    return bool(process.machine) and here == (
        *(process.host, process.machine),
        *(process.pid, process.started_ticks),
    )


def gone_workers(process: WorkerProcess) -> list[str]:
    """Return the names under which this process claimed and certainly claims no more."""
    return [
        worker for worker, (pid, ticks) in process.pids.items() if _is_gone(process, pid, ticks)
    ]


def _is_gone(process: WorkerProcess, pid: int, ticks: int) -> bool:
    if not process.machine or not ticks:
        return False
    if (process.host, process.machine) != (host_name(), machine_identity()):
        return False  # another machine, or another container
    now = started_ticks(pid)
    return now != ticks if now else not _exists(pid)


def _exists(pid: int) -> bool:
    """Whether there is a process of this pid that has not ended, even if it cannot be seen."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # another user's
    try:
        Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return True  # it is hidden
    return False  # a zombie
