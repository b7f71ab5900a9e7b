"""Times as people write them: a date, or an age such as ``2h``."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from .durations import seconds_of
from .errors import InvalidInput
from .job import MAX_TIME_US, MICROSECONDS

_AGE = re.compile(r"(?:\d{1,9}(?:\.\d{1,9})?(?:us|ms|s|m|h|d|w))+")
_EPOCH_SECONDS = re.compile(r"@(\d{1,16})(?:\.(\d{1,6}))?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LAST_DATE_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND


def is_age(text: str) -> bool:
    """Whether this is an age, not a date."""
    return _AGE.fullmatch(text.strip()) is not None


def moment_us(field: str, text: str, now_us: int) -> int:
    """Return the time that a person gives; raise ``InvalidInput`` naming the field.

    A date without a zone is UTC. ``@1800000000.5`` are seconds since 1970.
    """
    text = text.strip()
    if text.lower() == "now":
        return now_us
    if _AGE.fullmatch(text):
        days = re.sub(r"(\d{1,9}(?:\.\d{1,9})?)w", lambda weeks: f"{float(weeks[1]) * 7:f}d", text)
        return max(0, now_us - round(seconds_of(field, days) * MICROSECONDS))
    if (seconds := _EPOCH_SECONDS.fullmatch(text)) is not None:
        found_us = int(seconds[1]) * MICROSECONDS + int((seconds[2] or "").ljust(6, "0"))
        return min(found_us, MAX_TIME_US)
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is None:
            found = found.replace(tzinfo=UTC)
        return max(0, (found - _EPOCH) // _MICROSECOND)
    except (ValueError, OverflowError):
        raise InvalidInput(
            field,
            f"{text[:60]!r} is neither a date such as 2027-01-31 or 2027-01-31T08:00:00Z (UTC "
            "by default) nor an age such as 30m, 2h or 1d12h",
        ) from None


def format_moment(time_us: int) -> str:
    """Return the time as a date in UTC that ``moment_us`` reads, exactly."""
    if time_us > _LAST_DATE_US:
        seconds, rest_us = divmod(time_us, MICROSECONDS)
        return f"@{seconds}.{rest_us:06}"
    return (_EPOCH + timedelta(microseconds=time_us)).isoformat().replace("+00:00", "Z")
