"""The trace of a simulation: one line per event, and one hash of all lines."""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable

from holdfast.testing.clock import START_US, VirtualClock


class BrokenPromise(AssertionError):
    """The simulated system broke a promise."""


class Trace:
    """The events of one run, in order. Runs with the same hash had the same events."""

    def __init__(
        self, clock: VirtualClock, keep: int = 60, write_line: Callable[[str], None] | None = None
    ) -> None:
        self.counts: Counter[str] = Counter()
        """How often each kind of event happened: ``fault.…``, ``verb.…``, ``log.…`` and so on."""
        self.failure: str | None = None
        """The first broken promise."""
        self._clock = clock
        self._hash = hashlib.sha256()
        self._last: deque[str] = deque(maxlen=keep)
        self._write_line = write_line
        self._closed = False

    def note(self, kind: str, process: str, what: str = "") -> None:
        """Add an event."""
        if self._closed:
            return
        self.counts[kind] += 1
        line = (
            f"{(self._clock.now_us() - START_US) / 1e6:11.6f}  {process:<12} {kind} {what}".rstrip()
        )
        self._hash.update(line.encode())
        self._hash.update(b"\n")
        self._last.append(line)
        if self._write_line is not None:
            self._write_line(line)

    def broken(self, promise: str) -> None:
        """Record a broken promise; the first one is kept as the failure."""
        self.note("broken", "checker", promise)
        if self.failure is None and not self._closed:
            self.failure = promise

    def close(self) -> None:
        """Record no more events: the rest is only clean-up."""
        self._closed = True

    @property
    def hash(self) -> str:
        """The hash of all events so far."""
        return self._hash.hexdigest()

    @property
    def last_lines(self) -> list[str]:
        """The last events, oldest first."""
        return list(self._last)
