"""Prints a filter as one line, which ``filter_grammar.compile_filter`` reads as the same filter."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from .filter_words import PAYLOAD, WORDS, WordKind
from .moments import format_moment
from .search import Filter

_BARE = re.compile(r'[^\s,"\\]+')
_BARE_PART = re.compile(r"[\w-]+")
_HIDDEN = frozenset({"age", "died"})
"""Words for which the filter has another one."""


def format_filter(wanted: Filter) -> str:
    """Return the filter as text; an empty text is every job."""
    terms = [*_terms(wanted)]
    terms += [f"-{term}" for one in wanted.without for term in _terms(one)]
    return " ".join(terms)


def _terms(wanted: Filter) -> Iterable[str]:
    for name, (kind, field) in WORDS.items():
        if name in _HIDDEN:
            continue
        if kind is WordKind.NUMBER:
            yield from _range(name, wanted.attempts_from, wanted.attempts_to)
        elif kind is WordKind.TIME:
            first: int | None = getattr(wanted, f"{field}_from_us")
            end: int | None = getattr(wanted, f"{field}_to_us")
            yield from _period(name, first, end)
        elif kind is WordKind.ONE:
            text: str | None = getattr(wanted, field)
            if text is not None:
                yield f"{name}:{_value(text)}"
        else:
            values: tuple[str | int, ...] = getattr(wanted, field)
            if kind is WordKind.STATUS_CODES:
                values = tuple(code or "none" for code in values)
            if values:
                yield f"{name}:{','.join(_value(str(value)) for value in values)}"
    for condition in wanted.payload:
        path = ".".join([PAYLOAD, *map(_part, condition.path)])
        yield f"{path}={','.join(condition.values)}"


def _range(name: str, least: int | None, below: int | None) -> Iterable[str]:
    if least is not None and below is not None:
        if below == least + 1:
            yield f"{name}:{least}"
        else:
            yield f"{name}:{least}-{below - 1}" if below else f"{name}:{least}..{below}"
    elif least is not None:
        yield f"{name}>={least}"
    elif below is not None:
        yield f"{name}<{below}"


def _period(name: str, from_us: int | None, to_us: int | None) -> Iterable[str]:
    if from_us is not None and to_us is not None:
        yield f"{name}:{format_moment(from_us)}..{format_moment(to_us)}"
    elif from_us is not None:
        yield f"{name}>={format_moment(from_us)}"
    elif to_us is not None:
        yield f"{name}<{format_moment(to_us)}"


def _value(text: str) -> str:
    return text if _BARE.fullmatch(text) else _quoted(text)


def _part(text: str) -> str:
    return text if _BARE_PART.fullmatch(text) else _quoted(text)


def _quoted(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:  # an unpaired surrogate
        return json.dumps(text)
    return json.dumps(text, ensure_ascii=False)
