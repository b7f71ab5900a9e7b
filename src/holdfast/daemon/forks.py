"""Files that forked copies of this process, which tasks may make, must not keep open."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from pathlib import Path

_SOCKET_PATHS: set[str] = set()
_FILE_DESCRIPTORS: set[int] = set()


def close_in_forks(path: str, *numbers: int) -> None:
    """Have forked copies of this process close this Unix socket, and these file descriptors.

    A copy never answers. But a client that is connected to it would wait, even after this process
    has ended, and the next owner would find that a process listens.
    """
    if not _SOCKET_PATHS and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_close_all)
    _SOCKET_PATHS.add(path)
    _FILE_DESCRIPTORS.update(numbers)


def keep_open_in_forks(number: int) -> None:
    """Forget a file descriptor that is about to be closed: its number may be reused."""
    _FILE_DESCRIPTORS.discard(number)


def _close_all() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in [int(path.name) for path in Path("/dev/fd").iterdir()]:
        with contextlib.suppress(OSError):
            if number in _FILE_DESCRIPTORS or _is_ours(number):
                # Not closed: its number must not be reused for a file that is then closed instead.
                os.dup2(nothing, number, inheritable=False)
    os.close(nothing)


def _is_ours(number: int) -> bool:
    if not stat.S_ISSOCK(os.fstat(number).st_mode):
        return False
    with socket.socket(fileno=os.dup(number)) as copy:
        return copy.family == socket.AF_UNIX and not _SOCKET_PATHS.isdisjoint(_addresses(copy))


def _addresses(sock: socket.socket) -> list[str]:
    found = [sock.getsockname()]
    with contextlib.suppress(OSError):  # it only listens
        found.append(sock.getpeername())
    return found
