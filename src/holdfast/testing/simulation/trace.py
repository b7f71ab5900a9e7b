"""What happened in a simulation: every event a line, all of them one hash."""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable

from holdfast.testing.clock import START_US, VirtualClock


class BrokenPromise(AssertionError):
    """The simulated system did what it must never do, or did not do what it must."""


class Trace:
    """The events of one run, in order. Two runs with the same hash did the same."""

    def __init__(
        self, clock: VirtualClock, keep: int = 60, say: Callable[[str], None] | None = None
    ) -> None:
        self.counts: Counter[str] = Counter()
        """How often each kind of event happened: ``fault.…``, ``verb.…``, ``log.…`` and so on."""
        self.failure: str | None = None
        """What was broken first."""
        self._clock = clock
        self._hash = hashlib.sha256()
        self._last: deque[str] = deque(maxlen=keep)
        self._say = say
        self._closed = False

    def note(self, kind: str, who: str, what: str = "") -> None:
        """Add an event."""
        if self._closed:
            return
        self.counts[kind] += 1
        line = f"{(self._clock.now_us() - START_US) / 1e6:11.6f}  {who:<12} {kind} {what}".rstrip()
        self._hash.update(line.encode())
        self._hash.update(b"\n")
        self._last.append(line)
        if self._say is not None:
            self._say(line)

    def broken(self, promise: str) -> None:
        """Take note that a promise is broken; the first one counts."""
        self.note("broken", "checker", promise)
        if self.failure is None and not self._closed:
            self.failure = promise

    def close(self) -> None:
        """Take no note of anything any more: what comes now is only the world's undoing."""
        self._closed = True

    @property
    def hash(self) -> str:
        """The hash of everything that happened so far."""
        return self._hash.hexdigest()

    @property
    def last_lines(self) -> list[str]:
        """The last events, oldest first."""
        return list(self._last)
