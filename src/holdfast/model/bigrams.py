"""Text for a full-text index that finds words of two Chinese characters.

Such text has no spaces, so an index of words finds none of it. Here every run of CJK characters
is indexed by its pairs, and other words as they are. A query is made the same way, and asks for
its pairs as a phrase: then it finds exactly the runs that contain it. A single character is the
beginning of a pair, or the last one of a run, which is indexed too.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import chain
from typing import NamedTuple

MAX_WORD = 100
"""Longer words are cut: an index has a limit for them."""

_RANGES = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0002fa1f"
_TOKENS = re.compile(f"[{_RANGES}]+|[^\\W_{_RANGES}]+")
_CJK = re.compile(f"[{_RANGES}]")


def tokens(text: str) -> list[list[str]]:
    """Return the words of a text: each a list of the terms by which it is indexed."""
    found: list[list[str]] = []
    for word in _TOKENS.findall(unicodedata.normalize("NFKC", text).casefold()):
        if not _CJK.match(word):
            found.append([word[:MAX_WORD]])
        elif len(word) == 1:
            found.append([word])
        else:
            found.append([*(word[at : at + 2] for at in range(len(word) - 1)), word[-1]])
    return found


def index_terms(text: str) -> str:
    """Return the terms of a text in their order, separated by spaces."""
    if text.isascii():  # it has no pairs
        return " ".join([word[:MAX_WORD] for word in _TOKENS.findall(text.lower())])
    return " ".join(chain.from_iterable(tokens(text)))


class Phrase(NamedTuple):
    """Terms that come one after the other; with ``prefix`` the term is only the beginning."""

    terms: list[str]
    prefix: bool = False


def query_phrases(text: str) -> list[Phrase]:
    """Return the phrases that a text must have to be found by this query: all of them."""
    return [
        Phrase(word[:-1]) if len(word) > 1 else Phrase(word, prefix=bool(_CJK.match(word[0])))
        for word in tokens(text)
    ]
