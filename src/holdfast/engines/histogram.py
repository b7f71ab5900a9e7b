"""A histogram: plain arithmetic, cheap enough for a hot path."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """How many observed values were at most each bound, and their sum.

    One thread observes; another may read meanwhile, and may then miss the last value.
    """

    __slots__ = ("bounds", "buckets", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.buckets = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Add a value."""
        self.buckets[bisect_left(self.bounds, value)] += 1
        self.total += value

    def add(self, buckets: Sequence[int], total: float) -> None:
        """Add what another histogram with the same bounds has observed."""
        self.buckets = [mine + theirs for mine, theirs in zip(self.buckets, buckets, strict=True)]
        self.total += total

    def cumulative(self) -> list[tuple[str, int]]:
        """Return for each bound, ``+Inf`` being the last, how many were not above it."""
        running = 0
        found: list[tuple[str, int]] = []
        for bound, count in zip([*map(str, self.bounds), "+Inf"], self.buckets, strict=True):
            running += count
            found.append((bound, running))
        return found
