"""Opens the database: creates a new one, refuses a damaged one; its checkpoint and errors."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
import weakref
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from holdfast.engines.journal.wal.disk import (
    CANNOT_GROW,
    DatabaseFile,
    LocalDatabaseFile,
    remedy,
)
from holdfast.engines.structured_log import StructuredLog
from holdfast.model.errors import (
    CorruptHistory,
    HistoryMissing,
    HoldfastError,
    InvariantViolation,
    StorageError,
    StorageFull,
    UnknownFormat,
)

from .statements import run, schema, statement

log = StructuredLog("holdfast.journal")

APPLICATION_ID = 0x48464344
"""Identifies the file as ours: HFCD."""
SCHEMA_VERSION = 3
"""Version 2 knows how many bytes the finished jobs have; version 3 the task and the HTTP status of
each group of failures, and lists dead jobs in more orders."""
_STEPS = {
    1: ("schema/024_done_size", "schema/025_measure_done"),
    2: (
        *("upgrade/rename_kinds", "schema/040_kinds", "upgrade/keep_kinds", "upgrade/add_kinds"),
        *("upgrade/renumber_kinds", "upgrade/drop_old_kinds", "upgrade/drop_groups"),
        *("upgrade/drop_group_tenants", "upgrade/drop_group_scopes"),
        *("schema/090_groups", "schema/091_group_tenants", "schema/092_group_scopes"),
        *("schema/093_group_hours", "upgrade/fill_groups", "upgrade/fill_group_tenants"),
        *("upgrade/fill_group_scopes", "upgrade/fill_group_hours"),
        *("schema/037_dead_by_finish", "schema/038_dead_by_attempt"),
    ),
}
"""The statements that lead from each version to the next."""
QUICK_CHECK_BYTES = 256 * 1024 * 1024
"""Files up to this size are checked completely at every open: it takes about a second."""

READERS = 2
"""How many connections read at once."""

_WRITER_CACHE_KIB = 16 * 1024
_READER_CACHE_KIB = 4 * 1024
_PAGE_BYTES = 8_192
_WAL_PAGES = 4_000
"""After how many changed pages SQLite checkpoints its own log."""


class HistoryCheckpoint(NamedTuple):
    """The seq up to which the store is complete, and before when jobs are forgotten."""

    seq: int
    forget_before_us: int


def connect(database: DatabaseFile, *, writes: bool) -> sqlite3.Connection:
    """Return a configured connection; texts come as bytes, to be decoded as JSON."""
    connection = database.connect()
    connection.text_factory = bytes
    try:
        cache_kib = _WRITER_CACHE_KIB if writes else _READER_CACHE_KIB
        for setting in (
            f"PRAGMA page_size = {_PAGE_BYTES}",
            "PRAGMA trusted_schema = OFF",
            "PRAGMA cell_size_check = ON",
            "PRAGMA temp_store = MEMORY",
            f"PRAGMA cache_size = -{cache_kib}",
            "PRAGMA synchronous = FULL",
            "PRAGMA secure_delete = FAST",
            f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}",
            "PRAGMA journal_mode = WAL" if writes else "PRAGMA query_only = ON",
        ):
            connection.execute(setting).fetchall()
    except BaseException:
        connection.close()
        raise
    return connection


def connect_readers(database: DatabaseFile, count: int) -> list[sqlite3.Connection]:
    """Return so many reading connections, or raise and keep none open."""
    opened: list[sqlite3.Connection] = []
    try:
        while len(opened) < count:
            opened.append(connect(database, writes=False))
    except BaseException:
        for connection in opened:
            connection.close()
        raise
    return opened


def open_writer(
    database: DatabaseFile, *, expected_seq: int, last_seq: int | None, begin_at: int
) -> tuple[sqlite3.Connection, HistoryCheckpoint]:
    """Return the writing connection to an intact database, and its checkpoint.

    An older database gets today's schema.
    """
    if not database.exists() and expected_seq > 0:
        raise HistoryMissing(database.file, None, expected_seq)
    connection = connect(database, writes=True)
    try:
        if is_empty(connection):
            _create(database, connection, expected_seq, begin_at)
        else:
            version = _check_format(database, connection)
            if version < SCHEMA_VERSION:
                _upgrade(database, connection, version)
        checkpoint = read_checkpoint(connection, database.file)
        _check_reach(database.file, checkpoint.seq, expected_seq, last_seq)
    except BaseException:
        connection.close()
        raise
    return connection, checkpoint


def read_checkpoint(connection: sqlite3.Connection, file: str) -> HistoryCheckpoint:
    """Return the checkpoint, or raise ``CorruptHistory``."""
    rows: list[tuple[object, ...]] = connection.execute(statement("read_checkpoint")).fetchall()
    if len(rows) != 1:
        raise CorruptHistory(file, "checkpoint", "1", "it is not there")
    seq, forget_before_us, crc = rows[0]
    if (
        not isinstance(seq, int)
        or not isinstance(forget_before_us, int)
        or crc != _crc(seq, forget_before_us)
    ):
        raise CorruptHistory(file, "checkpoint", "1", "its checksum is wrong")
    return HistoryCheckpoint(seq, forget_before_us)


def write_checkpoint(connection: sqlite3.Connection, checkpoint: HistoryCheckpoint) -> None:
    """Write the checkpoint, in the open transaction."""
    seq, forget_before_us = checkpoint
    run(
        connection,
        "write_checkpoint",
        {
            "seq": seq,
            "forget_before_us": forget_before_us,
            "crc": _crc(seq, forget_before_us),
        },
    )


def quick_check(connection: sqlite3.Connection) -> list[str]:
    """Return what SQLite finds wrong with the file, without a look at what indexes contain."""
    return _checked(connection, "quick_check")


def full_check(connection: sqlite3.Connection) -> list[str]:
    """Return what SQLite finds wrong with the file: also indexes that differ from their tables."""
    return _checked(connection, "integrity_check")


def _checked(connection: sqlite3.Connection, pragma: str) -> list[str]:
    rows = connection.execute(f"PRAGMA {pragma}")
    found = [bytes(row[0]).decode("utf-8", "replace") for row in rows]
    return [] if found == ["ok"] else found


def is_empty(connection: sqlite3.Connection) -> bool:
    """Whether it has no content yet: a process may have ended while creating it."""
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchall()[0][0]
    return not tables and pragma(connection, "application_id") == 0


def _create(
    database: DatabaseFile, connection: sqlite3.Connection, expected_seq: int, begin_at: int
) -> None:
    if expected_seq > 0:
        raise HistoryMissing(database.file, None, expected_seq)
    connection.execute("BEGIN IMMEDIATE")
    for create in schema():
        connection.execute(create)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    write_checkpoint(connection, HistoryCheckpoint(begin_at, 0))
    database.commit(connection)


def _upgrade(database: DatabaseFile, connection: sqlite3.Connection, version: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for step in range(version, SCHEMA_VERSION):
        for name in _STEPS[step]:
            connection.execute(statement(name))
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    database.commit(connection)
    if not isinstance(database, _TemporaryCopy):
        to = SCHEMA_VERSION
        log.emit("journal.migrated", file=database.file, from_schema=version, to_schema=to)


class _TemporaryCopy(LocalDatabaseFile):
    """A copy that is removed when nothing uses it any more."""

    def __init__(self, original: DatabaseFile) -> None:
        directory = Path(tempfile.mkdtemp(prefix="holdfast-"))
        super().__init__(directory / "cold.sqlite")
        weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        self._original = original.file

    @property
    def file(self) -> str:
        """The file that it is a copy of."""
        return self._original


def upgraded_copy(database: DatabaseFile) -> DatabaseFile:
    """Return a database with today's schema to read from: itself, or a copy of an older one."""
    with contextlib.closing(connect(database, writes=False)) as connection:
        if (
            pragma(connection, "application_id") != APPLICATION_ID
            or pragma(connection, "user_version") >= SCHEMA_VERSION
        ):
            return database
        copy = _TemporaryCopy(database)
        with contextlib.closing(copy.connect()) as to:
            connection.backup(to)
    return copy


