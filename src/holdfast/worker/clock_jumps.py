"""Forward jumps of the engine's clock, after which every lease may have ended there.

The worker's own clock need not show them: it may still be catching up after having been set back.
"""

from __future__ import annotations

from collections.abc import Callable


class ClockJumps:
    """Compares times in the engine's answers with our clock and detects a jump forward."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ahead_seconds: float | None = None
        """How far the engine's clock is ahead of ours, at least."""
        self._jumped = False

    def observe(self, engine_time: float, lease_seconds: float) -> None:
        """Take a time of the engine's clock, in seconds, that is not in its future."""
        ahead, before = engine_time - self._clock(), self._ahead_seconds
        self._ahead_seconds = ahead if before is None else max(before, ahead)
        if before is not None and ahead - before >= min(1.0, lease_seconds / 10):
            self._jumped = True

    def take(self) -> bool:
        """Return whether there was a jump since the last call."""
        jumped, self._jumped = self._jumped, False
        return jumped
