"""SQLite's errors, and the disk's, as Holdfast's own."""

from __future__ import annotations

import errno
import sqlite3

from holdfast.model.errors import (
    CorruptHistory,
    HoldfastError,
    InvariantViolation,
    StorageError,
    StorageFull,
)

_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def translated(error: Exception, file: str) -> HoldfastError:
    """Return what went wrong with this file, for people and programs."""
    if isinstance(error, HoldfastError):
        return error
    if isinstance(error, sqlite3.IntegrityError):
        return InvariantViolation(f"{file} has already what it is told now: {error}")
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _DAMAGED:
        return CorruptHistory(file, "", "", str(error))
    if code == sqlite3.SQLITE_FULL or getattr(error, "errno", 0) in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(
            f"{file} cannot grow ({error}): finished work is kept in memory and in the log until "
            "there is room. Make room"
        )
    return StorageError(
        f"{file} cannot be read or written ({error}): what it lacks stays in the log. Mend the disk"
    )
