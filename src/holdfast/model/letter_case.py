"""Texts compared whatever the case of their letters."""

from __future__ import annotations

_SMALL = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def folded(text: str) -> str:
    """Return the text with ASCII letters in lower case, for comparison."""
    return text.translate(_SMALL)
