"""Enqueueing in the caller's own transaction: what they commit and the job come together."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus
from sqlalchemy.orm import Session

from holdfast import DuplicateId, Holdfast, InvalidInput, JobNotFound
from holdfast.engines.postgres import joined_verbs
from holdfast.engines.postgres.connection import caller_transaction
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.model.errors import UnknownDependency
from holdfast.model.job import NewJob
from holdfast.testing import VirtualClock
from tests.engines.postgres.shops import (
    ASYNC_KINDS,
    INSERT,
    KINDS,
    Shop,
    alchemy,
    psycopg_async,
    psycopg_connection,
)

OPTIONS = PostgresOptions()


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
async def test_the_job_comes_with_an_asynchronous_commit(shop, kind, first):
    async with kind(shop.url) as (connection, insert):
        job = await place_async(shop, connection, insert, first)
        assert (shop.jobs(), shop.orders()) == ([], [])
        await connection.commit()
        assert (shop.jobs(), shop.orders()) == ([job], [7])


@both_orders
@pytest.mark.parametrize("kind", ASYNC_KINDS)
def test_an_asynchronous_rollback_leaves_nothing(shop, kind, first):
    async def scenario() -> None:
        async with kind(shop.url) as (connection, insert):
            await place_async(shop, connection, insert, first)
            await connection.rollback()

    asyncio.run(scenario())
    assert (shop.jobs(), shop.orders()) == ([], [])


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_alone_is_something_to_commit(shop, kind):
    """Also for those who keep account themselves of whether a transaction has begun."""
    with kind(shop.url) as (connection, _insert):
        job = shop.confirm.options(connection=connection).enqueue_sync(7)
        connection.commit()
    assert shop.jobs() == [job.id]


@pytest.mark.parametrize("kind", ASYNC_KINDS)
def test_a_job_alone_is_something_to_commit_asynchronously(shop, kind):
    async def scenario() -> str:
        async with kind(shop.url) as (connection, _insert):
            job = await shop.confirm.options(connection=connection).enqueue(7)
            await connection.commit()
            return str(job.id)

    assert [asyncio.run(scenario())] == shop.jobs()


# --- the transaction is theirs ------------------------------------------------------------------


def test_an_enqueue_that_commits_by_itself_would_be_noticed(shop, monkeypatch):
    """The negative control of the rollbacks above."""
    monkeypatch.setattr(caller_transaction, "_KEEP", caller_transaction.DriverStatement(b"COMMIT"))
    with pytest.raises(AssertionError):
        test_a_rollback_leaves_nothing(shop, psycopg_connection, "order")


def test_a_savepoint_of_theirs_takes_the_job_with_it(shop):
    with psycopg.connect(shop.url, autocommit=True) as connection, connection.transaction():
        kept = shop.confirm.options(connection=connection).enqueue_sync(1)
        with connection.transaction(force_rollback=True):
            shop.confirm.options(connection=connection).enqueue_sync(2)
        connection.execute("SAVEPOINT holdfast")  # the name of ours is not taken
        shop.confirm.options(connection=connection).enqueue_sync(3)
        connection.execute("ROLLBACK TO SAVEPOINT holdfast")
    assert shop.jobs() == [kept.id]


def test_a_nested_transaction_of_sqlalchemy_takes_the_job_with_it(shop):
    with alchemy(shop.url) as engine, Session(engine) as session, session.begin():
        kept = shop.confirm.options(connection=session).enqueue_sync(1)
        with session.begin_nested() as nested:
            shop.confirm.options(connection=session).enqueue_sync(2)
            nested.rollback()
    assert shop.jobs() == [kept.id]


def test_many_at_once_and_by_name(shop):
    async def scenario() -> list[str]:
        async with psycopg_async(shop.url) as (connection, _insert):
            joined = shop.confirm.options(connection=connection)
            some = await joined.enqueue_many([(1,), {"order": 2}])
            assert await joined.enqueue_many([]) == []
            named = await shop.app.enqueue("confirm", {"order": 3}, connection=connection)
            assert shop.jobs() == []
            await connection.commit()
            return [job.id for job in [*some, named]]

    ids = asyncio.run(scenario())
    with psycopg.connect(shop.url) as connection:
        joined = shop.confirm.options(connection=connection, priority=3)
        ids += [job.id for job in joined.enqueue_many_sync([(4,), (5,)])]
    assert shop.jobs() == ids


def test_it_needs_no_engine_and_no_loop(shop):
    """From any thread, also beside a running loop."""

    def place_one() -> None:
        with psycopg.connect(shop.url) as connection:
            shop.confirm.options(connection=connection).enqueue_sync(1)

    async def beside_a_loop() -> None:
        place_one()
        await asyncio.to_thread(place_one)

    asyncio.run(beside_a_loop())
    assert len(shop.jobs()) == 2
    assert shop.app._binding._loop is None
    assert shop.app._binding._engine is None
    assert "holdfast-calls" not in [thread.name for thread in threading.enumerate()]


def test_what_is_enqueued_is_checked_as_always(shop):
    with psycopg.connect(shop.url) as connection:
        joined = shop.confirm.options(connection=connection)
        with pytest.raises(InvalidInput, match="order"):
            joined.enqueue_sync("seven")
        with pytest.raises(InvalidInput, match="queue"):
            joined.options(queue="").enqueue_sync(7)
        assert connection.info.transaction_status == TransactionStatus.IDLE
        with pytest.raises(InvalidInput, match="on_duplicate"):
            joined_verbs.enqueue_sync(connection, [], options=OPTIONS, on_duplicate="x")  # type: ignore[arg-type]


# --- who sees it, and when ----------------------------------------------------------------------


def notified(listener: psycopg.Connection, url: str) -> list[str]:
    """Return the notifications so far: notifications arrive in their order."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("NOTIFY holdfast, 'end'")
    texts: list[str] = []
    for notice in listener.notifies(timeout=20):
        if notice.payload == "end":
            return texts
        texts.append(notice.payload)
    raise AssertionError("not even the last notification came")


