"""Leaps of the engine's clock, as a worker can see them: there, every lease may have run out.

The worker's own clock may not show it, if it is still making up for having been set back.
"""

from __future__ import annotations

from collections.abc import Callable

from .slot_options import SlotOptions


class ClockJumps:
    """Compares what answers say of the engine's clock with our own, and notices a leap forward."""

    def __init__(self, clock: Callable[[], float], terms: SlotOptions) -> None:
        self._clock = clock
        self._terms = terms
        self._ahead: float | None = None
        """How many seconds the engine's clock is ahead of ours, at least."""
        self._seen = False

    def look(self, theirs: float) -> None:
        """Take a moment that was not later, by the engine's clock, than it is now."""
        ahead, before = theirs - self._clock(), self._ahead
        self._ahead = ahead if before is None else max(before, ahead)
        if before is not None and ahead - before >= min(1.0, self._terms.lease_seconds / 10):
            self._seen = True

    def seen(self) -> bool:
        """Whether there was a leap since this was last asked."""
        seen, self._seen = self._seen, False
        return seen
