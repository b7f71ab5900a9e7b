"""Durations as people write them: ``3s``, ``2m``, ``500ms``, ``1h30m``, or plain seconds."""

from __future__ import annotations

import math
import re
from datetime import timedelta

from .errors import InvalidInput

Duration = float | int | str | timedelta
"""Seconds, a ``timedelta``, or text such as ``"90s"`` and ``"1h30m"``."""

_UNIT_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_PART = re.compile(r"(\d{1,30}(?:\.\d{1,30})?)(us|ms|s|m|h|d)")
_WHOLE = re.compile(r"(?:\d{1,30}(?:\.\d{1,30})?(?:us|ms|s|m|h|d))+")


def seconds_of(field: str, value: Duration) -> float:
    """Return the duration in seconds, zero or more; raise ``InvalidInput`` naming the field."""
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, str):
        seconds = _parsed(field, value.strip())
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(field, f"a {type(value).__name__} is not a duration")
    else:
        seconds = float(value)
    if not 0 <= seconds < math.inf:
        raise InvalidInput(field, f"{value!r} is not a duration from 0 up")
    return seconds


def _parsed(field: str, text: str) -> float:
    if _WHOLE.fullmatch(text):
        return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _PART.findall(text))
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(
            field, f"{text!r} is not a duration such as 500ms, 3s, 2m, 1h30m or 1d"
        ) from None


def format_seconds(seconds: float) -> str:
    """Return the duration as text, such as ``1h30m``."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f}us" if seconds else "0s"
    if seconds < 1:
        return f"{seconds * 1e3:g}ms"
    if seconds < 60:
        return f"{round(seconds, 3):g}s"
    left = round(seconds)
    parts = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)
