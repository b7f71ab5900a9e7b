"""Creates and opens the database of events, and its checkpoint."""

from __future__ import annotations

import sqlite3
from zlib import crc32

from holdfast.engines.journal.history import database as shared
from holdfast.engines.journal.history.database import QUICK_CHECK_BYTES, connect, quick_check
from holdfast.engines.journal.wal.disk import DatabaseFile
from holdfast.model.errors import (
    CorruptEvents,
    CorruptHistory,
    EventsMissing,
    HoldfastError,
    UnknownFormat,
)

from .statements import schema, statement

APPLICATION_ID = 0x48464556
"""Identifies the file as ours: HFEV."""
SCHEMA_VERSION = 1


def create(database: DatabaseFile) -> sqlite3.Connection:
    """Create the database, and return the writing connection."""
    connection = connect(database, writes=True)
    try:
        connection.execute("BEGIN IMMEDIATE")
        for one in schema():
            connection.execute(one)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        write_checkpoint(connection, 0)
        database.commit(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def open_intact(
    database: DatabaseFile, *, expected_seq: int, writes: bool
) -> tuple[sqlite3.Connection, int] | None:
    """Return a connection to an intact database, and its checkpoint; None if it has no content.

    ``expected_seq`` is up to where the snapshots rely on it. Raise ``EventsMissing``,
    ``CorruptEvents`` or ``UnknownFormat``.
    """
    connection, seq = None, None
    if database.exists():
        connection = connect(database, writes=writes)
        try:
            if not shared.is_empty(connection):  # else a process ended while creating it
                _check_format(database, connection)
                seq = read_checkpoint(connection, database.file)
        except BaseException:
            connection.close()
            raise
    if connection is not None and seq is not None and seq >= expected_seq:
        return connection, seq
    if connection is not None:
        connection.close()
    if expected_seq:
        raise EventsMissing(database.file, seq, expected_seq)
    return None


def read_checkpoint(connection: sqlite3.Connection, file: str) -> int:
    """Return the seq up to which the store is complete, or raise ``CorruptEvents``."""
    rows: list[tuple[object, ...]] = connection.execute(statement("read_checkpoint")).fetchall()
    if len(rows) != 1:
        raise CorruptEvents(file, "", "its checkpoint is not there")
    seq, crc = rows[0]
    if not isinstance(seq, int) or crc != _crc(seq):
        raise CorruptEvents(file, "", "the checksum of its checkpoint is wrong")
    return seq


def write_checkpoint(connection: sqlite3.Connection, seq: int) -> None:
    """Write the checkpoint, in the open transaction."""
    connection.execute(statement("write_checkpoint"), {"seq": seq, "crc": _crc(seq)})


def translated(error: Exception, file: str) -> HoldfastError:
    """Return an error of SQLite or the disk as one of Holdfast's own."""
    found = shared.translated(error, file)
    if isinstance(found, CorruptHistory):
        return CorruptEvents(file, "", found.problem)
    return found


def _check_format(database: DatabaseFile, connection: sqlite3.Connection) -> None:
    application_id = shared.pragma(connection, "application_id")
    if application_id != APPLICATION_ID:
        problem = f"it belongs to another program (its application_id is {application_id:#x})"
        raise CorruptEvents(database.file, "", problem)
    version = shared.pragma(connection, "user_version")
    if version > SCHEMA_VERSION:
        raise UnknownFormat(database.file, "schema version", version, SCHEMA_VERSION)
    if version < 1:
        raise CorruptEvents(database.file, "", f"there is no schema version {version}")
    if database.size() <= QUICK_CHECK_BYTES:
        for problem in quick_check(connection):
            raise CorruptEvents(database.file, "", problem)


def _crc(seq: int) -> int:
    return crc32(f"{seq}".encode())
