"""What PostgreSQL says went wrong, in the words of the contract."""

from __future__ import annotations

import re

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
from holdfast.model.redaction import masked, without_secrets

TRY_AGAIN = (pg.SerializationFailure, pg.DeadlockDetected, pg.UniqueViolation, pg.LockNotAvailable)
"""Somebody else was first: the same verb, begun anew, sees what they did."""

NOT_THERE = (pg.UndefinedTable, pg.UndefinedFunction, pg.InvalidSchemaName, pg.UndefinedColumn)
GONE = (psycopg.OperationalError, psycopg.InterfaceError)
"""The connection is, or may be."""


_UNREACHED = {
    r"authentication failed|no password supplied": (
        "refuses {user} or the password: correct them in the URL, PGPASSWORD or .pgpass"
    ),
    r"pg_hba\.conf": (
        "lets {user} in neither from here nor so: see pg_hba.conf there, and sslmode in the URL"
    ),
    r'role ".*" does not exist': "has no {user}: correct it in the URL, or create it",
    r'role ".*" is not permitted to log in': "does not let {user} log in: ALTER ROLE … LOGIN",
    r'database ".*" does not exist': (
        "names a database that is not there: create it, or correct its name in the URL"
    ),
    r"permission denied for database": "does not let {user} connect: GRANT CONNECT to it",
    r"failed to resolve host|could not translate host name": (
        "cannot be reached: the host has no address; correct its name in the URL"
    ),
    r"Connection refused|on socket .* failed: No such file": (
        "cannot be reached: nobody listens there; start the server, or correct host and port"
    ),
    r"timeout expired|timed out": (
        "cannot be reached: it does not answer; see whether a firewall stands in between"
    ),
    r"too many clients|connection slots|too many connections": (
        "has no connection left: raise max_connections there, or open fewer"
    ),
}
"""What the server or the driver says when there is no connection, and what to say instead."""


class CommitUnknown(Exception):
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
    return masked(url) if "://" in url else without_secrets(url)


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
        return Unavailable(f"{where} {_unreached(error, url)}")
    if isinstance(error, pg.ProgrammingError | pg.DataError):
        return InvariantViolation(f"{where} does not understand Holdfast: {said(error)}")
    return StorageError(f"{where} failed: {said(error)}")


def _unreached(error: BaseException, url: str) -> str:
    """Return why there is no connection, and what to do; as far as the server's words are known."""
    text = str(error)
    for signs, sentence in _UNREACHED.items():
        if re.search(signs, text):
            return sentence.format(user=_user(url))
    return f"cannot be reached: {said(error)}"


def _user(url: str) -> str:
    try:
        name = conninfo_to_dict(url).get("user")
    except psycopg.Error:
        name = None
    return f"user {name!r}" if name else "this user"


def check_url(url: str, field: str = "store") -> str:
    """Return a URL that the driver can read, or raise ``InvalidInput``, without what is secret."""
    advice = "in a password write / as %2F, ? as %3F and @ as %40"
    address, _, query = url.partition("?")
    path = address.partition("://")[2].partition("/")[2]
    if "://" in url and ("@" in path or ("@" in query and "@" not in address)):
        raise InvalidInput(field, f"not a URL of PostgreSQL: an @ follows the host; {advice}")
    try:
        ports = str(conninfo_to_dict(url).get("port") or "")
    except psycopg.Error as error:
        why = said(error) if "://" in url else "it cannot be read"
        raise InvalidInput(field, f"not a URL of PostgreSQL: {why}") from None
    if not all(port.isdigit() or not port for port in ports.split(",")):
        raise InvalidInput(field, f"not a URL of PostgreSQL: the port is no number; {advice}")
    return url
