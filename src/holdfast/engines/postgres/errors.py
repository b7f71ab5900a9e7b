"""Errors of PostgreSQL and the driver, translated into those of the contract."""

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
"""Conflicts with other transactions: the verb sees their changes when it is tried again."""

_MISSING = (pg.UndefinedTable, pg.UndefinedFunction, pg.InvalidSchemaName, pg.UndefinedColumn)
_LOST = (psycopg.OperationalError, psycopg.InterfaceError)
"""The connection is lost, or may be."""

_UNREACHABLE = {
    r"authentication failed|no password supplied": (
        "refuses {user} or the password: correct them in the URL, PGPASSWORD or .pgpass"
    ),
    r"pg_hba\.conf": (
        "does not accept {user} from this host: check pg_hba.conf there, and sslmode in the URL"
    ),
    r'role ".{0,200}" does not exist': "has no {user}: correct it in the URL, or create it",
    r'role ".{0,200}" is not permitted to log in': "does not let {user} log in: ALTER ROLE … LOGIN",
    r'database ".{0,200}" does not exist': (
        "names a database that does not exist: create it, or correct its name in the URL"
    ),
    r"permission denied for database": "does not let {user} connect: GRANT CONNECT to it",
    r"failed to resolve host|could not translate host name": (
        "cannot be reached: the host has no address; correct its name in the URL"
    ),
    r"Connection refused|on socket .{0,200} failed: No such file": (
        "cannot be reached: no server listens there; start it, or correct host and port"
    ),
    r"timeout expired|timed out": (
        "cannot be reached: it does not answer; check whether a firewall is in between"
    ),
    r"too many clients|connection slots|too many connections": (
        "has no connection left: raise max_connections there, or open fewer"
    ),
}
"""Patterns of connection errors, and what to report instead."""


class CommitUnknown(Exception):
    """The connection ended at a commit: the outcome is unknown.

    ``may_still_commit``: the reply timed out, so the commit may still be on its way.
    """

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.may_still_commit = isinstance(cause, TimeoutError)


def is_connection_lost(error: BaseException) -> bool:
    """Whether the connection, or the server, is lost."""
    if isinstance(error, (pg.QueryCanceled, pg.OutOfMemory, *TRY_AGAIN)):
        return False
    return isinstance(error, (*_LOST, OSError, TimeoutError))


def place(url: str) -> str:
    """Return the address of the server for messages, without secrets."""
    return masked(url) if "://" in url else without_secrets(url)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, without secrets."""
    lines = str(error).strip().splitlines()
    return masked(without_secrets(lines[0] if lines else type(error).__name__))


def translated(error: BaseException, url: str, schema: str) -> HoldfastError:
    """Return the error of the contract, with what to do about it."""
    where = place(url)
    if isinstance(error, _MISSING):
        return Unavailable(
            f"schema {schema!r} in {where} is missing or older than this version of Holdfast "
            f"({first_line(error)}): run holdfast migrate"
        )
    if isinstance(error, pg.InsufficientPrivilege):
        return Unavailable(
            f"{where} refuses what Holdfast needs ({first_line(error)}): grant {_user(url)} that "
            "right, or a role that has it: `holdfast migrate --sql --roles` prints them"
        )
    if isinstance(error, pg.ReadOnlySqlTransaction):
        return Unavailable(
            f"{where} is read-only, a standby perhaps: connect to the primary "
            "(target_session_attrs=read-write picks it)"
        )
    if isinstance(error, pg.QueryCanceled):
        return Unavailable(
            f"{where} took longer than statement_timeout_seconds (for a GET of the API: "
            "api_statement_timeout_seconds) and the statement was cancelled: check what the server "
            "is busy with, or ask for less"
        )
    if isinstance(error, pg.LockNotAvailable):
        return lock_held(url)
    if isinstance(error, pg.OutOfMemory) and "shared memory" in str(error):
        return Unavailable(
            f"{where} has no room for more locks ({first_line(error)}), and nothing was stored: "
            "use fewer keys in one transaction, or raise max_locks_per_transaction there"
        )
    if isinstance(error, pg.DiskFull | pg.InsufficientResources) and not isinstance(
        error, pg.TooManyConnections
    ):
        return StorageFull(f"{where} has no room ({first_line(error)}): free some space")
    if is_connection_lost(error):
        return Unavailable(f"{where} {_unreachable(error, url)}")
    if isinstance(error, pg.ProgrammingError | pg.DataError):
        return InvariantViolation(f"{where} rejects a statement of Holdfast: {first_line(error)}")
    return StorageError(f"{where} failed: {first_line(error)}")


def lock_held(url: str) -> Unavailable:
    """Return the error for a lock that did not become free in time."""
    return Unavailable(
        f"{place(url)}: another transaction holds a lock that this needs, and nothing was changed: "
        "end that transaction, or try again; holdfast doctor shows who holds advisory locks"
    )


def _unreachable(error: BaseException, url: str) -> str:
    """Return why there is no connection, and what to do if that is known."""
    text = str(error)
    for pattern, sentence in _UNREACHABLE.items():
        if re.search(pattern, text):
            return sentence.format(user=_user(url))
    return f"cannot be reached: {first_line(error)}"


def _user(url: str) -> str:
    try:
        name = conninfo_to_dict(url).get("user")
    except psycopg.Error:
        name = None
    return f"user {name!r}" if name else "this user"


def check_url(url: str, field: str = "store") -> str:
    """Return a URL that the driver can read, or raise ``InvalidInput`` without secrets."""
    advice = "in a password write / as %2F, ? as %3F and @ as %40"
    address, _, query = url.partition("?")
    path = address.partition("://")[2].partition("/")[2]
    if "://" in url and ("@" in path or ("@" in query and "@" not in address)):
        raise InvalidInput(field, f"not a URL of PostgreSQL: an @ follows the host; {advice}")
    try:
        ports = str(conninfo_to_dict(url).get("port") or "")
    except psycopg.Error as error:
        why = first_line(error) if "://" in url else "it cannot be read"
        raise InvalidInput(field, f"not a URL of PostgreSQL: {why}") from None
    if not all(port.isdigit() or not port for port in ports.split(",")):
        raise InvalidInput(field, f"not a URL of PostgreSQL: the port is not a number; {advice}")
    return url
