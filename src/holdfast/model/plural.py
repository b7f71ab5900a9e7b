"""Counts with their nouns, for messages."""

from __future__ import annotations

_VOWELS = "aeiou"


def count_of(count: int, what: str = "job") -> str:
    """Return a count with its noun: ``1 job``, ``3 jobs``, ``2 policies``, ``4 batches``."""
    return f"{count:,} {what if count == 1 else plural(what)}"


def plural(noun: str) -> str:
    """Return the plural of a regular noun."""
    if noun.endswith("y") and noun[-2:-1] not in _VOWELS:
        return f"{noun[:-1]}ies"
    return f"{noun}{'es' if noun.endswith(('s', 'x', 'ch', 'sh')) else 's'}"
