"""From where on to look for leases that have run out.

Jobs that were in flight leave dead entries in the index of leases. While an old transaction keeps
them from being swept up, a look from the beginning takes longer with every job that is done.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.model.job import MICROSECONDS

LATE_SECONDS = 5.0
"""How long after its lease has ended a claim may be committed and be seen by the next look."""
LOOK_AT_ALL_SECONDS = 30.0
"""How long it may take until a lease is ended whose claim was committed later than that."""
LONGEST_REST_SECONDS = 300.0
"""… if it takes long to look at all of them: twenty times as long, up to this."""


class LeaseScan:
    """Up to when this process has seen all leases that ran out."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._since_us = 0
        self._look_at_all = 0.0

    def since_us(self) -> int:
        """Return from where on to look."""
        return self._since_us if self._monotonic() < self._look_at_all else 0

    def looked(self, since_us: int, at_us: int, took_seconds: float) -> None:
        """Remember a look that missed nothing; the longer it took, the longer it counts."""
        if at_us < since_us:  # the clock was set back
            self._look_at_all = 0.0
            return
        self._since_us = at_us - int(LATE_SECONDS * MICROSECONDS)
        if since_us == 0:
            rest_seconds = min(20 * took_seconds, LONGEST_REST_SECONDS)
            rest_seconds = max(LOOK_AT_ALL_SECONDS, rest_seconds)
            self._look_at_all = self._monotonic() + rest_seconds
