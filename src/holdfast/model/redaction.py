"""Hides secrets in texts that people read: in URLs, in values of settings, in free text."""

from __future__ import annotations

import functools
import re

HIDDEN = "***"

# Every pattern takes time in proportion to the text, which may be long and hostile: what precedes a
# fixed word is not matched, and what follows it is bounded, or ends where the next match can begin.
_URL = re.compile(r"://[^\s'\"]+")
_USER = re.compile(r"://[^/@:]*:")
_URL_TOKEN = re.compile(r"://[^\s/@:'\"]{16,}@")
"""A user this long, and without a password, is a key."""
_NAME = (
    r"(?:pass(?:word|wd|phrase|code)|(?<![A-Za-z])pass(?![A-Za-z])|pwd|secret|token|credential|"
    r"(?<![A-Za-z])(?:auth|dsn)(?![A-Za-z])|authorization|cookie|session[_-]?id|"
    r"(?:api|access|private|secret|encryption|signing|master|session|account)[_-]?key)"
)
_ASSIGNED = (
    rf"(?P<name>{_NAME}[\w.-]{{0,100}}+\\?[\"']?\s*[=:]\s*)(?:(?:bearer|basic|token)\s+)?"
    r"(?:\\\"(?:(?!\\\").)*\\\"|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|[^\s,;&}\"']+)"
)
_HEADER = r"(?P<name>\b(?:(?:set-)?cookie|(?:proxy-)?authorization)\s*:\s*)[^\r\n\"'}]+"

_MOST_SHOWN = 500
# In a value that is a URL. Greedy on purpose: a password may have any character in it, and too much
# is hidden rather than too little. Only a port, all digits, may follow a colon without an @ later.
_BEFORE_HOST = re.compile(r"://[^:]*:")
_NO_PORT = re.compile(r"(://[^:/?#@\[]*):(?!\d{1,5}(?:\D|$)|\*\*\*@)[^/?#\s'\"]*")
_PARAMETER = re.compile(
    r"(?i)((?:passw(?:or)?d|pwd|secret|token|api_?key)[a-z_]{0,100}+\s{0,100}+=)(?!\*\*\*)[^&]*",
    re.DOTALL,
)
# In a value that should be a URL and is not: user:password@host, perhaps behind a broken scheme.
_BARE_USER = re.compile(r"^(?![A-Za-z]:[\\/])(?:postgres(?:ql)?[:/]/?)?[^/\\@:]*:")

_pattern = functools.cache(functools.partial(re.compile, flags=re.IGNORECASE))
"""Compiled when needed, so that plain commands start faster."""


def names_a_secret(name: str) -> bool:
    """Whether a field of this name holds a secret: ``db_password``, ``api_key``, …"""
    return _pattern(_NAME).search(name) is not None


def without_passwords(text: str) -> str:
    """Return the text with the passwords of URLs in it hidden."""
    if "://" not in text:
        return text
    text = _URL.sub(lambda found: _without_password(found[0], _USER), text)
    return _URL_TOKEN.sub(f"://{HIDDEN}@", text)


def _without_password(text: str, before: re.Pattern[str]) -> str:
    """Hide what is between ``before`` and the last @.

    The last one: a password may have a slash or an @ in it, and hiding too much costs little.
    """
    end = text.rfind("@")
    found = before.search(text, 0, max(end, 0))
    return text if found is None else f"{text[: found.end()]}{HIDDEN}{text[end:]}"


def without_secrets(text: str) -> str:
    """Return the text with passwords of URLs, and what is assigned to secret names, hidden."""
    text = without_passwords(text)
    if "=" in text or ":" in text:
        text = _pattern(_HEADER).sub(rf"\g<name>{HIDDEN}", text)
        text = _pattern(_ASSIGNED).sub(rf"\g<name>{HIDDEN}", text)
    return text


def masked(value: str) -> str:
    """Return the value of a setting with ``***`` for every password, as in a URL."""
    if "://" not in value:
        return _PARAMETER.sub(rf"\1{HIDDEN}", _without_password(value, _BARE_USER))
    value = _without_password(value, _BEFORE_HOST)
    value = _NO_PORT.sub(rf"\1:{HIDDEN}", value)
    return _PARAMETER.sub(rf"\1{HIDDEN}", value)


def has_secret(value: object) -> bool:
    """Whether ``masked`` would hide something in it."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except (ValueError, RecursionError):
        return False
    return masked(text) != text


def shown(value: object) -> str:
    """Return the value as Python code for an error message: masked, and cut if it is long."""
    try:
        text = repr(masked(value)) if isinstance(value, str) else masked(repr(value))
    except (ValueError, RecursionError):  # too many digits or levels
        text = f"this {type(value).__name__}"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
