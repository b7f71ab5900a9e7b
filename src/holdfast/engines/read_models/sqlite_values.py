"""Values of a read model as SQLite holds them: times as microseconds, JSON as text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from holdfast.model.read_model import ColumnType, ReadModel, Row, Value

Stored = str | int | float | None
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_ENCODER = msgspec.json.Encoder(order="deterministic")


def stored(kind: ColumnType, value: Value) -> Stored:
    """Return a value as it is stored."""
    if value is None:
        return None
    if kind is ColumnType.JSON:
        return _ENCODER.encode(value).decode()
    if isinstance(value, datetime):
        return (value - _EPOCH) // _MICROSECOND
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str | int | float):
        return float(value) if kind is ColumnType.REAL else value
    message = f"a {type(value).__name__} cannot be stored"
    raise TypeError(message)  # the row was checked before


def loaded(kind: ColumnType, value: Stored) -> Value:
    """Return a value as it was given."""
    if value is None:
        return None
    if kind is ColumnType.JSON:
        found: Value = msgspec.json.decode(str(value))
        return found
    if kind is ColumnType.TIMESTAMP:
        return _EPOCH + timedelta(microseconds=int(value))
    return bool(value) if kind is ColumnType.BOOLEAN else value


def row_values(table: ReadModel, row: Row) -> list[Stored]:
    """Return the values of all columns, in their order."""
    return [
        value
        if (value := row.get(name)) is None or (type(value) is str and kind is ColumnType.TEXT)
        else stored(kind, value)
        for name, kind in table.columns.items()
    ]


def row_of(table: ReadModel, values: Sequence[Stored]) -> Row:
    """Return a row from the values of all columns."""
    return {
        name: loaded(kind, value)
        for (name, kind), value in zip(table.columns.items(), values, strict=True)
    }
