"""Full text of a read model: the terms of a row, and a query in the words of each database."""

from __future__ import annotations

from holdfast.model.bigrams import index_terms, query_phrases
from holdfast.model.errors import InvalidInput
from holdfast.model.read_model import ReadModel, Row

_MAX_POSITION = 16_383
"""PostgreSQL knows no higher ones."""
_MAX_TERMS = 20_000
_MAX_BYTES = 900_000
"""Of the terms of one row: a tsvector holds a megabyte."""


def terms_of(table: ReadModel, row: Row) -> str:
    """Return the terms by which a row is found."""
    texts = (row.get(name) for name in table.search)
    return index_terms("\n".join(text for text in texts if isinstance(text, str)))


def match_expression(search: str) -> str:
    """Return the query for FTS5: every phrase must be there."""
    phrases = query_phrases(search)
    if not phrases:
        raise InvalidInput("search", f"{search[:60]!r} has no word to look for")
    return " AND ".join(
        f'"{" ".join(phrase.terms)}"{" *" if phrase.prefix else ""}' for phrase in phrases
    )


def tsquery(search: str) -> str:
    """Return the query for PostgreSQL: every phrase must be there."""
    phrases = query_phrases(search)
    if not phrases:
        raise InvalidInput("search", f"{search[:60]!r} has no word to look for")
    return " & ".join(
        "("
        + " <-> ".join(f"'{term}'{':*' if phrase.prefix else ''}" for term in phrase.terms)
        + ")"
        for phrase in phrases
    )


def tsvector(terms: str) -> str:
    """Return terms as the text of a tsvector: this does not depend on the server's locale."""
    places: dict[str, list[str]] = {}
    room = _MAX_BYTES
    fits = 4 * len(terms) <= room  # a character has four bytes at most
    for number, term in enumerate(terms.split()[:_MAX_TERMS]):
        if not fits:
            room -= 0 if term in places else len(term.encode())
            if room < 0:
                break
        if number < _MAX_POSITION:
            places.setdefault(term, []).append(str(number + 1))
        else:
            places.setdefault(term, [])
    return " ".join(
        f"'{term}':{','.join(found)}" if found else f"'{term}'" for term, found in places.items()
    )
