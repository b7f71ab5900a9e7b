"""Checks the whole store: pages, rows, counts, and the chain of the audit."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import TypeVar

import msgspec

from holdfast.model.audit import AuditHead, follows, head_of
from holdfast.model.errors import CorruptHistory
from holdfast.model.job import Job

from .database import SQLITE_FAILURES, full_check
from .rows import (
    ATTEMPTS,
    AUDIT,
    DEAD_BODIES,
    DONE_BODIES,
    NOTES,
    BodyReader,
    dead_row,
    done_columns,
    kind_of,
    shape_of,
)
from .statements import ask, statement
from .store import SqliteHistory

T = TypeVar("T")

MOST_PROBLEMS = 100
_STEP = 2_000
_RECOUNTS = {
    "recount_tallies": "tallies",
    "recount_kinds": "kinds",
    "recount_groups": "groups",
    "recount_group_tenants": "group_tenants",
    "recount_group_scopes": "group_scopes",
    "recount_group_hours": "group_hours",
    "recount_bodies": "dead_bodies",
    "recount_done_size": "done_size",
}
_ROWS: msgspec.json.Decoder[list[list[object]]] = msgspec.json.Decoder(list[list[object]])


def verify(store: SqliteHistory) -> list[str]:
    """Return everything that is wrong with the store, a sentence each; nothing is changed."""
    found: list[str] = []
    with store.reading() as connection:
        try:
            for problem in _problems(store, connection):
                found.append(problem)
                if len(found) == MOST_PROBLEMS:
                    found.append("there may be more")
                    break
        except SQLITE_FAILURES as error:
            found.append(f"{store.file} cannot be read any further: {error}")
    return found


def _problems(store: SqliteHistory, connection: sqlite3.Connection) -> Iterator[str]:
    for problem in full_check(connection):
        yield f"{store.file}: {problem}"
    yield from _jobs(store, connection, "done", DONE_BODIES)
    yield from _jobs(store, connection, "dead", DEAD_BODIES)
    yield from (
        found[-1] for found in _kept_in(store, connection, "attempts", ATTEMPTS) if found[-1]
    )
    yield from (found[-1] for found in _kept_in(store, connection, "notes", NOTES) if found[-1])
    yield from _audit(store, connection)
    for name, table in _RECOUNTS.items():
        try:
            rows = _ROWS.decode(ask(connection, statement(name)))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            yield f"{store.file}: table {table} is not valid text ({error})"
            continue
        for row in rows:
            yield f"{store.file}: table {table} disagrees with what is there: {row}"


def _jobs(
    store: SqliteHistory, connection: sqlite3.Connection, table: str, bodies: BodyReader[Job]
) -> Iterator[str]:
    """Yield which rows differ from their bodies."""
    for number, row, job, problem in _kept_in(store, connection, table, bodies):
        if job is None:
            yield problem
            continue
        expected: list[object]
        if table == "done":
            expected = done_columns(number, job)
        else:
            # In place of the numbers of kind and shape, what they stand for.
            columns = list(dead_row(number, job, 0, 0))
            expected = [*columns[:4], *kind_of(job), shape_of(job), *columns[6:]]
        if row != expected:
            yield f"{store.file}: table {table} row {number} says {row}, its body {expected}"


def _kept_in(
    store: SqliteHistory, connection: sqlite3.Connection, table: str, bodies: BodyReader[T]
) -> Iterator[tuple[int, list[object], T | None, str]]:
    """Yield each row of a table: number, columns, and the body or what is wrong with it."""
    after = 0
    while True:
        rows = connection.execute(
            statement(f"check_{table}"), {"after": after, "limit": _STEP}
        ).fetchall()
        for number, columns, crc, body in rows:
            try:
                row = _ROWS.decode(b"[" + columns + b"]")[0]
                yield number, row, bodies.one(number, crc, body, store.file), ""
            except (CorruptHistory, msgspec.MsgspecError, UnicodeDecodeError) as error:
                yield number, [], None, str(error)
        if len(rows) < _STEP:
            return
        after = rows[-1][0]


def _audit(store: SqliteHistory, connection: sqlite3.Connection) -> Iterator[str]:
    head: AuditHead | None = None
    for number, _row, record, problem in _kept_in(store, connection, "audit", AUDIT):
        if record is None:
            yield problem
            head = None
            continue
        if head is None:
            # A store that was created anew starts in the middle of the chain.
            head = AuditHead(record.number - 1, record.previous_hash)
        if record.number != number or not follows(head, record):
            yield f"{store.file}: audit record {number} does not follow the one before it"
        head = head_of(record)
