"""Bringing a schema up to date: numbered SQL files, each in a transaction, each of them once.

How the files are numbered, and how older workers go on while a newer schema is under them, is in
``numbered``; what is refused is in ``inspecting``.

Every migration is applied under an advisory lock that ends with its transaction, and what there is
is looked at under that lock: of two who migrate at once, the second finds nothing to do. With the
migration itself its number, name, checksum and ``readable_from`` are written into the table
``migrations`` of the schema, or nothing is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

import psycopg
from psycopg import Connection, IsolationLevel
from psycopg import errors as pg
from psycopg.sql import Literal

from holdfast.engines.postgres.connection.sansio import Row, SansIO
from holdfast.engines.postgres.connection.statements import in_schema, statement
from holdfast.engines.postgres.errors import check_url, is_gone, place, said, translated
from holdfast.model.errors import Unavailable
from holdfast.model.schema_name import DEFAULT_SCHEMA, check_schema

from . import migration_files
from .check import SchemaState, look, missing, refuse_read_only
from .migration_files import Migration

T = TypeVar("T")
_CONNECT_SECONDS = 10
_LOCK_SECONDS = 10
"""How long a migration waits for a table in use: everybody else waits behind it meanwhile."""
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED;"
_IN_THE_WAY = (pg.DuplicateTable, pg.DuplicateFunction, pg.DuplicateObject, pg.DuplicateSchema)


def migrate(url: str, schema: str = DEFAULT_SCHEMA) -> list[Migration]:
    """Apply what the schema lacks, the schema itself included; return what was applied.

    Raise ``Unavailable`` if the server cannot be used, or if this schema is not to be migrated.
    """
    check_schema("schema", schema)
    with _connected(url, schema) as connection:
        refuse_read_only(_look(connection, schema, url))
        applied: list[Migration] = []
        while (one := _apply_next(connection, schema, url)) is not None:
            applied.append(one)
        return applied


def pending(connection: Connection[Row], schema: str = DEFAULT_SCHEMA) -> list[Migration]:
    """Return the migrations that the schema lacks, or raise ``Unavailable`` as ``migrate`` does."""
    return missing(_look(connection, check_schema("schema", schema), connection.info.dsn))


class MigrationPlan(NamedTuple):
    """What is to be applied; all, if nobody could look: then ``unseen`` says why."""

    migrations: Sequence[Migration]
    unseen: str = ""


def plan(url: str, schema: str = DEFAULT_SCHEMA) -> MigrationPlan:
    """Look what the schema lacks. Raise ``Unavailable`` if it is not to be migrated."""
    check_schema("schema", schema)
    try:
        with _connected(url, schema) as connection:
            return MigrationPlan(missing(_look(connection, schema, url)))
    except Unavailable as error:
        if error.__cause__ is None or not is_gone(error.__cause__):
            raise
        return MigrationPlan(migration_files.known(), str(error))


def script(schema: str = DEFAULT_SCHEMA, migrations: Sequence[Migration] | None = None) -> str:
    """Return SQL for psql that applies these migrations; usually all, to where there is nothing.

    It stops at the first error, and then the migration that failed has changed nothing.
    """
    check_schema("schema", schema)
    chosen = migration_files.known() if migrations is None else migrations
    if not chosen:
        return f"-- Schema {schema} has every migration of this version: there is nothing to do.\n"
    head = f"-- Holdfast, schema {schema}: {', '.join(one.title for one in chosen)}. For psql.\n"
    parts = [f"{_BEGIN}\n{_alone(schema)}\n{_applying(one, schema)}\nCOMMIT;\n" for one in chosen]
    return "\n".join([f"{head}\\set ON_ERROR_STOP on\n\\encoding UTF8\n", *parts])


def _written(name: str, schema: str, /, **values: object) -> str:
    """Return a statement with its values written into it."""
    text = statement(name, schema).decode().strip()
    return text % {key: Literal(value).as_string() for key, value in values.items()}


def _alone(schema: str) -> str:
    """Return the SQL that waits, as long as it takes, until nobody else migrates this schema."""
    lock = _written("lock_migrations", schema)
    return f"SET LOCAL lock_timeout = 0;\nSET LOCAL statement_timeout = 0;\n{lock};\n"


def _applying(migration: Migration, schema: str) -> str:
    """Return the SQL that applies a migration and keeps the books.

    The books come first: a second run then fails at their primary key, before anything else.
    """
    parts = [f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'"]
    if migration.number == 1:
        parts.append(_written("make_schema", schema, schema=schema))
        parts.append(_written("make_migrations", schema))
    values = {
        field: getattr(migration, field)
        for field in ("number", "name", "checksum", "readable_from")
    }
    parts.append(_written("add_migration", schema, **values))
    return ";\n".join(parts) + f";\n\n{in_schema(migration.text, schema).strip()}\n"


def _apply_next(connection: Connection[Row], schema: str, url: str) -> Migration | None:
    """Apply the first migration that is lacking, under the lock; None if there is none."""
    # The lock before, and the time to look after: at this level each statement sees what is there
    # when it begins.
    connection.isolation_level = IsolationLevel.READ_COMMITTED
    with connection.transaction():
        connection.execute(_alone(schema).encode())
        lacking = missing(_look(connection, schema, url))
        if not lacking:
            return None
        try:
            connection.execute(_applying(lacking[0], schema).encode())
        except _IN_THE_WAY as error:
            raise Unavailable(
                f"schema {schema!r} in {place(url)} has something of a name that Holdfast uses, "
                f"which it did not make ({said(error)}): give Holdfast a schema of its own "
                "(setting schema)"
            ) from error
        except pg.LockNotAvailable as error:
            raise Unavailable(
                f"{lacking[0].title} waited {_LOCK_SECONDS} s for a table that somebody uses in "
                f"{place(url)}, and was given up; nothing was changed: try again"
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


def _look(connection: Connection[Row], schema: str, url: str) -> SchemaState:
    return _told(connection, look(schema, place(url)), schema)


def _told(connection: Connection[Row], verb: SansIO[T], schema: str) -> T:
    """Have a conversation: each statement by itself, or in the transaction that there is."""
    try:
        batch = next(verb)
        while True:
            rows = [
                connection.execute(statement(ask.name, schema), ask.parameters).fetchall()
                for ask in batch.asks
            ]
            batch = verb.send(rows)
    except StopIteration as stop:
        answer: T = stop.value
        return answer