def has_more_orders(connection: sqlite3.Connection) -> bool:
    """Whether this database has indexes of the dead jobs by when they finished, and by attempts."""
    return pragma(connection, "user_version") > 2


def _check_format(database: DatabaseFile, connection: sqlite3.Connection) -> int:
    """Return the version of the schema."""
    application_id = pragma(connection, "application_id")
    if application_id != APPLICATION_ID:
        problem = f"it belongs to another program (its application_id is {application_id:#x})"
        raise CorruptHistory(database.file, "", "", problem)
    version = pragma(connection, "user_version")
    if version > SCHEMA_VERSION:
        raise UnknownFormat(database.file, "schema version", version, SCHEMA_VERSION)
    if version < 1:
        raise CorruptHistory(database.file, "", "", f"there is no schema version {version}")
    if database.size() <= QUICK_CHECK_BYTES:
        for problem in quick_check(connection):
            raise CorruptHistory(database.file, "", "", problem)
    return version


def _check_reach(file: str, seq: int, expected_seq: int, last_seq: int | None) -> None:
    """Raise unless the checkpoint is within what the snapshots and the log allow."""
    if seq < expected_seq:
        raise HistoryMissing(file, seq, expected_seq)
    if last_seq is not None and seq > last_seq:
        problem = f"it goes up to seq {seq:,} and the log only to {last_seq:,}"
        raise CorruptHistory(file, "checkpoint", "1", problem)


def pragma(connection: sqlite3.Connection, name: str) -> int:
    """Return a number that the file has in its head."""
    return int(connection.execute(f"PRAGMA {name}").fetchall()[0][0])


def _crc(seq: int, forget_before_us: int) -> int:
    return crc32(f"{seq} {forget_before_us}".encode())


_CANNOT_GROW = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN})
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def translated(error: Exception, file: str) -> HoldfastError:
    """Return an error of SQLite or the disk as one of Holdfast's own."""
    if isinstance(error, HoldfastError):
        return error
    if isinstance(error, sqlite3.IntegrityError):
        return InvariantViolation(f"{file} already has what it should store now: {error}")
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _DAMAGED:
        return CorruptHistory(file, "", "", str(error))
    if code in _CANNOT_GROW or getattr(error, "errno", 0) in CANNOT_GROW:
        advice = "free disk space"
        if code == sqlite3.SQLITE_CANTOPEN:
            advice = "raise the limit of open files, or let this user open it"
        elif code != sqlite3.SQLITE_FULL:
            advice = remedy(error, file)
        return StorageFull(
            f"{file} cannot grow ({error}): finished work is kept in memory and in the log until "
            f"it can. To mend it, {advice}"
        )
    return StorageError(
        f"{file} cannot be read or written ({error}): what it lacks stays in the log. Fix the disk"
    )
