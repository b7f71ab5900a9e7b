"""The same rows by a plain program: ``python -m bench.event_limits NAME DIRECTORY COUNT``.

It writes with sqlite3 alone, in WAL mode with synchronous=FULL: events with our columns and
indexes and a row of an outbox in one transaction; then it takes the outbox in batches and writes
the table of a projection. It checks nothing, and knows no lease, key, retry or second process.
"""

import json
import sqlite3
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from holdfast.engines.journal.events.statements import schema
from holdfast.model.bigrams import index_terms
from holdfast.model.event import Event, accept_event
from holdfast.projections.chronicle import ENTRIES

from .event_shapes import BATCH, new_events

BULK = 1_000
Figures = dict[str, float]
_EVENT = "INSERT INTO events VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
_UPSERT = """
INSERT INTO books VALUES (?, ?, 1, ?, ?)
ON CONFLICT (book) DO UPDATE SET title = excluded.title, renames = renames + 1,
renamed_by = excluded.renamed_by, renamed_at = excluded.renamed_at
"""
_DECODE = msgspec.json.Decoder(Event).decode


class Plain:
    """A file with events, an outbox and the tables of two projections."""

    def __init__(self, directory: str) -> None:
        Path(directory).mkdir(parents=True)
        path = Path(directory) / "plain.sqlite"
        self._file = sqlite3.connect(path, isolation_level=None)
        self._run("PRAGMA journal_mode = WAL")
        self._run("PRAGMA synchronous = FULL")
        for statement in schema():
            self._run(statement)
        self._run("CREATE TABLE outbox (position INTEGER PRIMARY KEY)")
        self._run(
            "CREATE TABLE books (book TEXT PRIMARY KEY, title, renames, renamed_by,"
            " renamed_at INTEGER)"
        )
        self._run("CREATE INDEX books_by_time ON books (renamed_at)")
        columns = ", ".join(f'"{name}"' for name in ENTRIES.columns)
        self._run(
            f"CREATE TABLE entries (number INTEGER PRIMARY KEY, {columns}, UNIQUE (tenant, id))"
        )
        for number, index in enumerate(ENTRIES.indexes):
            names = ", ".join(f'"{name}"' for name in index)
            self._run(f"CREATE INDEX entries_{number} ON entries ({names})")
        self._run("CREATE VIRTUAL TABLE search USING fts5(terms, content='')")
        marks = ", ".join("?" for _ in range(len(ENTRIES.columns) + 1))
        self._entry = f"INSERT INTO entries VALUES ({marks})"

    def _run(self, statement: str) -> None:
        self._file.execute(statement).fetchall()

    def append(self, first: int, count: int, *, hot: bool = False) -> None:
        """Store this many events and their rows of the outbox in one transaction."""
        now_us = time.time_ns() // 1_000
        rows = []
        for number, new in enumerate(new_events(first, count, hot=hot), start=first + 1):
            event = accept_event(new, str(uuid.uuid4()), now_us, number, 1)
            rows.append(_row(event))
        self._run("BEGIN IMMEDIATE")
        self._file.executemany(_EVENT, rows)
        self._file.executemany("INSERT INTO outbox VALUES (?)", [(row[0],) for row in rows])
        self._run("COMMIT")

    def project(self, write: Callable[[list[Event]], None]) -> int:
        """Apply the next events of the outbox; return how many there were."""
        self._run("BEGIN IMMEDIATE")
        found = self._file.execute(
            "SELECT position, body FROM outbox JOIN events USING (position)"
            " ORDER BY position LIMIT ?",
            (BATCH,),
        ).fetchall()
        write([_DECODE(body) for _position, body in found])
        self._file.executemany(
            "DELETE FROM outbox WHERE position = ?", [(position,) for position, _body in found]
        )
        self._run("COMMIT")
        return len(found)

    def write_books(self, events: list[Event]) -> None:
        """Write the table of books."""
        rows = [(one.entity_id, _title(one), one.actor_id, one.occurred_at_us) for one in events]
        self._file.executemany(_UPSERT, rows)

    def write_chronicle(self, events: list[Event]) -> None:
        """Write the entries, with the indexes and the full text of ours."""
        rows, terms = [], []
        for one in events:
            text = f"{one.actor_name} renamed book {one.entity_id} to {_title(one)}"
            rows.append(_entry(one, text))
            words = f"{text}\n{one.actor_name}\n{one.entity_id}"
            terms.append((one.position, index_terms(words)))
        self._file.executemany(self._entry, rows)
        self._file.executemany("INSERT INTO search (rowid, terms) VALUES (?, ?)", terms)


def _title(event: Event) -> str:
    return str(msgspec.json.decode(event.after or b"{}")["title"])


def _row(event: Event) -> tuple[object, ...]:
    names = ("position", "id", "tenant", "scope", "event_type", "key", "entity_type", "entity_id")
    more = ("actor_type", "actor_id", "request_id", "correlation_id", "occurred_at_us")
    columns = [getattr(event, name) for name in (*names, *more)]
    return (*columns, 1, 0, msgspec.json.encode(event).decode())


def _entry(event: Event, text: str) -> list[object]:
    row: list[object] = [event.position]
    for name in ENTRIES.columns:
        if name == "text":
            row.append(text)
        elif name in ("occurred_at", "created_at"):
            row.append(getattr(event, f"{name}_us"))
        else:
            value = getattr(event, name)
            row.append(value.decode() if isinstance(value, bytes) else value)
    return row


def append(directory: str, count: int) -> Figures:
    """Append in bulk."""
    return _timed("plain_append", count, lambda: _filled(directory, count))


def _filled(directory: str, count: int, *, hot: bool = False) -> Plain:
    plain = Plain(directory)
    for first in range(0, count, BULK):
        plain.append(first, min(BULK, count - first), hot=hot)
    return plain


def project(directory: str, count: int, name: str, *, hot: bool) -> Figures:
    """Project the outbox."""
    plain = _filled(directory, count, hot=hot)
    write = plain.write_books if name == "books" else plain.write_chronicle

    def all_of_it() -> None:
        while plain.project(write):
            pass

    return _timed(f"plain_project_{name}{'_hot' if hot else ''}", count, all_of_it)


def _timed(name: str, count: int, work: Callable[[], object]) -> Figures:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return {
        f"{name}_per_second": count / (time.perf_counter() - wall),
        f"{name}_cpu_us": (time.process_time() - cpu) / count * 1e6,
    }


PARTS: Mapping[str, Callable[[str, int], Figures]] = {
    "append": append,
    "books": lambda directory, count: project(directory, count, "books", hot=False),
    "books_hot": lambda directory, count: project(directory, count, "books", hot=True),
    "chronicle": lambda directory, count: project(directory, count, "chronicle", hot=False),
    "chronicle_hot": lambda directory, count: project(directory, count, "chronicle", hot=True),
}

if __name__ == "__main__":
    print(json.dumps(PARTS[sys.argv[1]](sys.argv[2], int(sys.argv[3]))))
