"""Migrate: applies numbered SQL files to a schema, each once and in a transaction of its own.

How the files are numbered, and when older workers may go on with a newer schema, is in
``migration_files``; what is refused is in ``check``.

Every migration is applied under an advisory lock that ends with its transaction, and the state of
the schema is read under that lock: of two processes that migrate at once, the second finds nothing
to do. The number, name, checksum and ``readable_from`` of a migration are committed with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

import psycopg
from psycopg import Connection, IsolationLevel
from psycopg import errors as pg
from psycopg.sql import Literal

from holdfast.engines.postgres.connection.database import SET_SEARCH_PATH
from holdfast.engines.postgres.connection.sansio import Row, SansIO
from holdfast.engines.postgres.connection.statements import in_schema, statement
from holdfast.engines.postgres.errors import (
    check_url,
    first_line,
    is_connection_lost,
    place,
    translated,
)
from holdfast.model.errors import Unavailable
from holdfast.model.schema_name import DEFAULT_SCHEMA, check_schema

from . import migration_files
from .check import SchemaState, missing, read_state, refuse_read_only
from .migration_files import Migration

T = TypeVar("T")
_CONNECT_SECONDS = 10
_LOCK_SECONDS = 10
"""How long a migration waits for a table in use: all others queue behind it meanwhile."""
_TURN = "10min"
"""How long a migration waits for another one; anybody who may connect can hold that lock."""
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED;"
_IN_THE_WAY = (pg.DuplicateTable, pg.DuplicateFunction, pg.DuplicateObject, pg.DuplicateSchema)


def migrate(url: str, schema: str = DEFAULT_SCHEMA) -> list[Migration]:
    """Apply what the schema lacks, the schema itself included; return what was applied.

    Raise ``Unavailable`` if the server cannot be used, or if this schema must not be migrated.
    """
    check_schema("schema", schema)
    with _connected(url, schema) as connection:
        refuse_read_only(_state(connection, schema, url))
        applied: list[Migration] = []
        while (one := _apply_next(connection, schema, url)) is not None:
            applied.append(one)
        return applied


def pending(connection: Connection[Row], schema: str = DEFAULT_SCHEMA) -> list[Migration]:
    """Return the migrations that the schema lacks, or raise ``Unavailable`` as ``migrate`` does."""
    return missing(_state(connection, check_schema("schema", schema), connection.info.dsn))


class MigrationPlan(NamedTuple):
    """What is to be applied; all, if the server could not be reached: ``unseen`` says why."""

    migrations: Sequence[Migration]
    unseen: str = ""


def plan(url: str, schema: str = DEFAULT_SCHEMA) -> MigrationPlan:
    """Return what the schema lacks. Raise ``Unavailable`` if it must not be migrated."""
    check_schema("schema", schema)
    try:
        with _connected(url, schema) as connection:
            return MigrationPlan(missing(_state(connection, schema, url)))
    except Unavailable as error:
        if error.__cause__ is None or not is_connection_lost(error.__cause__):
            raise
        return MigrationPlan(migration_files.known(), str(error))


def script(schema: str = DEFAULT_SCHEMA, migrations: Sequence[Migration] | None = None) -> str:
    """Return SQL for psql that applies these migrations; by default all, to an empty database.

    It stops at the first error, and then the migration that failed has changed nothing.
    """
    check_schema("schema", schema)
    chosen = migration_files.known() if migrations is None else migrations
    if not chosen:
        return f"-- Schema {schema} has every migration of this version: nothing to do.\n"
    head = f"-- Holdfast, schema {schema}: {', '.join(one.title for one in chosen)}. For psql.\n"
    parts = [f"{_BEGIN}\n{_lock(schema)}\n{_apply(one, schema)}\nCOMMIT;\n" for one in chosen]
    return "\n".join([f"{head}\\set ON_ERROR_STOP on\n\\encoding UTF8\n", *parts])


def literal(name: str, schema: str, /, **values: object) -> str:
    """Return a statement with its values as literals."""
    text = statement(name, schema).decode().strip()
    return text % {key: Literal(value).as_string() for key, value in values.items()}


def _lock(schema: str) -> str:
    """Return the SQL that fixes the search_path, and then waits for the lock."""
    settings = f"SET LOCAL lock_timeout = '{_TURN}';\nSET LOCAL statement_timeout = 0;"
    path = SET_SEARCH_PATH.decode()
    return f"{path};\n{settings}\n{literal('lock_migrations', schema)};\n"


def _apply(migration: Migration, schema: str) -> str:
    """Return the SQL that applies and records a migration.

    The record comes first: a second run then fails at its primary key, before anything else.
    """
    parts = [f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'"]
    parts.append(literal("become_owner", schema, schema=schema))
    if migration.number == 1:
        parts.append(literal("make_schema", schema, schema=schema))
        parts.append(literal("make_migrations", schema))
    values = {
        field: getattr(migration, field)
        for field in ("number", "name", "checksum", "readable_from")
    }
    parts.append(literal("add_migration", schema, **values))
    return ";\n".join(parts) + f";\n\n{in_schema(migration.text, schema).strip()}\n"


def _apply_next(connection: Connection[Row], schema: str, url: str) -> Migration | None:
    """Apply the first missing migration, under the lock; None if there is none."""
    # At this isolation level a statement after the lock sees what its previous holder committed.
    connection.isolation_level = IsolationLevel.READ_COMMITTED
    with connection.transaction():
        try:
            connection.execute(_lock(schema).encode())
        except pg.LockNotAvailable as error:
            raise Unavailable(
                f"another session has held the lock of migrations in {place(url)} for {_TURN}: end "
                "it, and try again; holdfast doctor shows who holds advisory locks"
            ) from error
        lacking = missing(_state(connection, schema, url))
        if not lacking:
            return None
        try:
            connection.execute(_apply(lacking[0], schema).encode())
        except _IN_THE_WAY as error:
            raise Unavailable(
                f"schema {schema!r} in {place(url)} has an object with a name that Holdfast uses, "
                f"which it did not make ({first_line(error)}): give Holdfast a schema of its own "
                "(setting schema)"
            ) from error
        except pg.LockNotAvailable as error:
            raise Unavailable(
                f"{lacking[0].title} waited {_LOCK_SECONDS} s for a table that is in use in "
                f"{place(url)}, and was cancelled; nothing was changed: try again"
            ) from error
        return lacking[0]


@contextlib.contextmanager
def _connected(url: str, schema: str) -> Iterator[Connection[Row]]:
    try:
        with psycopg.connect(
            check_url(url),
            autocommit=True,
            prepare_threshold=None,
            application_name="holdfast migrate",
            connect_timeout=_CONNECT_SECONDS,
        ) as connection:
            yield connection
    except (psycopg.Error, OSError) as error:
        raise translated(error, url, schema) from error


def _state(connection: Connection[Row], schema: str, url: str) -> SchemaState:
    with connection.transaction():
        connection.execute(SET_SEARCH_PATH)
        return _run(connection, read_state(schema, place(url)), schema)


def _run(connection: Connection[Row], verb: SansIO[T], schema: str) -> T:
    """Run a verb: each statement by itself, or in the current transaction."""
    try:
        batch = next(verb)
        while True:
            rows = [
                connection.execute(statement(one.name, schema), one.parameters).fetchall()
                for one in batch.statements
            ]
            batch = verb.send(rows)
    except StopIteration as stop:
        result: T = stop.value
        return result
