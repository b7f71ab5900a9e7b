"""Small pictures and short numbers for narrow columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

_BARS = "▁▂▃▄▅▆▇█"
_UNITS = ("", "k", "M", "G", "T")


def sparkline(values: Sequence[float], width: int) -> str:
    """Return a picture of these values, the last one right; zero is the lowest bar.

    Of values that share a column the greatest is drawn: no peak disappears.
    """
    if not values or width < 1:
        return ""
    count = min(width, len(values))
    starts = [number * len(values) // count for number in range(count + 1)]
    drawn = [max(values[start:end]) for start, end in pairwise(starts)]
    most = max(drawn)
    if most <= 0:
        return _BARS[0] * count
    steps = len(_BARS) - 1
    # What is not zero is never drawn as zero.
    return "".join(
        _BARS[0] if value <= 0 else _BARS[max(1, round(value / most * steps))] for value in drawn
    )


def short_number(value: float) -> str:
    """Return a number in at most five characters: 17, 0.25, 1.2k, 350k, 4.1M."""
    if value < 1 and value != int(value):
        return f"{value:.2f}"
    unit = 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value /= 1_000
        unit += 1
    exact = value == int(value) or value >= 99.95
    return f"{value:.0f}{_UNITS[unit]}" if exact else f"{value:.1f}{_UNITS[unit]}"


def short_age(seconds: float | None) -> str:
    """Return an age by its greatest unit: 0s, 45s, 12m, 3h, 8d; empty if there is none."""
    if seconds is None:
        return ""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size:.0f}{unit}"
    return f"{int(seconds)}s"
