"""Verbs without I/O: generators that yield statements and are sent the rows.

A verb knows statements and rows, not connections. So the same verb runs on the engine's own
connections and in a transaction of the caller's, with either driver.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")

Row: TypeAlias = tuple[Any, ...]
"""A row as the driver returns it; see ``rows`` for those of jobs."""


class Statement(NamedTuple):
    """A statement, by the name of its file, and its parameters."""

    name: str
    parameters: Mapping[str, object]


class StatementBatch(NamedTuple):
    """Statements that are sent together, in this order; ``last`` ones are followed by the commit.

    An iterator builds them while the server runs the earlier ones. If it raises, nothing is done.
    """

    statements: Sequence[Statement] | Iterator[Statement]
    last: bool = False


SansIO: TypeAlias = Generator[StatementBatch, list[list[Row]], T]
"""Yields statements, is sent the rows of each, and returns its result."""


def execute(name: str, /, **parameters: object) -> SansIO[list[Row]]:
    """Execute one statement; return its rows."""
    [rows] = yield StatementBatch([Statement(name, parameters)])
    return rows


def execute_and_commit(*statements: Statement) -> SansIO[list[list[Row]]]:
    """Execute the last statements of a transaction; return the rows of each."""
    return (yield StatementBatch(statements, last=True))


def execute_all(*statements: Statement) -> SansIO[list[list[Row]]]:
    """Execute statements together; return the rows of each."""
    if not statements:
        return []
    return (yield StatementBatch(statements))
