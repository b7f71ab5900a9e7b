"""Verbs as conversations: they ask the database, are told the rows, and go on.

A verb is a generator: it knows statements and rows, not connections. So the same verb runs on the
engine's own connections and in a transaction of the caller's, whatever driver that has.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")

Row: TypeAlias = tuple[Any, ...]
"""As the driver returns it; ``rows`` says what is in it."""


class Statement(NamedTuple):
    """A statement, by name, and what goes into it."""

    name: str
    parameters: Mapping[str, object]


class StatementBatch(NamedTuple):
    """Statements that go out together, in this order. After the ``last`` ones it is committed.

    An iterator makes them while the server is at work on those before. What it raises is raised,
    and nothing was done.
    """

    asks: Sequence[Statement] | Iterator[Statement]
    last: bool = False


SansIO: TypeAlias = Generator[StatementBatch, list[list[Row]], T]
"""Asks, is told the rows of each statement, and returns its answer."""


def execute(name: str, /, **parameters: object) -> SansIO[list[Row]]:
    """Ask one thing; return its rows."""
    [rows] = yield StatementBatch([Statement(name, parameters)])
    return rows


def execute_last(*asks: Statement) -> SansIO[list[list[Row]]]:
    """Ask for the last time in this transaction."""
    return (yield StatementBatch(asks, last=True))


def execute_all(*asks: Statement) -> SansIO[list[list[Row]]]:
    """Ask several things at once; return the rows of each."""
    if not asks:
        return []
    return (yield StatementBatch(asks))
