"""One generation of a read model in a SQLite file of its own, which one thread writes.

``applied`` names jobs whose rows are here, but which may not be settled yet: the journal is
another file. A job that comes again is then only settled.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from itertools import chain
from pathlib import Path

import msgspec

from holdfast.engines.ownership import claim_database
from holdfast.model.errors import ChangedMeanwhile, InvalidInput, StorageError
from holdfast.model.read_model import ColumnType, ReadModel, Row, RowKey, Value

from . import statements
from .contract import Fill, FillPosition, JobName, RowWriter, TableDigest
from .full_text import match_expression, terms_of
from .query import Aggregate, Comparison, RowQuery
from .row_buffer import RowBuffer
from .sqlite_values import Stored, loaded, row_of, row_values, stored
from .statements import SQLITE, Bound, column_list, columns_of, quoted

APPLICATION_ID = 0x4846524D
"""Identifies the file as ours: HFRM."""
_ROWS, _SEARCH, _NUMBER = "rows", "search", "_row"
_NOTE_APPLIED = "INSERT OR IGNORE INTO applied VALUES (?, ?)"
_CHUNK = 200
_MANY_ROWS = 5_000
"""From so many rows on a path is broad: see ``_broad``."""
"""How many rows one statement reads: SQLite allows so many values."""
_SETUP = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    f"PRAGMA application_id = {APPLICATION_ID}",
    """
    CREATE TABLE IF NOT EXISTS applied (tenant TEXT, id TEXT, PRIMARY KEY (tenant, id))
    WITHOUT ROWID
    """,
    "CREATE TABLE IF NOT EXISTS position (one INTEGER PRIMARY KEY CHECK (one = 1), record TEXT)",
)


class SqliteFile:
    """Opened by ``create``, or to read. Every error of SQLite is a ``StorageError``."""

    def __init__(self, path: str, table: ReadModel, *, writes: bool = True) -> None:
        self._path = path
        self.table = table
        self._connection = self._connect(writes=writes)
        self._noted: int | None = None
        """How many jobs ``applied`` names, if that is known."""

    def _connect(self, *, writes: bool) -> sqlite3.Connection:
        uri = self._path if self._path == ":memory:" else f"file:{_uri(self._path)}"
        if not writes:
            uri += "?mode=ro"
        try:
            if self._path != ":memory:":
                claim_database(Path(self._path), create=writes)
            connection = sqlite3.connect(
                uri, uri=True, isolation_level=None, check_same_thread=False
            )
            try:
                connection.execute("PRAGMA busy_timeout = 5000")
                if writes:
                    for setup in _SETUP:
                        connection.execute(setup)
            except BaseException:
                connection.close()
                raise
        except (sqlite3.Error, OSError) as error:
            raise StorageError(f"{self._path} cannot be opened: {error}") from error
        return connection

    # --- its shape ---------------------------------------------------------------------------

    def create(self) -> None:
        """Make the table, or add the columns and indexes that it lacks."""
        table = self.table
        with self._transaction() as connection:
            known = {
                name: kind
                for _number, name, kind, *_rest in connection.execute(f"PRAGMA table_info({_ROWS})")
            }
            if not known:
                connection.execute(
                    f"CREATE TABLE {_ROWS} ({_NUMBER} INTEGER PRIMARY KEY,"
                    f" {statements.definitions(table, SQLITE)}, UNIQUE ({column_list(table.key)}))"
                )
            for name, kind in table.columns.items():
                wanted = SQLITE.types[kind]
                if known and name not in known:
                    connection.execute(f"ALTER TABLE {_ROWS} ADD COLUMN {quoted(name)} {wanted}")
                elif known and known[name] != wanted:
                    problem = f"{name} of {table.name} is {known[name]}: rebuild it to change that"
                    raise InvalidInput("columns", problem)
            for index in table.indexes:
                name = statements.index_name(_ROWS, index)
                connection.execute(
                    f"CREATE INDEX IF NOT EXISTS {quoted(name)} ON {_ROWS} ({column_list(index)})"
                )
            if table.search:
                connection.execute(
                    f"CREATE VIRTUAL TABLE IF NOT EXISTS {_SEARCH} USING fts5(terms, content='')"
                )

    def truncate(self, position: FillPosition) -> None:
        """Delete all rows for a rebuild, and store that it begins here."""
        with self._transaction() as connection:
            for name in (_ROWS, "applied"):
                connection.execute(f"DELETE FROM {name}")
            self._noted = 0
            self._put_position(connection, position)
            if self.table.search:
                connection.execute(f"INSERT INTO {_SEARCH} ({_SEARCH}) VALUES ('delete-all')")

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    # --- write -------------------------------------------------------------------------------

    def applied(self, jobs: Collection[JobName]) -> set[JobName]:
        """Return those of these jobs whose rows are here."""
        if self._noted == 0:
            return set()
        found: set[JobName] = set()
        with self._errors():
            for chunk, these in _chunks(jobs):
                text = f"SELECT tenant, id FROM applied WHERE {these}"
                found.update(self._connection.execute(text, chunk))
        return found

    def apply(
        self,
        change: Callable[[RowWriter], None],
        applied: Collection[JobName],
        settled: Collection[JobName],
    ) -> None:
        """Change rows, and note the jobs that they come from.

        ``settled`` are jobs of earlier calls that are known to be settled: they are forgotten.
        """
        with self._transaction() as connection:
            rows = RowBuffer(self.table, self._read)
            change(rows)
            self._write(connection, rows.upserts(), rows.deletes())
            self._forget(connection, settled)
            self._note(connection, applied)

    def fill(self, fill: Fill, expected: FillPosition | None) -> None:
        """Change rows, and store how far the rebuild has come."""
        with self._transaction() as connection:
            if self.position() != expected:
                raise ChangedMeanwhile("rebuild", "" if expected is None else expected.rebuild)
            rows = RowBuffer(self.table, self._read)
            filled = fill(rows)
            self._write(connection, rows.upserts(), rows.deletes())
            self._note(connection, filled.covered)
            self._put_position(connection, filled.position)

    def _note(self, connection: sqlite3.Connection, jobs: Collection[JobName]) -> None:
        """Note jobs whose rows are stored with this transaction."""
        new = connection.executemany(_NOTE_APPLIED, jobs).rowcount if jobs else 0
        if self._noted is not None:
            self._noted += new

    def _forget(self, connection: sqlite3.Connection, jobs: Collection[JobName]) -> None:
        """Forget jobs that are settled."""
        if self._noted is None:
            self._noted = connection.execute("SELECT count(*) FROM applied").fetchone()[0]
        for chunk, these in _chunks(jobs):
            deleted = connection.execute(f"DELETE FROM applied WHERE {these}", chunk)
            self._noted -= deleted.rowcount

    def _put_position(self, connection: sqlite3.Connection, position: FillPosition) -> None:
        record = msgspec.json.encode(position).decode()
        connection.execute("INSERT OR REPLACE INTO position VALUES (1, ?)", [record])

    def _write(
        self, connection: sqlite3.Connection, upserts: Sequence[Row], deletes: Sequence[RowKey]
    ) -> None:
        table = self.table
        numbers: list[int | None] = [None] * len(upserts)
        if table.search:
            keys = [*map(table.key_of, upserts), *deletes]
            numbers = self._replace_terms(connection, keys, upserts)
        key = " AND ".join(f"{quoted(name)} = ?" for name in table.key)
        connection.executemany(
            f"DELETE FROM {_ROWS} WHERE {key}", [self._key_values(one) for one in deletes]
        )
        marks = ", ".join("?" for _ in (_NUMBER, *table.columns))
        others = [name for name in table.columns if name not in table.key]
        changes = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in others)
        statement = (
            f"INSERT INTO {_ROWS} ({column_list([_NUMBER, *table.columns])}) VALUES ({marks})"
            f" ON CONFLICT ({column_list(table.key)})"
            f" DO {f'UPDATE SET {changes}' if others else 'NOTHING'}"
        )
        connection.executemany(
            statement,
            [
                [number, *row_values(table, row)]
                for number, row in zip(numbers, upserts, strict=True)
            ],
        )

    def _replace_terms(
        self, connection: sqlite3.Connection, keys: Sequence[RowKey], upserts: Sequence[Row]
    ) -> list[int | None]:
        """Replace the terms of rows that change; return the numbers for those that are new.

        ``keys`` are those of ``upserts``, then others that are deleted.
        """
        table = self.table
        found = self._numbered(keys)
        connection.executemany(
            f"INSERT INTO {_SEARCH} ({_SEARCH}, rowid, terms) VALUES ('delete', ?, ?)",
            [(number, terms_of(table, old)) for number, old in found],
        )
        known = {table.key_of(old): number for number, old in found}
        [last] = connection.execute(f"SELECT coalesce(max({_NUMBER}), 0) FROM {_ROWS}").fetchone()
        new: list[int | None] = []
        terms: list[tuple[int, str]] = []
        for key, row in zip(keys, upserts, strict=False):
            number = known.get(key)
            if number is None:
                last += 1
            new.append(last if number is None else None)  # a row that is there keeps its number
            terms.append((last if number is None else number, terms_of(table, row)))
        connection.executemany(f"INSERT INTO {_SEARCH} (rowid, terms) VALUES (?, ?)", terms)
        return new

    # --- read --------------------------------------------------------------------------------

    def position(self) -> FillPosition | None:
        """Return how far the rebuild has come."""
        with self._errors():
            found = self._connection.execute("SELECT record FROM position").fetchone()
        return None if found is None else msgspec.json.decode(found[0], type=FillPosition)

    def select(self, query: RowQuery) -> list[Row]:
        """Return the rows that a query finds."""
        query.check(self.table)
        found = self._found(query.search)
        broad = self._broad(query)
        text, values = statements.select(self.table, _ROWS, found, query, SQLITE, broad)
        return [row_of(self.table, one) for one in self._fetch(text, values)]

    def aggregate(self, query: RowQuery, by: Aggregate) -> list[Row]:
        """Count the rows that a query finds."""
        query.check(self.table)
        by.check(self.table)
        text, values = statements.aggregate(_ROWS, self._found(query.search), query, by, SQLITE)
        kinds = {name: self.table.columns[name] for name in by.by}
        kinds |= {"day": ColumnType.TEXT} if by.day_of else {}
        kinds["count"] = ColumnType.INTEGER
        return [
            {
                name: loaded(kind, value)
                for (name, kind), value in zip(kinds.items(), one, strict=True)
            }
            for one in self._fetch(text, values)
        ]

    def digest(self) -> TableDigest:
        """Count and hash all rows."""
        count = total = 0
        columns = columns_of(sorted(self.table.columns), _ROWS)
        with self._errors():
            for row in self._connection.execute(f"SELECT {columns} FROM {_ROWS}"):
                count += 1
                encoded = blake2b(msgspec.json.encode(row), digest_size=8).digest()
                total += int.from_bytes(encoded, "big")
        return TableDigest(count, f"{total % 2**64:016x}")

    def _broad(self, query: RowQuery) -> list[str]:
        """Return the columns whose paths match so many rows that sorting them would take long.

        Those rows are found soon in the order of the query; of few rows the opposite is true.
        """
        if query.search or not query.order:
            return []
        broad: list[str] = []
        for one in query.conditions:
            if one.comparison is Comparison.WITHIN:
                condition, values = statements.where([one], SQLITE)
                some = f"SELECT 1 FROM {_ROWS} WHERE {condition} LIMIT {_MANY_ROWS}"
                [[count]] = self._fetch(f"SELECT count(*) FROM ({some})", values)
                if count == _MANY_ROWS:
                    broad.append(one.column)
        return broad

    def _found(self, search: str) -> Bound:
        if not search:
            return "TRUE", []
        found = f"{_NUMBER} IN (SELECT rowid FROM {_SEARCH} WHERE {_SEARCH} MATCH ?)"
        return found, [match_expression(search)]

    def _fetch(self, text: str, values: Sequence[Value]) -> list[tuple[Stored, ...]]:
        bound = [stored_value(value) for value in values]
        with self._errors():
            return self._connection.execute(text, bound).fetchall()

    def _read(self, keys: Sequence[RowKey]) -> Mapping[RowKey, Row]:
        return {self.table.key_of(row): row for _number, row in self._numbered(keys)}

    def _numbered(self, keys: Sequence[RowKey]) -> list[tuple[int, Row]]:
        """Return the number of each of these rows that exists, and the row."""
        found: list[tuple[int, Row]] = []
        marks = f"({', '.join('?' for _ in self.table.key)})"
        for start in range(0, len(keys), _CHUNK):
            chunk = keys[start : start + _CHUNK]
            text = (
                f"SELECT {_NUMBER}, {columns_of(list(self.table.columns), _ROWS)} FROM {_ROWS}"
                f" WHERE ({column_list(self.table.key)})"
                f" IN (VALUES {', '.join(marks for _ in chunk)})"
            )
            values = [value for key in chunk for value in self._key_values(key)]
            for number, *row in self._connection.execute(text, values):
                found.append((number, row_of(self.table, row)))
        return found

    def _key_values(self, key: RowKey) -> list[Stored]:
        kinds = (self.table.columns[name] for name in self.table.key)
        return [stored(kind, value) for kind, value in zip(kinds, key, strict=True)]

    # --- transactions ------------------------------------------------------------------------

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._errors():
            self._connection.execute("BEGIN IMMEDIATE")
        try:
            with self._errors():
                yield self._connection
                self._connection.execute("COMMIT")
        except BaseException:
            self._noted = None
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            advice = ""
            if str(error).startswith("no such column"):
                advice = "; start a worker, which adds columns, or rebuild it"
            raise StorageError(f"{self._path}: {error}{advice}") from error


def _chunks(jobs: Collection[JobName]) -> Iterator[tuple[list[str], str]]:
    """Yield some of these jobs at a time as values, and the condition that names them."""
    names = list(jobs)
    for start in range(0, len(names), _CHUNK):
        chunk = names[start : start + _CHUNK]
        marks = ", ".join("(?, ?)" for _ in chunk)
        yield list(chain.from_iterable(chunk)), f"(tenant, id) IN (VALUES {marks})"


def stored_value(value: Value) -> Stored:
    """Return a value of a query as it is stored: its type tells what it is."""
    return stored(statements.kind_of(value), value)


def _uri(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
