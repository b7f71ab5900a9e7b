"""The fingerprint of an error message: its text without the parts that vary."""

from __future__ import annotations

import re
from functools import cache, lru_cache

FINGERPRINT_LIMIT = 160
FINGERPRINT_VERSION = 1
"""Raise it with every change to what a message becomes: groups get other ids then."""
_READ_LIMIT = 500

_URL = r"""(?P<url> \b[a-z][a-z0-9+.-]{1,20}://[^\s'"<>)\]]+ ) |"""
_EMAIL = r"""(?P<email> [\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+ ) |"""
_OTHERS = r"""
      (?P<uuid> \b[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}\b )
    | (?P<address> \b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b | \[[0-9a-f]*:[0-9a-f:.]+\](?::\d+)? )
    | (?P<hex> \b0x[0-9a-f]+\b | \b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,}\b )
    | (?P<text> '[^'\n]{0,200}' | "[^"\n]{0,200}" )
    | (?P<path> (?<![\w/])(?:/[\w.@%+-]+){2,}/? )
    | (?P<number> [+-]?\d+(?:[.,:]\d+)* )
    """
_FLAGS = re.VERBOSE | re.IGNORECASE


@cache
def _varying(*, url: bool, email: bool) -> re.Pattern[str]:
    """Return the pattern; searching for URLs and email addresses is slow, so only if needed."""
    return re.compile(_URL * url + _EMAIL * email + _OTHERS, _FLAGS)


@lru_cache(maxsize=4096)
def fingerprint(message: str) -> str:
    """Return the message's first line with numbers, ids, addresses, paths and quotes as marks."""
    line = message[:_READ_LIMIT].strip().partition("\n")[0]
    varying = _varying(url="://" in line, email="@" in line)
    shape = varying.sub(lambda found: f"<{found.lastgroup}>", line)
    return " ".join(shape.split())[:FINGERPRINT_LIMIT]
