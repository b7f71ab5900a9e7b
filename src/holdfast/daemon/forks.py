"""What copies of this process, which tasks may make by forking, must not keep."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from pathlib import Path

_LET_GO: set[str] = set()
_LET_GO_NUMBERS: set[int] = set()


def let_go_in_forks(path: str, *numbers: int) -> None:
    """Have copies of this process, which tasks may make by forking, let go of this Unix socket.

    And of files of these numbers.

    A copy never answers. But whoever is connected to it waits, also when we are long gone, and
    whoever starts in our place would find that somebody listens.
    """
    if not _LET_GO and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_let_go)
    _LET_GO.add(path)
    _LET_GO_NUMBERS.update(numbers)


def keep_in_forks(number: int) -> None:
    """Let copies have what gets this number next: it is about to be closed."""
    _LET_GO_NUMBERS.discard(number)


def _let_go() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in [int(path.name) for path in Path("/dev/fd").iterdir()]:
        with contextlib.suppress(OSError):
            if number in _LET_GO_NUMBERS or _is_ours(number):
                # Not closed: its number must not go to something else that is then closed for it.
                os.dup2(nothing, number, inheritable=False)
    os.close(nothing)


def _is_ours(number: int) -> bool:
    if not stat.S_ISSOCK(os.fstat(number).st_mode):
        return False
    with socket.socket(fileno=os.dup(number)) as copy:
        return copy.family == socket.AF_UNIX and not _LET_GO.isdisjoint(_addresses(copy))


def _addresses(sock: socket.socket) -> list[str]:
    found = [sock.getsockname()]
    with contextlib.suppress(OSError):  # it only listens
        found.append(sock.getpeername())
    return found