@pytest.mark.parametrize("options", [{}, {"key": "k"}], ids=["simple", "with care"])
def test_listeners_are_told_at_the_commit_and_not_of_a_rollback(shop, options):
    """No claim waited when it was enqueued: one that waits before the commit is notified, too."""
    with (
        psycopg.connect(shop.url, autocommit=True) as listener,
        psycopg.connect(shop.url) as connection,
    ):
        listener.execute("LISTEN holdfast")
        joined = shop.confirm.options(connection=connection, **options)
        joined.enqueue_sync(1)
        assert notified(listener, shop.url) == []
        connection.rollback()
        assert notified(listener, shop.url) == []
        joined.enqueue_many_sync([(1,), (2,)])
        assert notified(listener, shop.url) == []
        connection.commit()
        assert notified(listener, shop.url) == ["mail"]


async def test_a_worker_gets_it_after_the_commit(shop):
    engine = await PostgresEngine.open(shop.url)
    try:
        async with psycopg_async(shop.url) as (connection, _insert):
            job = await shop.confirm.options(connection=connection).enqueue(7)
            claim = await engine.claim(queues=["mail"], worker="w")
            assert claim.jobs == []
            with pytest.raises(JobNotFound):
                await job.get()
            waiting = asyncio.create_task(
                engine.claim(queues=["mail"], worker="w", wait_seconds=20)
            )
            await asyncio.sleep(0)
            await connection.commit()
            assert [one.id for one in (await waiting).jobs] == [job.id]
    finally:
        await engine.close()
        await shop.app.close()


def test_an_engine_that_was_adopted_says_where(shop):
    """``holdfast run --store …``: the application itself may have no store."""

    async def scenario() -> None:
        app = Holdfast("memory:")
        engine = await PostgresEngine.open(shop.url, clock=VirtualClock())
        app._binding.adopt(engine)
        try:
            async with psycopg_async(shop.url) as (connection, _insert):
                await app.enqueue("confirm", {"order": 1}, connection=connection)
        finally:
            app._binding.adopt(None)
            await engine.close()

    asyncio.run(scenario())
    assert len(shop.jobs()) == 1


# --- ids, unique keys, keys, dependencies ---------------------------------------------------------


def test_a_duplicate_is_refused_and_the_transaction_goes_on(shop):
    with psycopg.connect(shop.url) as connection:
        named = shop.confirm.options(connection=connection, id="first")
        named.enqueue_sync(1)
        connection.commit()
        connection.execute(INSERT)
        with pytest.raises(DuplicateId):
            named.enqueue_sync(2)
        [receipt] = joined_verbs.enqueue_sync(
            connection,
            [NewJob(id="first", task="confirm", payload={})],
            options=OPTIONS,
            on_duplicate="skip",
        )
        assert receipt.id == "first"
        named.options(id="second").enqueue_sync(3)
        with pytest.raises(DuplicateId):
            named.options(id="second").enqueue_sync(4)
    assert (shop.jobs(), shop.orders()) == (["first", "second"], [7])


def test_a_unique_key_is_taken_within_the_transaction_too(shop):
    with psycopg.connect(shop.url) as connection:
        joined = shop.confirm.options(connection=connection, unique="u")
        first = joined.enqueue_sync(1)
        second = joined.enqueue_sync(1)
        assert (first.existed, second.existed, second.id) == (False, True, first.id)
        connection.rollback()
        assert not joined.enqueue_sync(1).existed
    assert len(shop.jobs()) == 1


def test_jobs_of_a_key_run_in_the_order_of_the_transaction(shop):
    with psycopg.connect(shop.url) as connection:
        joined = shop.confirm.options(connection=connection, key="k")
        first, second = joined.enqueue_sync(1), joined.enqueue_sync(2)

    async def claimed() -> list[str]:
        engine = await PostgresEngine.open(shop.url)
        try:
            claim = await engine.claim(queues=["mail"], worker="w", limit=5)
            return [job.id for job in claim.jobs]
        finally:
            await engine.close()

    assert shop.jobs() == [first.id, second.id]
    assert asyncio.run(claimed()) == [first.id]


def test_a_job_may_wait_for_one_of_the_same_transaction(shop):
    with psycopg.connect(shop.url) as connection:
        joined = shop.confirm.options(connection=connection)
        first = joined.enqueue_sync(1)
        second = joined.options(depends_on=[first]).enqueue_sync(2)
    assert shop.jobs() == [first.id, second.id]
    rows = shop.ask("SELECT id, state, tied, waiting_for FROM holdfast.jobs ORDER BY seq")
    assert rows == [(first.id, 1, True, None), (second.id, 0, False, [first.id])]


def test_a_job_that_would_wait_for_a_later_one_is_refused_unless_they_come_together(shop):
    with psycopg.connect(shop.url) as connection:
        joined = shop.confirm.options(connection=connection)
        with pytest.raises(UnknownDependency):
            joined.options(id="b", depends_on=["a"]).enqueue_sync(2)
        later = NewJob(id="b", task="confirm", payload={"order": 2}, depends_on=("a",))
        first = NewJob(id="a", task="confirm", payload={"order": 1})
        joined_verbs.enqueue_sync(connection, [first, later], options=OPTIONS)
    assert shop.jobs() == ["a", "b"]
