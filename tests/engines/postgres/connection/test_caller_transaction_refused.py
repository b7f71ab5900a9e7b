"""Transactions of the caller's that cannot be joined, or in which others were first."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
import sqlalchemy
from psycopg import IsolationLevel
from psycopg.pq import TransactionStatus
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from holdfast import DuplicateId, Holdfast, InvalidInput, JobHandle, StorageError, Unavailable
from holdfast.engines.postgres import joined_verbs
from holdfast.engines.postgres.connection import caller_transaction
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.model.job import NewJob, State
from holdfast.model.outcome import completed
from tests.engines.postgres.shops import (
    INSERT,
    Shop,
    alchemy,
    alchemy_async,
    django_connection,
    psycopg_async,
)

# --- others are first ---------------------------------------------------------------------------


def wait_until_blocked(shop: Shop, count: int = 1) -> None:
    """Return once this many connections wait for a lock of another's."""
    query = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0"
    )
    for _look in range(100_000):
        if shop.ask(query)[0][0] == count:
            return
    raise AssertionError("nobody waits")


def race(shop: Shop, second: psycopg.Connection, end: str, **options: Any) -> JobHandle:
    """Enqueue in two transactions; end the first; return what the second one got."""
    with ThreadPoolExecutor(1) as pool, psycopg.connect(shop.url) as first:
        second.execute(INSERT)
        shop.confirm.options(connection=first, **options).enqueue_sync(1)
        joined = shop.confirm.options(connection=second, **options)
        racing = pool.submit(joined.enqueue_sync, 2)
        wait_until_blocked(shop)
        first.execute(end)
        return racing.result(20)


def test_a_unique_key_that_another_transaction_took_is_found(shop):
    with psycopg.connect(shop.url) as connection:
        assert race(shop, connection, "COMMIT", unique="u").existed
        assert shop.orders() == []
    assert (len(shop.jobs()), shop.orders()) == (1, [7])


def test_a_unique_key_that_another_transaction_gave_back_is_free(shop):
    with psycopg.connect(shop.url) as connection:
        assert not race(shop, connection, "ROLLBACK", unique="u").existed
    assert (len(shop.jobs()), shop.orders()) == (1, [7])


def test_an_id_that_another_transaction_took_is_refused(shop):
    with psycopg.connect(shop.url) as connection:
        with pytest.raises(DuplicateId):
            race(shop, connection, "COMMIT", id="one")
        shop.confirm.options(connection=connection, id="two").enqueue_sync(2)
    assert (shop.jobs(), shop.orders()) == (["one", "two"], [7])


def test_without_a_savepoint_a_lost_race_would_spoil_their_transaction(shop, monkeypatch):
    """The negative control of the races above."""
    for name in ("_BEGIN", "_KEEP", "_UNDO"):
        monkeypatch.setattr(caller_transaction, name, caller_transaction.DriverStatement(b"SELECT"))
    with pytest.raises(StorageError, match="current transaction is aborted"):
        test_a_unique_key_that_another_transaction_took_is_found(shop)
    assert shop.orders() == []


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"unique": "u"}, "unseen by a repeatable read transaction"),
        ({"id": "one"}, "could not serialize access"),
    ],
    ids=str,
)
def test_a_transaction_that_cannot_see_others_is_told_to_begin_anew(shop, options, why):
    with psycopg.connect(shop.url) as connection:
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        with pytest.raises(Unavailable, match=f"{why}.*: roll your transaction back and begin"):
            race(shop, connection, "COMMIT", **options)
        assert connection.info.transaction_status == TransactionStatus.INTRANS
        connection.rollback()
        shop.confirm.options(connection=connection).enqueue_sync(3)
    assert (len(shop.jobs()), shop.orders()) == (2, [])


def test_a_connection_is_none_the_worse_for_many_lost_races(shop, caplog):
    """The driver prepares what it sees often, and must not be mistaken about what it prepared."""
    with psycopg.connect(shop.url) as connection:
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        connection.execute(INSERT)
        with psycopg.connect(shop.url) as other:
            shop.confirm.options(connection=other, unique="u").enqueue_sync(1)
        for _time in range(12):
            with pytest.raises(Unavailable, match="unseen by a repeatable read transaction"):
                shop.confirm.options(connection=connection, unique="u").enqueue_sync(2)
        shop.confirm.options(connection=connection).enqueue_sync(3)
    assert (len(shop.jobs()), shop.orders()) == (2, [7])
    assert [record for record in caplog.records if record.name == "psycopg"] == []


