"""The synchronous store of events: feed, read, check. One thread at a time writes."""

from __future__ import annotations

import contextlib
import queue
import sqlite3
from collections.abc import Collection, Iterator, Sequence

import msgspec

from holdfast.engines.embedded.event_store import EventName
from holdfast.engines.journal.history.database import READERS, connect_readers, full_check
from holdfast.engines.journal.history.statements import ask
from holdfast.engines.journal.wal.disk import DatabaseFile
from holdfast.model.access import Caller
from holdfast.model.errors import CorruptEvents
from holdfast.model.event import Event
from holdfast.model.event_search import EVERY_EVENT, EventFilter
from holdfast.model.search import MAX_PAGE

from .database import create, open_intact, read_checkpoint, translated, write_checkpoint
from .rows import columns_of, read_body, read_rows, row_values
from .statements import composed, inserting, statement
from .where_clause import conditions

_ROWS_PER_INSERT = 500
"""Times the columns, this is below the number of parameters that SQLite takes."""
_CHECK_STEP = 1_000
MOST_PROBLEMS = 100
_NAMES = msgspec.json.Decoder(list[tuple[int, str, str]])
_COLUMNS: msgspec.json.Decoder[list[object]] = msgspec.json.Decoder(list[object])


class EventWriter:
    """An open transaction. ``checkpoint`` is the seq up to which all events will be stored."""

    def __init__(self, connection: sqlite3.Connection, checkpoint: int) -> None:
        self.checkpoint = checkpoint
        self._stored = checkpoint
        self._connection = connection

    def insert(self, events: Sequence[Event]) -> None:
        """Add events, by position; those that were stored before are skipped."""
        new = [event for event in events if event.position > self._stored]
        # Many rows in one statement: each statement costs a switch of the interpreter lock.
        for start in range(0, len(new), _ROWS_PER_INSERT):
            some = new[start : start + _ROWS_PER_INSERT]
            self._connection.execute(inserting(len(some)), row_values(some))


