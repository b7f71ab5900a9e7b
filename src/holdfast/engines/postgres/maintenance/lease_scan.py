"""Where to start the scan for leases that have run out.

Jobs that were in flight leave dead entries in the index of leases. While an old transaction keeps
vacuum from removing them, a scan from the beginning takes longer with every finished job.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.model.job import MICROSECONDS

LATE_SECONDS = 5.0
"""How long after the end of its lease a claim may commit and still be found by the next scan."""
FULL_SCAN_SECONDS = 30.0
"""How often all leases are scanned, for claims that were committed later than that."""
MAX_FULL_SCAN_SECONDS = 300.0
"""… at most, if a full scan takes long: twenty times as long as it takes."""


class LeaseScan:
    """The time up to which this process has found all leases that ran out."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._since_us = 0
        self._full_scan_at = 0.0

    def since_us(self) -> int:
        """Return where the next scan starts."""
        return self._since_us if self._monotonic() < self._full_scan_at else 0

    def scanned(self, since_us: int, at_us: int, took_seconds: float) -> None:
        """Remember a complete scan; the longer a full one took, the longer until the next."""
        if at_us < since_us:  # the clock was set back
            self._full_scan_at = 0.0
            return
        self._since_us = at_us - int(LATE_SECONDS * MICROSECONDS)
        if since_us == 0:
            pause_seconds = max(FULL_SCAN_SECONDS, min(20 * took_seconds, MAX_FULL_SCAN_SECONDS))
            self._full_scan_at = self._monotonic() + pause_seconds
