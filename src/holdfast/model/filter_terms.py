"""Splits a filter that is written as one line into its terms: ``-word:value,value``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .errors import InvalidInput
from .filter_words import ALIASES, PAYLOAD, WORDS
from .payload_condition import BAD_JSON

MAX_LENGTH = 8_000
MAX_TERMS = 100

_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"[A-Za-z_]+")
_PART = re.compile(r'[^\s.=:<>!",]+')
_OPERATOR = re.compile(r"!=|<=|>=|[:=<>]")
_BARE = re.compile(r"[^\s,]+")
_TERM = re.compile(r"\S*")
_JSON = json.JSONDecoder(strict=False)


class Value(NamedTuple):
    """One value of a term: the text that it means, and as it is written."""

    text: str
    written: str


class Term(NamedTuple):
    """One condition: a word, an operator, and values; or a quoted text, whose word is ``text``."""

    written: str
    at: int
    negated: bool
    word: str
    path: tuple[str, ...]
    """Into the payload."""
    operator: str
    values: tuple[Value, ...]

    def refused(self, problem: str) -> InvalidInput:
        """Return the error that names this term and its place."""
        return refusal(self.written, self.at, problem)


def refusal(written: str, at: int, problem: str) -> InvalidInput:
    """Return the error about a part of a filter at this place."""
    shown = written if len(written) <= 60 else f"{written[:59]}…"
    return InvalidInput("filter", f"{shown!r} at character {at + 1}: {problem}")


def terms_of(text: str) -> list[Term]:
    """Return the terms in order, or raise ``InvalidInput`` naming the wrong one and its place."""
    if type(text) is not str or len(text) > MAX_LENGTH:
        raise InvalidInput("filter", f"give a text of at most {MAX_LENGTH:,} characters")
    terms = list(_Scanner(text).terms())
    if len(terms) > MAX_TERMS:
        raise terms[MAX_TERMS].refused(f"a filter has at most {MAX_TERMS} conditions")
    return terms


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a question for the known word that is most like this one, or the known words."""
    import difflib  # noqa: PLC0415 - only for mistakes

    names = sorted(map(str, known))
    near = difflib.get_close_matches(word.lower(), names, 1)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"


class _Scanner:
    """Reads terms from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._start = 0

    def terms(self) -> Iterator[Term]:
        while True:
            self._take(_SPACE)
            self._start = self._at
            if self._at == len(self._text):
                return
            yield self._term()

    def _term(self) -> Term:
        negated = self._peek() == "-"
        self._at += negated
        word, operator = "text", ":"
        path: tuple[str, ...] = ()
        if self._peek() != '"':
            word, path, operator = self._head()
        values = [self._value(word)]
        while self._peek() == ",":
            self._at += 1
            values.append(self._value(word))
        if self._peek().strip():
            raise self._refused("put a space before the next condition")
        written = self._text[self._start : self._at]
        negated ^= operator == "!="
        return Term(written, self._start, negated, word, path, operator, tuple(values))

    def _head(self) -> tuple[str, tuple[str, ...], str]:
        """Read a word, the path behind it, and the operator."""
        word = self._take(_WORD).lower()
        path: list[str] = []
        while word == PAYLOAD and self._peek() == ".":
            self._at += 1
            path.append(self._string() if self._peek() == '"' else self._take(_PART))
        operator = self._take(_OPERATOR)
        word = ALIASES.get(word, word)
        if not operator:
            raise self._refused(self._advice())
        if word == PAYLOAD:
            if not path or not all(path):
                raise self._refused("name a field of the payload, as in payload.user.id=42")
        elif word not in WORDS:
            known = [*WORDS, *ALIASES, PAYLOAD]
            raise self._refused(f"there is no word {word!r}; {nearest(word, known)}")
        return word, tuple(path), operator

    def _advice(self) -> str:
        self._at = self._start
        text = self._take(_TERM).lstrip("-").rstrip('"')
        if not text:
            return "a condition is missing behind it"
        if text.lower() in {*WORDS, *ALIASES}:
            return f"a value is missing, as in {text.lower()}:VALUE"
        return f'it is not a condition such as queue:mail; to look for a text write "{text[:40]}"'

    def _value(self, word: str) -> Value:
        began = self._at
        first = self._peek()
        if word == PAYLOAD and first and first in '"[{':
            self._json()
            text = ""
        else:
            text = self._string() if first == '"' else self._take(_BARE)
            if not text and first != '"':
                raise self._refused(f"a value is missing, as in {word}:VALUE")
        return Value(text, self._text[began : self._at])

    def _string(self) -> str:
        found = self._json()
        if not isinstance(found, str):
            raise self._refused("a name in quotes is missing")
        return found

    def _json(self) -> object:
        try:
            found, self._at = _JSON.raw_decode(self._text, self._at)
        except BAD_JSON:
            raise self._refused('a closing " or bracket is missing, or it is not JSON') from None
        return found

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        if found is None:
            return ""
        self._at = found.end()
        return found[0]

    def _refused(self, problem: str) -> InvalidInput:
        written = _TERM.match(self._text, self._start)
        return refusal("" if written is None else written[0], self._start, problem)