class SqliteEvents:
    """Use ``SqliteEvents.open``. The file is created with the first event."""

    def __init__(self, database: DatabaseFile) -> None:
        self.database = database
        self.file = database.file
        self.checkpoint = 0
        """All events up to this seq are stored."""
        self._writer: sqlite3.Connection | None = None
        self._getter: sqlite3.Connection | None = None
        self._readers: queue.SimpleQueue[sqlite3.Connection] = queue.SimpleQueue()
        self.there = False
        """Whether there is a file."""

    def check_reach(self, last_seq: int) -> None:
        """Raise ``CorruptEvents`` if it has events that a log up to this seq cannot have."""
        if self.checkpoint > last_seq:
            problem = f"it goes up to seq {self.checkpoint:,}, the log only to {last_seq:,}"
            raise CorruptEvents(self.file, "", problem)

    @classmethod
    def open(
        cls, database: DatabaseFile, *, expected_seq: int = 0, writes: bool = True
    ) -> SqliteEvents:
        """Open the database, if there is one.

        ``expected_seq`` is up to where the snapshots rely on it. Raise ``EventsMissing``,
        ``CorruptEvents``, ``UnknownFormat`` or ``StorageError``; then nothing was changed.
        """
        store = cls(database)
        try:
            opened = open_intact(database, expected_seq=expected_seq, writes=writes)
            if opened is not None:
                store._begin(*opened)
        except (sqlite3.Error, OSError) as error:
            raise translated(error, database.file) from error
        return store

    def _begin(self, connection: sqlite3.Connection, checkpoint: int) -> None:
        try:
            self._getter, *readers = connect_readers(self.database, 1 + READERS)
        except BaseException:
            connection.close()
            raise
        for reader in readers:
            self._readers.put(reader)
        self._writer, self.checkpoint = connection, checkpoint
        self.there = True

    def _create(self) -> sqlite3.Connection:
        # It may be there: a first try may have failed after it was made.
        made = open_intact(self.database, expected_seq=0, writes=True)
        connection, checkpoint = made or (create(self.database), 0)
        self._begin(connection, checkpoint)
        return connection

    def close(self) -> None:
        """Close the database."""
        if self._getter is not None:
            self._getter.close()
            for _ in range(READERS):
                self._readers.get().close()
        if self._writer is not None:
            self._writer.close()  # last: SQLite then checkpoints its own log

    # --- write -------------------------------------------------------------------------------

    def feed(self, events: Sequence[Event], checkpoint: int) -> None:
        """Store these events up to this seq in one transaction; skip those already stored.

        Raise ``StorageError``; then nothing has changed. Without events, nothing is written: what
        the checkpoint would cover besides is not in here.
        """
        if events:
            with self.writing() as writer:
                writer.insert(events)
                writer.checkpoint = checkpoint

    @contextlib.contextmanager
    def writing(self) -> Iterator[EventWriter]:
        """Within this context, write events; they are committed with its checkpoint at the end."""
        try:
            connection = self._writer or self._create()
            connection.execute("BEGIN IMMEDIATE")
            try:
                writer = EventWriter(connection, read_checkpoint(connection, self.file))
                yield writer
                write_checkpoint(connection, writer.checkpoint)
                self.database.commit(connection)
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                raise
        except (sqlite3.Error, OSError) as error:
            raise translated(error, self.file) from error
        self.checkpoint = writer.checkpoint

    # --- read --------------------------------------------------------------------------------

    def known(self, names: Collection[EventName]) -> list[Event]:
        """Return those of these events that are stored. One caller at a time."""
        if not self.there or self._getter is None or not names:
            return []
        values = {"names": msgspec.json.encode(list(names)).decode()}
        try:
            found = ask(self._getter, statement("read_events"), values)
        except (sqlite3.Error, OSError) as error:
            raise translated(error, self.file) from error
        return read_rows(found, self.file)

    def get(self, names: Collection[EventName]) -> list[Event]:
        """Return those of these events that are stored."""
        with self._reading() as connection:
            if connection is None or not names:
                return []
            values = {"names": msgspec.json.encode(list(names)).decode()}
            return read_rows(ask(connection, statement("read_events"), values), self.file)

    def find(
        self, wanted: EventFilter, caller: Caller, after: int | None, limit: int, *, newest: bool
    ) -> list[Event]:
        """See ``EventStore.find``."""
        found = conditions(wanted, caller)
        with self._reading() as connection:
            if found is None or connection is None:
                return []
            where, values = found
            if after is not None:
                where += " AND position < :after" if newest else " AND position > :after"
                values["after"] = after
            sql = composed("find_events", where, "DESC" if newest else "ASC")
            events = read_rows(ask(connection, sql, {**values, "limit": limit}), self.file)
        return events[::-1] if newest else events

    def count(self, wanted: EventFilter, caller: Caller) -> int:
        """See ``EventStore.count``."""
        found = conditions(wanted, caller)
        with self._reading() as connection:
            if found is None or connection is None:
                return 0
            sql = composed("count_events", found.where)
            return int(connection.execute(sql, found.values).fetchall()[0][0])

    def pages(self, until: int, caller: Caller) -> Iterator[list[Event]]:
        """Yield all events up to this position, page by page."""
        after = 0
        while events := self.find(EVERY_EVENT, caller, after, MAX_PAGE, newest=False):
            after = events[-1].position
            if after >= until:
                yield [event for event in events if event.position <= until]
                return
            yield events

    def names(self, after: int, limit: int) -> tuple[list[EventName], int | None]:
        """Return the names of some events, and where the next ones begin."""
        with self._reading() as connection:
            if connection is None:
                return [], None
            values = {"after": after, "limit": limit}
            rows = _NAMES.decode(ask(connection, statement("list_names"), values))
        names = [(tenant, event_id) for _position, tenant, event_id in rows]
        return names, max(row[0] for row in rows) if rows else None

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """Yield a connection in a read transaction; None as long as there is no file."""
        if not self.there:
            yield None
            return
        connection = self._readers.get()
        try:
            connection.execute("BEGIN")
            yield connection
        except (sqlite3.Error, OSError) as error:
            raise translated(error, self.file) from error
        finally:
            with contextlib.suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("COMMIT")
            self._readers.put(connection)

    # --- check -------------------------------------------------------------------------------

    def verify(self) -> list[str]:
        """Return everything that is wrong with the store, a sentence each; change nothing."""
        found: list[str] = []
        for _event, problem in self.whole():
            if problem:
                found.append(problem)
            if len(found) == MOST_PROBLEMS:
                return [*found, "there may be more"]
        with self._reading() as connection:
            if connection is not None:
                try:
                    found += [f"{self.file}: {problem}" for problem in full_check(connection)]
                except sqlite3.Error as error:
                    found.append(f"{self.file} cannot be read any further: {error}")
        return found

    def whole(self) -> Iterator[tuple[Event | None, str]]:
        """Yield each event, or what is wrong with its row, by position."""
        after = 0
        while True:
            try:
                with self._reading() as connection:
                    rows = [] if connection is None else _check_rows(connection, after)
            except CorruptEvents as error:
                yield None, str(error)
                return
            for position, columns, crc, body in rows:
                after = position
                try:
                    event = read_body(position, crc, body, self.file)
                    row = _COLUMNS.decode(columns)
                except (CorruptEvents, msgspec.MsgspecError, UnicodeDecodeError) as error:
                    yield None, str(error)
                    continue
                if row != columns_of(event):
                    yield event, f"{self.file}: position {position} says {row}, its body otherwise"
                elif position > self.checkpoint:
                    yield event, f"{self.file}: position {position} is beyond its checkpoint"
                else:
                    yield event, ""
            if len(rows) < _CHECK_STEP:
                return


def _check_rows(connection: sqlite3.Connection, after: int) -> list[tuple[int, bytes, int, bytes]]:
    values = {"after": after, "limit": _CHECK_STEP}
    return connection.execute(statement("check_events"), values).fetchall()