def test_jobs_of_one_key_wait_for_the_commit_of_the_one_before(shop):
    with psycopg.connect(shop.url) as connection:
        second = race(shop, connection, "COMMIT", key="k")
    assert shop.jobs()[1] == second.id


def test_calls_on_one_connection_at_once_do_not_mix(shop):
    """One of them is refused: its savepoint takes nothing of the others with it."""

    async def scenario() -> list[object]:
        async with psycopg_async(shop.url) as (connection, _insert):
            joined = shop.confirm.options(connection=connection)
            await joined.options(id="taken").enqueue(0)
            calls = [joined.options(id=f"job-{number}").enqueue(number) for number in range(8)]
            calls.insert(4, joined.options(id="taken").enqueue(0))
            return list(await asyncio.gather(*calls, return_exceptions=True))

    answers = asyncio.run(scenario())
    assert [isinstance(answer, DuplicateId) for answer in answers].index(True) == 4
    assert sorted(shop.jobs()) == [*(f"job-{number}" for number in range(8)), "taken"]


def test_threads_that_share_a_connection_do_not_mix(shop):
    with psycopg.connect(shop.url) as connection, ThreadPoolExecutor(4) as pool:
        joined = shop.confirm.options(connection=connection)
        together = threading.Barrier(4)

        def place(number: int) -> str:
            together.wait(20)
            return str(joined.options(id=f"job-{number}").enqueue_sync(number).id)

        ids = list(pool.map(place, range(4)))
    assert sorted(shop.jobs()) == ids


def test_a_call_that_is_cancelled_leaves_the_transaction_as_it_was(shop):
    async def scenario() -> None:
        with psycopg.connect(shop.url) as other:
            shop.confirm.options(connection=other, unique="u").enqueue_sync(1)
            async with psycopg_async(shop.url) as (connection, insert):
                await insert()
                joined = shop.confirm.options(connection=connection)
                waiting = asyncio.create_task(joined.options(unique="u").enqueue(2))
                await asyncio.to_thread(wait_until_blocked, shop)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                await joined.options(id="kept").enqueue(3)
            other.rollback()

    asyncio.run(scenario())
    assert (shop.jobs(), shop.orders()) == (["kept"], [7])


# --- the server refuses -------------------------------------------------------------------------


def test_a_schema_that_is_not_there_leaves_the_transaction_usable(shop):
    elsewhere = PostgresOptions(schema="elsewhere")
    with psycopg.connect(shop.url) as connection:
        connection.execute(INSERT)
        with pytest.raises(
            Unavailable, match=r"schema 'elsewhere' in postgresql://.*holdfast migrate"
        ):
            joined_verbs.enqueue_sync(connection, [NewJob(task="t", payload={})], options=elsewhere)
    assert shop.orders() == [7]


def test_a_transaction_that_may_only_read_is_refused(shop):
    with psycopg.connect(shop.url) as connection:
        connection.read_only = True
        with pytest.raises(
            InvalidInput, match=r"connection: .* read-only: pass one that may write"
        ):
            shop.confirm.options(connection=connection).enqueue_sync(1)
        assert connection.info.transaction_status == TransactionStatus.INTRANS


def test_a_connection_that_is_lost_is_said(shop):
    with psycopg.connect(shop.url) as connection:
        connection.execute(INSERT)
        shop.ask(f"SELECT pg_terminate_backend({connection.info.backend_pid})")
        with pytest.raises(Unavailable, match="cannot be reached"):
            shop.confirm.options(connection=connection).enqueue_sync(1)
        with pytest.raises(InvalidInput, match="connection: it is closed"):
            shop.confirm.options(connection=connection).enqueue_sync(1)
    assert (shop.jobs(), shop.orders()) == ([], [])


# --- connections that are not fit ---------------------------------------------------------------


