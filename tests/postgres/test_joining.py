"""Enqueueing in the caller's own transaction: what they commit and the job come together."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
import pytest
import sqlalchemy
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from holdfast import DuplicateId, Holdfast, InvalidInput, JobNotFound, Unavailable
from holdfast.engines.postgres import PostgresEngine, PostgresOptions, joining
from holdfast.model.errors import UnknownDependency
from holdfast.model.job import NewJob
from holdfast.testing import VirtualClock

from .servers import Databases

OPTIONS = PostgresOptions()


@pytest.fixture(scope="module")
def shared(server18: Databases) -> Iterator[str]:
    """One database for all of these tests; each begins with no jobs."""
    with server18.fresh() as database:
        yield store_of(database)


def store_of(database: str) -> str:
    """Return a URL, as settings take it, of what the driver connects to."""
    parts = {key: str(value) for key, value in conninfo_to_dict(database).items()}
    name, user = parts.pop("dbname"), parts.pop("user")
    return f"postgresql://{quote(user)}@/{name}?{urlencode(parts)}"


@pytest.fixture
def url(shared: str) -> Iterator[str]:
    with psycopg.connect(shared, autocommit=True) as connection:
        connection.execute("SET lock_timeout = '5s'")
        connection.execute("TRUNCATE holdfast.jobs, holdfast.dead, holdfast.history")
        connection.execute("DROP TABLE IF EXISTS orders")
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    yield shared


class Shop:
    """An application with a task, and what there is in its database."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.app = Holdfast(url)

        @self.app.task(queue="mail")
        def confirm(order: int) -> None: ...

        self.confirm = confirm

    def jobs(self) -> list[str]:
        """Return the ids of the jobs that are committed."""
        return [row[0] for row in self._ask("SELECT id FROM holdfast.jobs ORDER BY seq")]

    def orders(self) -> list[int]:
        return [row[0] for row in self._ask("SELECT id FROM orders ORDER BY id")]

    def _ask(self, query: Any) -> list[tuple]:
        with psycopg.connect(self.url) as connection:
            return connection.execute(query).fetchall()


@pytest.fixture
def shop(url: str) -> Iterator[Shop]:
    made = Shop(url)
    yield made
    made.app.close_sync()


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
    """What they want of rows and cursors is for their statements."""
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


KINDS = [
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
both_orders = pytest.mark.parametrize("first", ["job", "order"])


def place(shop: Shop, connection: object, insert: Callable[[], Any], first: str) -> str:
    """Write an order and enqueue a job for it, in this or the other order; return the job's id."""
    if first == "order":
        insert()
    job = shop.confirm.options(connection=connection).enqueue_sync(7)
    if first == "job":
        insert()
    return job.id


async def place_async(shop: Shop, connection: Any, insert: Callable[[], Any], first: str) -> str:
    if first == "order":
        await insert()
    job = await shop.confirm.options(connection=connection).enqueue(7)
    if first == "job":
        await insert()
    return job.id


@both_orders
@pytest.mark.parametrize("kind", KINDS)
def test_the_job_comes_with_the_commit(shop, kind, first):
    with kind(shop.url) as (connection, insert):
        job = place(shop, connection, insert, first)
        assert (shop.jobs(), shop.orders()) == ([], [])
        connection.commit()
        assert (shop.jobs(), shop.orders()) == ([job], [7])


@both_orders
@pytest.mark.parametrize("kind", KINDS)
def test_a_rollback_leaves_nothing(shop, kind, first):
    with kind(shop.url) as (connection, insert):
        place(shop, connection, insert, first)
        connection.rollback()
        assert (shop.jobs(), shop.orders()) == ([], [])
        connection.commit()
    assert (shop.jobs(), shop.orders()) == ([], [])


@both_orders
@pytest.mark.parametrize("kind", ASYNC_KINDS)
def test_the_job_comes_with_an_asynchronous_commit(shop, kind, first):
    async def scenario() -> None:
        async with kind(shop.url) as (connection, insert):
            job = await place_async(shop, connection, insert, first)
            assert (shop.jobs(), shop.orders()) == ([], [])
            await connection.commit()
            assert (shop.jobs(), shop.orders()) == ([job], [7])

    asyncio.run(scenario())


@both_orders
@pytest.mark.parametrize("kind", ASYNC_KINDS)
def test_an_asynchronous_rollback_leaves_nothing(shop, kind, first):
    async def scenario() -> None:
        async with kind(shop.url) as (connection, insert):
            await place_async(shop, connection, insert, first)
            await connection.rollback()

    asyncio.run(scenario())
    assert (shop.jobs(), shop.orders()) == ([], [])
