"""What PostgreSQL says went wrong, in the words of the contract."""

from __future__ import annotations

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict

from holdfast.model.errors import (
    HoldfastError,
    InvalidInput,
    InvariantViolation,
    StorageError,
    StorageFull,
    Unavailable,
)
from holdfast.model.masking import masked
from holdfast.model.redaction import without_secrets

TRY_AGAIN = (pg.SerializationFailure, pg.DeadlockDetected, pg.UniqueViolation, pg.LockNotAvailable)
"""Somebody else was first: the same verb, begun anew, sees what they did."""

NOT_THERE = (pg.UndefinedTable, pg.UndefinedFunction, pg.InvalidSchemaName, pg.UndefinedColumn)
GONE = (psycopg.OperationalError, psycopg.InterfaceError)
"""The connection is, or may be."""


class Doubt(Exception):
    """The connection ended at a commit: nobody here knows whether it was done.

    ``late`` is whether it may yet be done: no answer came in time, and what was sent may still be
    on its way.
    """

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.late = isinstance(cause, TimeoutError)


def is_gone(error: BaseException) -> bool:
    """Whether this means that the connection is lost, or the server."""
    if isinstance(error, pg.QueryCanceled):
        return False
    return isinstance(error, (*GONE, OSError, TimeoutError))


def place(url: str) -> str:
    """Return where the server is, for people: nothing secret is in it."""
    return masked(url)


def said(error: BaseException) -> str:
    """Return the first line of what the server or the driver says, without secrets."""
    lines = str(error).strip().splitlines()
    return masked(without_secrets(lines[0] if lines else type(error).__name__))


def translated(error: BaseException, url: str, schema: str) -> HoldfastError:
    """Return the error of the contract that a person can do something about."""
    where = place(url)
    if isinstance(error, NOT_THERE):
        return Unavailable(
            f"schema {schema!r} in {where} is missing or older than this version of Holdfast "
            f"({said(error)}): run holdfast migrate"
        )
    if isinstance(error, pg.InsufficientPrivilege):
        return Unavailable(f"{where} refuses what Holdfast needs ({said(error)}): grant it")
    if isinstance(error, pg.ReadOnlySqlTransaction):
        return Unavailable(
            f"{where} is read-only, a standby perhaps: connect to the primary "
            "(target_session_attrs=read-write picks it)"
        )
    if isinstance(error, pg.QueryCanceled):
        return Unavailable(
            f"{where} took longer than statement_timeout_seconds and the statement was given up: "
            "see what the server is busy with"
        )
    if isinstance(error, pg.DiskFull | pg.InsufficientResources) and not isinstance(
        error, pg.TooManyConnections
    ):
        return StorageFull(f"{where} has no room ({said(error)}): free some space")
    if is_gone(error):
        return Unavailable(f"{where} cannot be reached: {said(error)}")
    if isinstance(error, pg.ProgrammingError | pg.DataError):
        return InvariantViolation(f"{where} does not understand Holdfast: {said(error)}")
    return StorageError(f"{where} failed: {said(error)}")


def check_url(url: str) -> str:
    """Return a URL that the driver can read, or raise ``InvalidInput``."""
    try:
        conninfo_to_dict(url)
    except psycopg.Error as error:
        raise InvalidInput("store", f"not a URL of PostgreSQL: {said(error)}") from None
    return url
