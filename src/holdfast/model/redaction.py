"""Taking secrets out of texts that people read: the second wall, behind not writing them at all."""

from __future__ import annotations

import functools
import re

HIDDEN = "***"

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<user>[^\s/@:'\"]*):[^\s'\"]*@")
"""Up to the last @: a password may have a slash or an @ in it, and hiding too much costs little."""
_URL_TOKEN = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)[^\s/@:'\"]{16,}@")
"""A user this long, and without a password, is a key."""
_NAME = (
    r"(?:pass(?:word|wd|phrase|code)|(?<![A-Za-z])pass(?![A-Za-z])|pwd|secret|token|credential|"
    r"(?<![A-Za-z])(?:auth|dsn)(?![A-Za-z])|authorization|cookie|session[_-]?id|"
    r"(?:api|access|private|secret|encryption|signing|master|session|account)[_-]?key)"
)
_ASSIGNED = (
    rf"(?P<name>[\w.-]*{_NAME}[\w.-]*\\?[\"']?\s*[=:]\s*)(?:(?:bearer|basic|token)\s+)?"
    r"(?:\\\"(?:(?!\\\").)*\\\"|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|[^\s,;&}\"']+)"
)
_HEADER = r"(?P<name>\b(?:(?:set-)?cookie|(?:proxy-)?authorization)\s*:\s*)[^\r\n\"'}]+"

_pattern = functools.cache(functools.partial(re.compile, flags=re.IGNORECASE))
"""Compiled when needed: plain commands start without."""


def names_a_secret(name: str) -> bool:
    """Whether what has this name is nobody's business: ``db_password``, ``api_key``, …"""
    return _pattern(_NAME).search(name) is not None


def without_passwords(text: str) -> str:
    """Return the text with the passwords of URLs in it hidden."""
    if "://" not in text:
        return text
    text = _URL.sub(rf"\g<scheme>\g<user>:{HIDDEN}@", text)
    return _URL_TOKEN.sub(rf"\g<scheme>{HIDDEN}@", text)


def without_secrets(text: str) -> str:
    """Return the text with passwords of URLs, and what is assigned to secret names, hidden."""
    text = without_passwords(text)
    if "=" in text or ":" in text:
        text = _pattern(_HEADER).sub(rf"\g<name>{HIDDEN}", text)
        text = _pattern(_ASSIGNED).sub(rf"\g<name>{HIDDEN}", text)
    return text
