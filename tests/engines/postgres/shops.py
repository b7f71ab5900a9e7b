"""An application with its own table, and every kind of connection that it may use."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import django
import django.conf
import psycopg
import sqlalchemy
from django.db.utils import ConnectionHandler
from django.utils.connection import ConnectionProxy
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from holdfast import Holdfast


class Shop:
    """An application with a task, and queries on its database."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.app = Holdfast(url)

        @self.app.task(queue="mail")
        def confirm(order: int) -> None: ...

        self.confirm = confirm

    def jobs(self) -> list[str]:
        """Return the ids of the jobs that are committed."""
        return [row[0] for row in self.ask("SELECT id FROM holdfast.jobs ORDER BY seq")]

    def orders(self) -> list[int]:
        return [row[0] for row in self.ask("SELECT id FROM orders ORDER BY id")]

    def ask(self, query: Any) -> list[tuple]:
        with psycopg.connect(self.url) as connection:
            return connection.execute(query).fetchall()


# --- every kind of connection -----------------------------------------------------------------


def sqlalchemy_url(url: str) -> sqlalchemy.URL:
    return sqlalchemy.make_url(url).set(drivername="postgresql+psycopg")


INSERT = "INSERT INTO orders VALUES (7)"


@contextlib.contextmanager
def psycopg_connection(url: str) -> Iterator[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        yield connection, lambda: connection.execute(INSERT)


@contextlib.contextmanager
def psycopg_rows_of_their_own(url: str) -> Iterator[tuple[Any, ...]]:
    """The caller's row and cursor factories apply to the caller's statements only."""
    with psycopg.connect(url, row_factory=dict_row, cursor_factory=psycopg.ClientCursor) as one:
        yield one, lambda: one.execute(INSERT)


@contextlib.contextmanager
def alchemy(url: str, **options: Any) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(sqlalchemy_url(url), **options)
    try:
        yield engine
    finally:
        engine.dispose()


@contextlib.contextmanager
def alchemy_connection(url: str) -> Iterator[tuple[Any, ...]]:
    with alchemy(url) as engine, engine.connect() as connection:
        yield connection, lambda: connection.execute(sqlalchemy.text(INSERT))


@contextlib.contextmanager
def alchemy_session(url: str) -> Iterator[tuple[Any, ...]]:
    with alchemy(url) as engine, Session(engine) as session:
        yield session, lambda: session.execute(sqlalchemy.text(INSERT))


@contextlib.contextmanager
def alchemy_scoped_session(url: str) -> Iterator[tuple[Any, ...]]:
    with alchemy(url) as engine:
        session = scoped_session(sessionmaker(engine))
        try:
            yield session, lambda: session.execute(sqlalchemy.text(INSERT))
        finally:
            session.remove()


@contextlib.contextmanager
def django_connection(url: str) -> Iterator[tuple[Any, ...]]:
    """The equivalent of ``django.db.connection`` outside of a project."""
    if not django.conf.settings.configured:
        django.conf.settings.configure(LOGGING_CONFIG=None)
        django.setup()
    parts = conninfo_to_dict(url)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.pop("dbname"),
        "OPTIONS": parts,
        "AUTOCOMMIT": False,
    }
    connection: Any = ConnectionProxy(ConnectionHandler({"default": database}), "default")
    try:
        yield connection, lambda: connection.cursor().execute(INSERT)
    finally:
        connection.close()


KINDS = [
    django_connection,
    psycopg_connection,
    psycopg_rows_of_their_own,
    alchemy_connection,
    alchemy_session,
    alchemy_scoped_session,
]


@contextlib.asynccontextmanager
async def psycopg_async(url: str) -> AsyncIterator[tuple[Any, ...]]:
    connection = await psycopg.AsyncConnection.connect(url)
    async with connection:
        yield connection, lambda: connection.execute(INSERT)


@contextlib.asynccontextmanager
async def alchemy_async(url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(sqlalchemy_url(url))
    try:
        yield engine
    finally:
        await engine.dispose()


@contextlib.asynccontextmanager
async def alchemy_async_connection(url: str) -> AsyncIterator[tuple[Any, ...]]:
    async with alchemy_async(url) as engine, engine.connect() as connection:
        yield connection, lambda: connection.execute(sqlalchemy.text(INSERT))


@contextlib.asynccontextmanager
async def alchemy_async_session(url: str) -> AsyncIterator[tuple[Any, ...]]:
    async with alchemy_async(url) as engine, AsyncSession(engine) as session:
        yield session, lambda: session.execute(sqlalchemy.text(INSERT))


ASYNC_KINDS = [psycopg_async, alchemy_async_connection, alchemy_async_session]
