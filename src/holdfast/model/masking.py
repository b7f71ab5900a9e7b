"""Values as they may be shown: whole where possible, and without the secrets that are in URLs."""

from __future__ import annotations

import re

SECRET = "***"  # noqa: S105 - what stands in the place of one
_MOST_SHOWN = 500
# Greedy on purpose: a password may have any character in it, and too much is hidden rather than
# too little. Only a port, which is all digits, may follow a colon without an @ after it.
_BEFORE_HOST = re.compile(r"(://[^:]*):.*@", re.DOTALL)
_NO_PORT = re.compile(r"(://[^:/?#@\[]*):(?!\d{1,5}(?:\D|$)|\*\*\*@)[^/?#\s'\"]*")
_PARAMETER = re.compile(
    r"(?i)([a-z_]*(?:passw(?:or)?d|pwd|secret|token|api_?key)[a-z_]*=)(?!\*\*\*)[^&]*", re.DOTALL
)


def masked(text: str) -> str:
    """Return the text with ``***`` for every password in a URL."""
    if "://" not in text:
        return text
    text = _BEFORE_HOST.sub(rf"\1:{SECRET}@", text)
    text = _NO_PORT.sub(rf"\1:{SECRET}", text)
    return _PARAMETER.sub(rf"\1{SECRET}", text)


def has_secret(value: object) -> bool:
    """Whether something in it is not to be shown."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except (ValueError, RecursionError):
        return False
    return masked(text) != text


def shown(value: object) -> str:
    """Return a value as it is written in Python, for an error: masked, and not without end."""
    try:
        text = repr(masked(value)) if isinstance(value, str) else masked(repr(value))
    except (ValueError, RecursionError):  # of so many digits or levels that nobody wants to see it
        text = f"this {type(value).__name__}"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