@contextlib.contextmanager
def autocommit(url: str) -> Iterator[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


@contextlib.contextmanager
def closed(url: str) -> Iterator[Any]:
    connection = psycopg.connect(url)
    connection.close()
    yield connection


@contextlib.contextmanager
def failed(url: str) -> Iterator[Any]:
    with psycopg.connect(url) as connection:
        with contextlib.suppress(psycopg.Error):
            connection.execute("SELECT 1/0")
        yield connection


@contextlib.contextmanager
def in_a_pipeline(url: str) -> Iterator[Any]:
    with psycopg.connect(url) as connection, connection.pipeline():
        yield connection


@contextlib.contextmanager
def amid_a_statement(url: str) -> Iterator[Any]:
    with (
        psycopg.connect(url) as connection,
        connection.cursor() as cursor,
        cursor.copy("COPY orders TO STDOUT") as copy,
    ):
        yield connection
        list(copy)


@contextlib.contextmanager
def alchemy_autocommit(url: str) -> Iterator[Any]:
    with alchemy(url, isolation_level="AUTOCOMMIT") as engine, engine.connect() as connection:
        yield connection
        assert not connection.in_transaction()


@contextlib.contextmanager
def alchemy_closed(url: str) -> Iterator[Any]:
    with alchemy(url) as engine:
        with engine.connect() as connection:
            pass
        yield connection


@contextlib.contextmanager
def alchemy_failed(url: str) -> Iterator[Any]:
    with alchemy(url) as engine, Session(engine) as session:
        with contextlib.suppress(sqlalchemy.exc.DBAPIError):
            session.execute(sqlalchemy.text("SELECT 1/0"))
        yield session


@contextlib.contextmanager
def alchemy_without_engine(url: str) -> Iterator[Any]:
    with Session() as session:
        yield session


@contextlib.contextmanager
def sqlite(url: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine("sqlite://")
    with Session(engine) as session:
        yield session
    engine.dispose()


@contextlib.contextmanager
def an_engine(url: str) -> Iterator[Any]:
    with alchemy(url) as engine:
        yield engine


@contextlib.contextmanager
def a_url(url: str) -> Iterator[Any]:
    yield url


@contextlib.contextmanager
def django_autocommit(url: str) -> Iterator[Any]:
    with django_connection(url) as (connection, _insert):
        connection.set_autocommit(True)
        yield connection


@contextlib.contextmanager
def django_failed(url: str) -> Iterator[Any]:
    with django_connection(url) as (connection, _insert):
        connection.ensure_connection()
        connection.needs_rollback = True
        yield connection


UNFIT = [
    (autocommit, "it is in autocommit mode and in no transaction: begin one"),
    (closed, "it is closed: pass one that is open"),
    (failed, "its transaction has failed: roll it back"),
    (in_a_pipeline, "it is in a pipeline"),
    (amid_a_statement, "it is executing a statement"),
    (alchemy_autocommit, "it is in autocommit mode and in no transaction"),
    (alchemy_closed, "this sqlalchemy.*Connection cannot be used: This Connection is closed"),
    (alchemy_failed, "its transaction has failed: roll it back"),
    (alchemy_without_engine, "this sqlalchemy.*Session cannot be used: "),
    (sqlite, "this sqlalchemy.*Session is one of sqlite3, and only psycopg 3 can be used"),
    (an_engine, "this sqlalchemy.*Engine is not one that Holdfast can use: pass a connection of"),
    (a_url, "this builtins.str is not one that Holdfast can use"),
    (django_autocommit, "begin one .*transaction.atomic"),
    (django_failed, "has failed in this atomic block"),
]


@pytest.mark.parametrize(("kind", "said"), UNFIT, ids=lambda value: getattr(value, "__name__", ""))
def test_a_connection_that_is_not_fit_is_refused_with_what_to_do(shop, kind, said):
    with kind(shop.url) as connection:
        with pytest.raises(InvalidInput, match=f"^connection: .*{said}") as refused:
            shop.confirm.options(connection=connection).enqueue_sync(1)
        assert refused.value.field == "connection"
    assert shop.jobs() == []


def test_a_server_that_is_not_there_is_said(shop):
    with (
        alchemy("postgresql://nobody@/nothing?host=/nowhere") as engine,
        Session(engine) as session,
        pytest.raises(Unavailable, match="cannot be reached"),
    ):
        shop.confirm.options(connection=session).enqueue_sync(1)


# --- the other way round ------------------------------------------------------------------------


def test_an_asynchronous_connection_is_for_calls_that_are_awaited(shop):
    async def scenario() -> None:
        async with (
            psycopg_async(shop.url) as (connection, _insert),
            alchemy_async(shop.url) as engine,
            engine.connect() as other,
            AsyncSession(engine) as session,
        ):
            for kind in (connection, other, session):
                with pytest.raises(InvalidInput, match="is asynchronous: call enqueue or"):
                    shop.confirm.options(connection=kind).enqueue_sync(1)
            joined = lambda plain: shop.confirm.options(connection=plain).enqueue_sync(1)
            with pytest.raises(InvalidInput, match="is asynchronous underneath"):
                await session.run_sync(joined)

    asyncio.run(scenario())
    assert shop.jobs() == []


def test_a_plain_connection_is_for_calls_that_are_not(shop):
    async def refuse(connection: object, said: str) -> None:
        with pytest.raises(InvalidInput, match=said):
            await shop.confirm.options(connection=connection).enqueue(1)
        with pytest.raises(InvalidInput, match=said):
            await shop.app.enqueue("confirm", {"order": 1}, connection=connection)

    said = r"is not asynchronous: call enqueue_sync or"
    with psycopg.connect(shop.url) as connection, alchemy(shop.url) as engine:
        asyncio.run(refuse(connection, said))
        with engine.connect() as other, Session(engine) as session:
            asyncio.run(refuse(other, said))
            asyncio.run(refuse(session, said))
    with django_connection(shop.url) as (connection, _insert):
        asyncio.run(refuse(connection, said))
    asyncio.run(refuse(object(), "is not one that Holdfast can use"))
    assert shop.jobs() == []


# --- stores that have no transactions -------------------------------------------------------------


@pytest.mark.parametrize("store", ["memory:", "data"])
def test_other_stores_refuse_and_say_which_one_has_it(shop, store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    app = Holdfast(store)

    @app.task
    def work() -> None: ...

    with psycopg.connect(shop.url) as connection:
        joined = work.options(connection=connection)
        said = rf"connection: .* is {store}: set HOLDFAST_STORE=postgresql://"
        with pytest.raises(InvalidInput, match=said):
            joined.enqueue_sync()
        with pytest.raises(InvalidInput, match=said):
            asyncio.run(joined.enqueue())
        with pytest.raises(InvalidInput, match=said):
            joined.enqueue_many_sync([()])
        if store == "memory:":
            work.enqueue_sync()  # now there is an engine
            with pytest.raises(InvalidInput, match="is a memory engine"):
                joined.enqueue_sync()
        app.close_sync()
        with app.testing(), pytest.raises(InvalidInput, match="a rehearsal keeps work in memory"):
            joined.enqueue_sync()
    assert list(tmp_path.iterdir()) == []


# --- a dependency on a unique job that exists -----------------------------------------------------


def depend_while_it_ends(shop: Shop, wait: Callable[[Future], object]) -> State:
    """Depend on the job that has a unique key while it is completed; return the new job's state.

    ``wait`` decides when the transaction is committed.
    """
    unique = shop.confirm.options(unique="u")
    first = unique.enqueue_sync(1)
    binding = shop.app._binding
    [held] = binding.call_sync(lambda engine: engine.claim(queues=["mail"], worker="w")).jobs
    assert held.id == first.id
    with ThreadPoolExecutor(1) as pool, psycopg.connect(shop.url) as connection:
        again = unique.call(2)
        after = shop.confirm.options(depends_on=[again]).call(3)
        handles = shop.app.enqueue_all_sync([again, after], connection=connection)
        assert handles[0].id == first.id
        outcome = completed(held)
        settling = pool.submit(binding.call_sync, lambda engine: engine.settle([outcome]))
        wait(settling)
        connection.commit()
        assert settling.result(20) == [None]
    return asyncio.run(handles[1].get()).state


def test_a_unique_job_that_ends_meanwhile_frees_the_new_one_that_depends_on_it(shop):
    assert depend_while_it_ends(shop, lambda _settling: wait_until_blocked(shop)) is State.PENDING


def test_control_without_locks_the_new_one_would_wait_forever(shop, rewritten):
    changes = {"lock_jobs": ("FOR UPDATE OF j", ""), "mark_tied": ("WHERE", "WHERE false AND")}
    rewritten(lambda name, text: text.replace(*changes.get(name, ("", ""))))
    assert depend_while_it_ends(shop, lambda settling: settling.result(20)) is State.BLOCKED
