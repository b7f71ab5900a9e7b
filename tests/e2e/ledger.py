"""An append-only record outside of the queue: one line for each start and end of a task.

Tasks write each line with one ``write`` to a descriptor opened with O_APPEND, so that lines of
several processes never mix and a killed process leaves whole lines only. Times are
CLOCK_MONOTONIC, which all processes of a machine share.
"""

import os
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

VARIABLE = "DAEMON_TEST_LEDGER"


class Entry(NamedTuple):
    what: str
    job: str
    attempt: int
    pid: int
    seconds: float


def note(what: str, job: str, attempt: int) -> None:
    """Add a line to the ledger that the environment names."""
    line = f"{what} {job} {attempt} {os.getpid()} {time.monotonic():.6f}\n"
    descriptor = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


class Ledger:
    """The entries so far; reads only new lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: list[Entry] = []
        self._offset = 0

    def read(self) -> list[Entry]:
        """Return every entry up to now."""
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._offset)
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._offset += len(whole)
            for line in whole.decode().splitlines():
                what, job, attempt, pid, seconds = line.split()
                self.entries.append(Entry(what, job, int(attempt), int(pid), float(seconds)))
        return self.entries

    def begun(self) -> Counter[str]:
        """Return how often each job started."""
        return Counter(entry.job for entry in self.read() if entry.what == "begin")

    def ended(self) -> Counter[str]:
        """Return how often each job ended."""
        return Counter(entry.job for entry in self.read() if entry.what == "end")
