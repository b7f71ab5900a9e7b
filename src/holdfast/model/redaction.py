"""Taking secrets out of texts that people read: the second wall, behind not writing them at all."""

from __future__ import annotations

import re

HIDDEN = "***"

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<user>[^\s/@:'\"]*):[^\s'\"]*@")
"""Up to the last @: a password may have a slash or an @ in it, and hiding too much costs little."""
_NAME = (
    r"(?:pass(?:word|wd|phrase)?|pwd|secrets?|api[_-]?keys?|access[_-]?keys?|private[_-]?keys?|"
    r"auth(?:orization)?|credentials?|cookies?|session[_-]?ids?|dsn|(?:[a-z]+[_-])?tokens?)"
)
_SECRET_NAME = re.compile(rf"(?:^|[_.-]){_NAME}$", re.IGNORECASE)
_ASSIGNED = re.compile(
    rf"(?P<name>\b(?:[A-Za-z0-9]+[_-])*{_NAME}\b[\"']?\s*[=:]\s*)"
    r"(?:(?:bearer|basic)\s+)?(?:\"[^\"]*\"|'[^']*'|[^\s,;&}\"']+)",
    re.IGNORECASE,
)


def names_a_secret(name: str) -> bool:
    """Whether what has this name is nobody's business: ``db_password``, ``api_key``, …"""
    return _SECRET_NAME.search(name) is not None


def without_passwords(text: str) -> str:
    """Return the text with the passwords of URLs in it hidden."""
    return _URL.sub(rf"\g<scheme>\g<user>:{HIDDEN}@", text) if "://" in text else text


def without_secrets(text: str) -> str:
    """Return the text with passwords of URLs, and what is assigned to secret names, hidden."""
    text = without_passwords(text)
    if "=" in text or ":" in text:
        text = _ASSIGNED.sub(rf"\g<name>{HIDDEN}", text)
    return text
