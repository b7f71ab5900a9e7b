"""Rows as a projection sees them: read once, changed in memory, written together at the end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from holdfast.model.read_model import ReadModel, Row, RowKey

ReadRows = Callable[[Sequence[RowKey]], Mapping[RowKey, Row]]


class RowBuffer:
    """Implements ``RowWriter``: of several changes to one row only the last is written."""

    def __init__(self, table: ReadModel, read: ReadRows) -> None:
        self._table = table
        self._read = read
        self._known: dict[RowKey, Row | None] = {}
        self._changed: dict[RowKey, Row | None] = {}
        self.missing: set[RowKey] = set()
        """The rows that were looked for, and that the table does not have."""

    def get(self, key: RowKey) -> Row | None:
        """See ``RowWriter.get``."""
        if key not in self._known:
            self._load([key])
        return self._known[key]

    def get_many(self, keys: Collection[RowKey]) -> Mapping[RowKey, Row]:
        """See ``RowWriter.get_many``."""
        self._load([key for key in dict.fromkeys(keys) if key not in self._known])
        return {key: row for key in keys if (row := self._known[key]) is not None}

    def upsert(self, row: Row) -> None:
        """See ``RowWriter.upsert``."""
        row = dict(self._table.check_row(row))
        key = self._table.key_of(row)
        self._known[key] = self._changed[key] = row

    def delete(self, key: RowKey) -> None:
        """See ``RowWriter.delete``."""
        self._known[key] = self._changed[key] = None

    def attempt(self, change: Callable[[], None]) -> Exception | None:
        """See ``RowWriter.attempt``."""
        known, changed = dict(self._known), dict(self._changed)
        try:
            change()
        except Exception as error:  # noqa: BLE001 - it is the answer
            self._known, self._changed = known, changed
            return error
        return None

    def upserts(self) -> list[Row]:
        """Return the rows to store."""
        return [row for row in self._changed.values() if row is not None]

    def deletes(self) -> list[RowKey]:
        """Return the keys of the rows to delete."""
        return [key for key, row in self._changed.items() if row is None]

    def keys(self) -> Collection[RowKey]:
        """Return the keys of all rows that were read or changed."""
        return self._known.keys()

    def _load(self, keys: list[RowKey]) -> None:
        if keys:
            found = self._read(keys)
            for key in keys:
                self._known[key] = found.get(key)
            self.missing.update(key for key in keys if key not in found)
