"""The caller's connections: their kind, and the psycopg connection inside.

SQLAlchemy and Django are recognized by class names, so that neither has to be installed.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeAlias

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus

from holdfast.engines.postgres.errors import first_line, translated
from holdfast.model.errors import HoldfastError, InvalidInput

Sync: TypeAlias = "psycopg.Connection[Any]"
Async: TypeAlias = "psycopg.AsyncConnection[Any]"

_SESSIONS = frozenset({"Session", "scoped_session"})
_ASYNC_SESSIONS = frozenset({"AsyncSession", "async_scoped_session"})
_KNOWN = (
    "a connection of psycopg 3, a session or connection of SQLAlchemy on postgresql+psycopg, or "
    "Django's connection on psycopg 3"
)
_SYNC_CALLS = "enqueue_sync or another that ends in _sync"
_ASYNC_CALLS = "enqueue or another that does not end in _sync, and await it"


def driver_of(connection: object) -> Sync:
    """Return the psycopg connection for synchronous calls; begin SQLAlchemy's transaction."""
    if _is_async(connection):
        raise _refused(connection, f"is asynchronous: call {_ASYNC_CALLS}")
    found: Any = connection
    if _is_django(connection):
        return _sync(connection, _in_django(found))
    if not _of(connection, "sqlalchemy", {"Connection", *_SESSIONS}):
        return _sync(connection, found)
    try:
        if _of(connection, "sqlalchemy", _SESSIONS):
            found = found.connection()
        driver = _sync(connection, found.connection.driver_connection)
        check_usable(driver)
        if not found.in_transaction():
            # Else SQLAlchemy does not know that there is something to commit.
            found.begin()
    except HoldfastError:
        raise
    except Exception as error:
        raise _unusable(connection, error) from error
    return driver


async def driver_of_async(connection: object) -> Async:
    """Return the psycopg connection for awaited calls; begin SQLAlchemy's transaction."""
    if _is_django(connection) or _is_sync(connection):
        raise _refused(connection, f"is not asynchronous: call {_SYNC_CALLS}")
    found: Any = connection
    if not _of(connection, "sqlalchemy", {"AsyncConnection", *_ASYNC_SESSIONS}):
        return _async(connection, found)
    try:
        if _of(connection, "sqlalchemy", _ASYNC_SESSIONS):
            found = await found.connection()
        driver = _async(connection, (await found.get_raw_connection()).driver_connection)
        check_usable(driver)
        if not found.in_transaction():
            await found.begin()
    except HoldfastError:
        raise
    except Exception as error:
        raise _unusable(connection, error) from error
    return driver


def check_usable(driver: Sync | Async) -> None:
    """Raise ``InvalidInput`` unless statements can be added to the connection's transaction."""
    if driver.closed:
        raise InvalidInput("connection", "it is closed: pass one that is open")
    if driver.pgconn.pipeline_status != PipelineStatus.OFF:
        raise InvalidInput("connection", "it is in a pipeline: enqueue before or after that")
    status = driver.info.transaction_status
    if status == TransactionStatus.INERROR:
        problem = "its transaction has failed: roll it back, and enqueue in the next one"
        raise InvalidInput("connection", problem)
    if status == TransactionStatus.ACTIVE:
        raise InvalidInput("connection", "it is executing a statement: let that end first")
    if status == TransactionStatus.IDLE and driver.autocommit:
        problem = (
            "it is in autocommit mode and in no transaction: begin one (`with conn.transaction():` "
            "in psycopg, `with transaction.atomic():` in Django), or enqueue without connection="
        )
        raise InvalidInput("connection", problem)


def url_of(driver: Sync | Async) -> str:
    """Return the URL of a connection, without secrets."""
    info = driver.info
    if info.host.startswith("/"):
        return f"postgresql://{info.user}@/{info.dbname}?host={info.host}"
    return f"postgresql://{info.user}@{info.host}:{info.port}/{info.dbname}"


def _in_django(connection: Any) -> object:  # noqa: ANN401 - Django is not imported here
    if connection.vendor != "postgresql":
        raise _refused(connection, f"is one to {connection.vendor}, not to PostgreSQL")
    if connection.connection is None:
        connection.ensure_connection()
    if connection.needs_rollback:
        raise _refused(connection, "has failed in this atomic block: leave the block first")
    found: object = connection.connection
    return found


def _sync(connection: object, driver: object) -> Sync:
    if isinstance(driver, psycopg.Connection):
        return driver
    if isinstance(driver, psycopg.AsyncConnection):
        raise _refused(connection, f"is asynchronous underneath: call {_ASYNC_CALLS}")
    raise _wrong_driver(connection, driver)


def _async(connection: object, driver: object) -> Async:
    if isinstance(driver, psycopg.AsyncConnection):
        return driver
    raise _wrong_driver(connection, driver)


def _wrong_driver(connection: object, driver: object) -> InvalidInput:
    if driver is connection:
        return _refused(connection, f"is not one that Holdfast can use: pass {_KNOWN}")
    library = type(driver).__module__.partition(".")[0]
    return _refused(
        connection, f"is one of {library}, and only psycopg 3 can be used: pass {_KNOWN}"
    )


def _unusable(connection: object, error: Exception) -> HoldfastError:
    """Return the error for an object of SQLAlchemy that cannot be used."""
    cause = getattr(error, "orig", None)
    if isinstance(cause, psycopg.Error):
        return translated(cause, "PostgreSQL", "")
    return _refused(connection, f"cannot be used: {first_line(error)}")


def _refused(connection: object, problem: str) -> InvalidInput:
    kind = type(connection)
    return InvalidInput("connection", f"this {kind.__module__}.{kind.__qualname__} {problem}")


def _is_async(connection: object) -> bool:
    return isinstance(connection, psycopg.AsyncConnection) or _of(
        connection, "sqlalchemy", {"AsyncConnection", *_ASYNC_SESSIONS}
    )


def _is_sync(connection: object) -> bool:
    return isinstance(connection, psycopg.Connection) or _of(
        connection, "sqlalchemy", {"Connection", *_SESSIONS}
    )


def _is_django(connection: object) -> bool:
    return _of(connection, "django", {"BaseDatabaseWrapper", "ConnectionProxy"})


def _of(connection: object, library: str, names: Collection[str]) -> bool:
    """Whether this is an instance of one of these classes of a library, or of a subclass."""
    return any(
        kind.__name__ in names and kind.__module__.partition(".")[0] == library
        for kind in type(connection).__mro__
    )
