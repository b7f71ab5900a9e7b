"""A read model: the table that a projection fills, declared the same way for every store."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from .errors import InvalidInput

MAX_COLUMNS = 200
NAME_LIMIT = 40
"""PostgreSQL cuts names at 63 bytes, and generations and indexes add to this one."""
EVENT_ID_COLUMN = "event_id"

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_ENCODE = msgspec.json.Encoder().encode

Value = str | int | float | bool | datetime | Mapping[str, object] | Sequence[object] | None
"""What a column may hold: times as ``datetime`` with a time zone, JSON as mappings and lists."""
Row = Mapping[str, Value]
RowKey = tuple[Value, ...]


class ColumnType(enum.StrEnum):
    """What a column holds."""

    TEXT = "text"
    INTEGER = "integer"
    REAL = "real"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"
    JSON = "json"


class ReadModel(msgspec.Struct, frozen=True, kw_only=True):
    """A table: its columns by name, the ones that identify a row, and what can be found quickly.

    ``indexes`` are lists of columns; ``search`` are text columns that a full-text search looks at.
    """

    name: str
    columns: Mapping[str, ColumnType]
    key: tuple[str, ...]
    indexes: tuple[tuple[str, ...], ...] = ()
    search: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise ``InvalidInput`` naming what is wrong."""
        check_table_name("table", self.name)
        if not self.columns or len(self.columns) > MAX_COLUMNS:
            raise InvalidInput("columns", f"{self.name} needs 1 to {MAX_COLUMNS} columns")
        for column in self.columns:
            check_table_name("columns", column)
        if not self.key:
            raise InvalidInput("key", f"{self.name} needs the columns that identify a row")
        for field, names in (("key", self.key), ("search", self.search)):
            self._check_columns(field, names)
        for index in self.indexes:
            if not index:
                raise InvalidInput("indexes", f"an index of {self.name} has no columns")
            self._check_columns("indexes", index)
        for name in self.key:
            if self.columns[name] in (ColumnType.JSON, ColumnType.REAL):
                problem = f"{name} of {self.name} is {self.columns[name].value}: it cannot be a key"
                raise InvalidInput("key", problem)
        for name in self.search:
            if self.columns[name] is not ColumnType.TEXT:
                raise InvalidInput("search", f"{name} of {self.name} is not text")

    def _check_columns(self, field: str, names: Sequence[str]) -> None:
        for name in names:
            if name not in self.columns:
                known = ", ".join(self.columns)
                raise InvalidInput(field, f"{self.name} has no column {name!r}, only {known}")
        if len(set(names)) != len(names):
            raise InvalidInput(field, f"{self.name} names a column twice")

    def key_of(self, row: Row) -> RowKey:
        """Return the values that identify a row, or raise ``InvalidInput`` if one is missing."""
        for name in self.key:
            if row.get(name) is None:
                raise InvalidInput(name, f"a row of {self.name} has no {name}: it is its key")
        return tuple(row[name] for name in self.key)

    def check_row(self, row: Row) -> Row:
        """Return the row, or raise ``InvalidInput`` if a value is not one of its column."""
        for name, value in row.items():
            kind = self.columns.get(name)
            if kind is None:
                known = ", ".join(self.columns)
                raise InvalidInput(name, f"{self.name} has no column {name!r}, only {known}")
            if value is None:
                continue
            if kind is ColumnType.TEXT and type(value) is str and value.isascii():
                if "\x00" not in value:
                    continue  # what most values are
            elif kind is ColumnType.TIMESTAMP and type(value) is datetime and value.tzinfo:
                continue
            if not _holds(kind, value):
                problem = f"{self.name} holds {kind.value} there, not a {type(value).__name__}"
                raise InvalidInput(name, problem)
            if isinstance(value, datetime) and value.tzinfo is None:
                raise InvalidInput(name, f"{value!r} has no time zone")
            if not _is_storable(value):
                problem = "a NUL character, or an unpaired surrogate, cannot be stored"
                raise InvalidInput(name, problem)
        return row


_TYPES: Mapping[ColumnType, type | tuple[type, ...]] = {
    ColumnType.TEXT: str,
    ColumnType.INTEGER: int,
    ColumnType.REAL: (float, int),
    ColumnType.BOOLEAN: bool,
    ColumnType.TIMESTAMP: datetime,
    ColumnType.JSON: (dict, list, tuple, str, int, float, bool, Mapping),
}


def _holds(kind: ColumnType, value: Value) -> bool:
    if isinstance(value, bool) and kind is not ColumnType.BOOLEAN:
        return kind is ColumnType.JSON  # not a number, though Python says so
    if isinstance(value, int) and kind is ColumnType.INTEGER:
        return -(2**63) <= value < 2**63
    return isinstance(value, _TYPES[kind])


def _is_storable(value: object) -> bool:
    """Whether all text in a value is one that every store can keep."""
    if isinstance(value, str):
        if value.isascii():
            return "\x00" not in value
        try:
            value.encode()
        except UnicodeEncodeError:
            return False
        return "\x00" not in value
    if isinstance(value, dict | list | tuple) and _is_plain(value):
        return True
    if isinstance(value, Mapping):
        return all(_is_storable(name) and _is_storable(one) for name, one in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_storable, value))
    return True


def _is_plain(value: object) -> bool:
    """Whether a value is certainly storable: encoding it once is faster than a look at each part.

    The encoder refuses unpaired surrogates.
    """
    try:
        return b"\\u0000" not in _ENCODE(value)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return False


def check_table_name(field: str, name: str) -> str:
    """Return the name of a table or column, or raise ``InvalidInput``."""
    if type(name) is not str or len(name) > NAME_LIMIT or not _NAME.fullmatch(name):
        problem = f"{name!r} is not 1 to {NAME_LIMIT} of a-z, 0-9 and _, with a letter first"
        raise InvalidInput(field, problem)
    return name


def generation_table(name: str, generation: int) -> str:
    """Return the table that holds one generation of a read model."""
    return f"{name}__g{generation}"
