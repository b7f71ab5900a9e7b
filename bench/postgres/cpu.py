"""Processor time, as the system counts it: in hundredths of a second."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

_TICKS = os.sysconf("SC_CLK_TCK")


def used(pids: Iterable[int]) -> float:
    """Return the seconds that these processes have used."""
    return sum(_seconds(pid, 11, 12) for pid in pids)


def used_by_server(url: str) -> float:
    """Return the seconds that the server at this socket has used, with all of its processes."""
    directory = Path(str(conninfo_to_dict(url)["host"]))
    first = int((directory / "data" / "postmaster.pid").read_text().split()[0])
    children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    # 13 and 14: those of its children that have ended.
    return _seconds(first, 11, 12, 13, 14) + used(map(int, children))


def _seconds(pid: int, *fields: int) -> float:
    with contextlib.suppress(OSError):  # it has ended
        found = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(int(found[field]) for field in fields) / _TICKS
    return 0.0
