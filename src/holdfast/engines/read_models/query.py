"""What is asked of a read model: conditions, order, full text and counts."""

from __future__ import annotations

import enum

import msgspec

from holdfast.model.errors import InvalidInput
from holdfast.model.read_model import ColumnType, ReadModel, Value

MAX_ROWS = 1_001
"""A page of a thousand, and one more, which tells that there is another page."""


class Comparison(enum.StrEnum):
    """How a column is compared."""

    EQUAL = "="
    AT_LEAST = ">="
    AT_MOST = "<="
    WITHIN = "within"
    """It is this path, or one below it; or of several paths."""
    ONE_OF = "in"


class Condition(msgspec.Struct, frozen=True):
    """A column and what it is compared with; a tuple for ``ONE_OF``, and for several paths."""

    column: str
    comparison: Comparison
    value: Value


class RowQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows, in which order, and how many.

    ``after`` has the values of the ``order`` columns of the last row that was seen.
    """

    conditions: tuple[Condition, ...] = ()
    search: str = ""
    order: tuple[str, ...] = ()
    descending: bool = False
    after: tuple[Value, ...] = ()
    limit: int = 100

    def check(self, table: ReadModel) -> None:
        """Raise ``InvalidInput`` if the table has no such column, or no full text."""
        for name in (*(one.column for one in self.conditions), *self.order):
            if name not in table.columns:
                raise InvalidInput(name, f"{table.name} has no such column")
        if self.search and not table.search:
            raise InvalidInput("search", f"{table.name} has no full text")
        if self.after and len(self.after) != len(self.order):
            raise InvalidInput("after", "it does not belong to this order")
        if not 1 <= self.limit <= MAX_ROWS:
            raise InvalidInput("limit", f"{self.limit} is not from 1 to {MAX_ROWS:,}")


class Aggregate(msgspec.Struct, frozen=True, kw_only=True):
    """Count by these columns; ``day_of`` is a time that is counted by its day in UTC."""

    by: tuple[str, ...] = ()
    day_of: str = ""
    limit: int = 100

    def check(self, table: ReadModel) -> None:
        """Raise ``InvalidInput`` if the table has no such columns."""
        for name in self.by:
            if name not in table.columns:
                raise InvalidInput(name, f"{table.name} has no such column")
        if self.day_of and table.columns.get(self.day_of) is not ColumnType.TIMESTAMP:
            raise InvalidInput("day_of", f"{table.name} has no time {self.day_of!r}")
        if not 1 <= self.limit <= MAX_ROWS:
            raise InvalidInput("limit", f"{self.limit} is not from 1 to {MAX_ROWS:,}")
