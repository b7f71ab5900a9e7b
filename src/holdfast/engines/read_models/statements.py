"""SQL for the tables of read models: their names and columns are those of a declaration.

Every name was checked: lower case, digits and underscores. It is quoted all the same, since it may
be a word of SQL. Values are never part of the text.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b

from holdfast.model.read_model import ColumnType, ReadModel, Value

from .query import Aggregate, Comparison, Condition, RowQuery

SEARCH_COLUMN = "_search"
"""The column that full-text searches look at; no declared one has such a name."""
_NAME_LIMIT = 63


@dataclass(frozen=True)
class Dialect:
    """In what the SQL of two databases differs."""

    placeholder: str
    types: Mapping[ColumnType, str]
    day: str
    """The day of a time, in UTC, as text."""
    array: bool
    """Whether a list of values is one parameter."""


SQLITE = Dialect(
    placeholder="?",
    types={
        ColumnType.TEXT: "TEXT",
        ColumnType.INTEGER: "INTEGER",
        ColumnType.REAL: "REAL",
        ColumnType.BOOLEAN: "INTEGER",
        ColumnType.TIMESTAMP: "INTEGER",
        ColumnType.JSON: "TEXT",
    },
    day="strftime('%Y-%m-%d', {} / 1000000, 'unixepoch')",
    array=False,
)
POSTGRES = Dialect(
    placeholder="%s",
    types={
        ColumnType.TEXT: 'text COLLATE "C"',  # any scope is found by its beginning
        ColumnType.INTEGER: "bigint",
        ColumnType.REAL: "double precision",
        ColumnType.BOOLEAN: "boolean",
        ColumnType.TIMESTAMP: "timestamptz",
        ColumnType.JSON: "jsonb",
    },
    day="to_char({} AT TIME ZONE 'UTC', 'YYYY-MM-DD')",
    array=True,
)

Bound = tuple[str, list[Value]]
"""A part of a statement, and its values."""


def quoted(name: str) -> str:
    """Return a checked name as SQL."""
    return f'"{name}"'


def column_list(names: Sequence[str]) -> str:
    """Return names of columns, separated by commas."""
    return ", ".join(map(quoted, names))


def columns_of(names: Sequence[str], of: str) -> str:
    """Return columns of a table to read: SQLite takes an unknown name alone for a text."""
    return ", ".join(f"{of}.{quoted(name)}" for name in names)


def definitions(table: ReadModel, dialect: Dialect) -> str:
    """Return the definitions of all columns."""
    return ", ".join(
        f"{quoted(name)} {dialect.types[kind]}{' NOT NULL' if name in table.key else ''}"
        for name, kind in table.columns.items()
    )


def index_name(of: str, index: Sequence[str]) -> str:
    """Return the name of an index; a long one is cut as PostgreSQL would, but stays unique."""
    name = f"{of}_by_{'_'.join(index)}"
    if len(name) <= _NAME_LIMIT:
        return name
    return f"{name[: _NAME_LIMIT - 9]}_{blake2b(name.encode(), digest_size=4).hexdigest()}"


def where(conditions: Sequence[Condition], dialect: Dialect, broad: Collection[str] = ()) -> Bound:
    """Return the conditions on columns, joined, or TRUE.

    Columns of ``broad`` have so many such values that no index of them is to be used (SQLite).
    """
    parts: list[str] = []
    values: list[Value] = []
    mark = dialect.placeholder
    for one in conditions:
        name = f"+{quoted(one.column)}" if one.column in broad else quoted(one.column)
        if one.comparison is Comparison.WITHIN:
            within: list[str] = []
            for path in _listed(one.value):
                # "0" comes after "/": everything below the path sorts between the two.
                within.append(f"{name} = {mark} OR ({name} >= {mark} AND {name} < {mark})")
                values += [path, f"{path}/", f"{path}0"]
            parts.append(f"({' OR '.join(within)})")
        elif one.comparison is Comparison.ONE_OF:
            listed = _listed(one.value)
            if dialect.array:
                parts.append(f"{name} = ANY ({mark})")
                values.append(listed)
            else:
                parts.append(f"{name} IN ({', '.join(mark for _ in listed)})")
                values += listed
        else:
            parts.append(f"{name} {one.comparison.value} {mark}")
            values.append(one.value)
    return " AND ".join(parts) or "TRUE", values


def _listed(value: Value) -> list[Value]:
    return [_scalar(one) for one in value] if isinstance(value, tuple | list) else [value]


def _scalar(value: object) -> Value:
    if isinstance(value, str | int | float | datetime):
        return value
    message = f"a {type(value).__name__} cannot be compared with"
    raise TypeError(message)


def keyset(query: RowQuery, dialect: Dialect) -> Bound:
    """Return the condition for the rows after the last one that was seen."""
    if not query.after:
        return "TRUE", []
    marks = ", ".join(dialect.placeholder for _ in query.order)
    than = "<" if query.descending else ">"
    return f"({column_list(query.order)}) {than} ({marks})", list(query.after)


def ordering(query: RowQuery) -> str:
    """Return the ORDER BY clause, or nothing."""
    if not query.order:
        return ""
    direction = " DESC" if query.descending else ""
    return " ORDER BY " + ", ".join(f"{quoted(name)}{direction}" for name in query.order)


def select(
    table: ReadModel,
    source: str,
    found: Bound,
    query: RowQuery,
    dialect: Dialect,
    broad: Collection[str] = (),
) -> Bound:
    """Return the statement for the rows of a query; ``found`` is its full-text condition.

    For ``broad`` see ``where``.
    """
    conditions, values = where(query.conditions, dialect, broad)
    after, seen = keyset(query, dialect)
    text = (
        f"SELECT {columns_of(list(table.columns), 'shown')} FROM {source} AS shown"
        f" WHERE {conditions} AND {found[0]} AND {after}"
        f"{ordering(query)} LIMIT {dialect.placeholder}"
    )
    return text, [*values, *found[1], *seen, query.limit]


def aggregate(source: str, found: Bound, query: RowQuery, by: Aggregate, dialect: Dialect) -> Bound:
    """Return the statement that counts the rows of a query."""
    conditions, values = where(query.conditions, dialect)
    columns = [quoted(name) for name in by.by]
    if by.day_of:
        columns.append(f"{dialect.day.format(quoted(by.day_of))} AS day")
    listed = "".join(f"{column}, " for column in columns)
    groups = ", ".join(str(number + 1) for number in range(len(columns)))
    grouping = f" GROUP BY {groups}" if columns else ""
    # Days are a series; everything else is a ranking.
    order = (
        f"{groups}" if by.day_of and not by.by else f"count DESC{', ' if columns else ''}{groups}"
    )
    text = (
        f"SELECT {listed}count(*) AS count FROM {source} WHERE {conditions} AND {found[0]}"
        f"{grouping} ORDER BY {order} LIMIT {dialect.placeholder}"
    )
    return text, [*values, *found[1], by.limit]


def kind_of(value: Value) -> ColumnType:
    """Return the type of column that a value of a query belongs to."""
    if isinstance(value, bool):
        return ColumnType.BOOLEAN
    if isinstance(value, int):
        return ColumnType.INTEGER
    if isinstance(value, float):
        return ColumnType.REAL
    return ColumnType.TIMESTAMP if isinstance(value, datetime) else ColumnType.TEXT
