"""Rows of a read model: read and locked by key, written together, hashed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec
import psycopg
from psycopg import errors as pg

from holdfast.engines.postgres.connection.arrays import literal
from holdfast.engines.postgres.connection.sansio import Row as StoredRow
from holdfast.engines.postgres.errors import first_line
from holdfast.engines.read_models.contract import TableDigest
from holdfast.engines.read_models.full_text import terms_of, tsvector
from holdfast.engines.read_models.row_buffer import RowBuffer
from holdfast.engines.read_models.statements import (
    POSTGRES,
    SEARCH_COLUMN,
    column_list,
    quoted,
)
from holdfast.model.errors import InvalidInput
from holdfast.model.read_model import ColumnType, ReadModel, Row, RowKey, Value

from .sessions import Conflict, Session

_UNSTORABLE = (psycopg.DataError, pg.ProgramLimitExceeded)


class TableRows:
    """The rows of one table, within one transaction."""

    def __init__(self, session: Session, table: ReadModel, source: str) -> None:
        """Take the table as it is declared, and its name in SQL."""
        self._session = session
        self._table = table
        self._source = source
        self.error: Exception | None = None
        """Why rows could not be read: the code that asked for them may have hidden it."""

    def read(self, keys: Sequence[RowKey]) -> Mapping[RowKey, Row]:
        """Return those of these rows that exist, and lock them against other transactions."""
        table = self._table
        columns = [
            _parameters(table.columns[name], [key[place] for key in keys])
            for place, name in enumerate(table.key)
        ]
        wanted = [f"k{place}" for place in range(len(table.key))]
        same = " AND ".join(
            f"t.{quoted(name)} = k.{one}" for name, one in zip(table.key, wanted, strict=True)
        )
        names = ", ".join(f"t.{quoted(name)}" for name in table.columns)
        order = ", ".join(f"t.{quoted(name)}" for name in table.key)
        text = (
            f"SELECT {names} FROM {self._source} AS t"
            f" JOIN unnest({_arrays(table, table.key)}) AS k ({', '.join(wanted)}) ON {same}"
            f" ORDER BY {order} FOR UPDATE OF t"
        )
        try:
            found = self._session.execute(text, list(map(literal, columns))).fetchall()
        except Exception as error:
            self.error = error
            raise
        rows = (row_of(table, one) for one in found)
        return {table.key_of(row): row for row in rows}

    def write(self, rows: RowBuffer) -> None:
        """Store what was changed, in the order of the keys.

        Raise ``Conflict`` if a row was looked for, not found, and exists by now; ``InvalidInput``
        if the server cannot store a value.
        """
        table = self._table
        upserts = {table.key_of(row): row for row in rows.upserts()}
        new = sorted(key for key in upserts if key in rows.missing)
        others = sorted(key for key in upserts if key not in rows.missing)
        try:
            self._delete(sorted(rows.deletes()))
            if self._insert([upserts[key] for key in new], "NOTHING") < len(new):
                raise Conflict(f"{table.name}: a row that was not there was added meanwhile")
            columns = [name for name in table.columns if name not in table.key]
            changes = ", ".join(
                f"{quoted(name)} = excluded.{quoted(name)}"
                for name in [*columns, *([SEARCH_COLUMN] if table.search else [])]
            )
            self._insert(
                [upserts[key] for key in others], f"UPDATE SET {changes}" if changes else "NOTHING"
            )
        except _UNSTORABLE as error:
            raise InvalidInput(
                "row", f"{table.name} cannot store it: {first_line(error)}"
            ) from error

    def _insert(self, rows: Sequence[Row], on_conflict: str) -> int:
        if not rows:
            return 0
        table = self._table
        names = list(table.columns)
        values: list[str] = [
            literal(_parameters(kind, [row.get(name) for row in rows]))
            for name, kind in table.columns.items()
        ]
        arrays = _arrays(table, names)
        if table.search:
            names.append(SEARCH_COLUMN)
            arrays += ", %s::tsvector[]"
            values.append(literal([tsvector(terms_of(table, row)) for row in rows]))
        text = (
            f"INSERT INTO {self._source} ({column_list(names)})"
            f" SELECT * FROM unnest({arrays})"
            f" ON CONFLICT ({column_list(table.key)}) DO {on_conflict}"
        )
        return self._session.execute(text, values).rowcount

    def _delete(self, keys: Sequence[RowKey]) -> None:
        if not keys:
            return
        table = self._table
        text = (
            f"DELETE FROM {self._source} WHERE ({column_list(table.key)})"
            f" IN (SELECT * FROM unnest({_arrays(table, table.key)}))"
        )
        columns = [
            literal(_parameters(table.columns[name], [key[place] for key in keys]))
            for place, name in enumerate(table.key)
        ]
        self._session.execute(text, columns)

    def digest(self) -> TableDigest:
        """Count and hash all rows; nothing in it depends on the settings of the session."""
        columns = ", ".join(
            _HASHED.get(self._table.columns[name], "{}").format(quoted(name))
            for name in sorted(self._table.columns)
        )
        text = (
            f"SELECT count(*), coalesce(sum(hashtextextended(ROW({columns})::text"
            f' COLLATE "C", 0)::numeric), 0) FROM {self._source}'
        )
        [[count, total]] = self._session.execute(text).fetchall()
        return TableDigest(count, f"{int(total) % 2**64:016x}")


_HASHED = {
    ColumnType.TIMESTAMP: "holdfast.us_of({})",
    ColumnType.REAL: "float8send({})",
}
"""How a column is hashed whose text depends on settings."""


def _arrays(table: ReadModel, names: Sequence[str]) -> str:
    """Return a parameter for each of these columns: its values as an array."""
    types = (POSTGRES.types[table.columns[name]].partition(" COLLATE")[0] for name in names)
    return ", ".join(f"%s::{kind}[]" for kind in types)


def _parameters(kind: ColumnType, values: Sequence[Value]) -> Sequence[object]:
    """Return values of one column as items of an array literal."""
    if kind not in _CONVERTED and _PLAIN.issuperset(map(type, values)):
        return values
    return [_parameter(kind, value) for value in values]


_CONVERTED = frozenset({ColumnType.JSON, ColumnType.REAL, ColumnType.TIMESTAMP})
"""Columns whose values are written differently from what they are."""
_PLAIN = frozenset({str, int, float, bool, type(None)})


def _parameter(kind: ColumnType, value: Value) -> str | int | float | bool | None:
    """Return a value as an item of an array literal."""
    if value is None:
        return None
    if kind is ColumnType.JSON:
        return msgspec.json.encode(value).decode()
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, str | int | float):
        return float(value) if kind is ColumnType.REAL else value
    message = f"a {type(value).__name__} cannot be stored"
    raise TypeError(message)  # the row was checked before


def row_of(table: ReadModel, values: StoredRow) -> Row:
    """Return a row from the values of all columns."""
    return dict(zip(table.columns, map(loaded, values), strict=True))


def loaded(value: Value) -> Value:
    """Return a value as it was given: times in UTC."""
    return value.astimezone(UTC) if isinstance(value, datetime) else value
