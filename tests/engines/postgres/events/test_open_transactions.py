"""A transaction of the caller's that stays open blocks nobody, except who adds to its keys."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import sql

from holdfast.engines.postgres import joined_verbs
from holdfast.engines.postgres.connection import conflicts
from holdfast.engines.postgres.events.append import AppendRequest
from holdfast.engines.postgres.jobs import enqueue_statements
from holdfast.engines.postgres.jobs.unit_of_work import lock_keys
from holdfast.model.errors import Unavailable
from holdfast.model.job import NewJob
from holdfast.model.outcome import completed, retry
from holdfast.testing.conformance.fixture import FAILURE

from .appending import OPTIONS, WHY, append, claimed_keys, enqueue, new_event, subscribe

Join = Callable[..., object]


def append_keys(connection: psycopg.Connection, *keys: str) -> None:
    append(connection, *(new_event(key) for key in keys))


JOINS = pytest.mark.parametrize("join", [append_keys, enqueue], ids=["append", "enqueue"])
LEVELS = pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])


@JOINS
async def test_nothing_waits_for_an_open_transaction(opened, url, join):
    async with opened() as engine:
        await subscribe(engine)
        await engine.append([new_event(key) for key in ("a", "a", "b", "c", "d")])
        held = {
            str(job.ties.key): job
            for job in (await engine.claim(queues=["chronicle"], worker="w", limit=9)).jobs
        }
        with psycopg.connect(url) as connection:
            join(connection, "a", "b", "c", "new")
            settled = [completed(held["a"]), retry(held["b"], FAILURE, 0.001)]
            assert await engine.settle(settled) == [None, None]
            reclaimed = await engine.reclaim(forced=[held["c"]], attribution=WHY)
            assert [job.ties.key for job in reclaimed.lost] == ["c"]
            await engine.append([new_event("other")])
            await engine.enqueue([NewJob(task="entry", queue="chronicle", key="another")])
            assert "other" in await claimed_keys(engine)
            assert await engine.validate() == []
        await engine.settle([completed(held["d"])])
        claimed = await claimed_keys(engine)
        assert "new" in claimed
        assert await engine.validate() == []


@JOINS
async def test_control_with_the_locks_of_settles_they_would_wait(opened, url, join, monkeypatch):
    monkeypatch.setattr(conflicts, "MAX_TRIES", 2)
    monkeypatch.setattr(enqueue_statements, "lock_order", lock_keys)
    usual = AppendRequest.statements

    def with_their_locks(self, context):
        keys = [(one.tenant, "chronicle", one.key) for one in self.events.values()]
        return [*lock_keys(keys), *usual(self, context)[1:]]

    monkeypatch.setattr(AppendRequest, "statements", with_their_locks)
    async with opened(20) as engine:
        await subscribe(engine)
        await engine.append([new_event("a")])
        [job] = (await engine.claim(queues=["chronicle"], worker="w")).jobs
        with psycopg.connect(url) as connection:
            join(connection, "a")
            with pytest.raises(Unavailable, match="another transaction holds a lock"):
                await engine.settle([completed(job)])


@LEVELS
@JOINS
async def test_the_next_of_a_key_is_claimable_after_the_commit(opened, url, join, level):
    """Also if the one before ended meanwhile, unseen by the transaction."""
    async with opened() as engine:
        await subscribe(engine)
        await engine.append([new_event("a")])
        [first] = (await engine.claim(queues=["chronicle"], worker="w")).jobs
        with psycopg.connect(url) as connection:
            connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
            join(connection, "a")
            await engine.settle([completed(first)])
            assert await claimed_keys(engine) == []
        assert await claimed_keys(engine) == ["a"]
        assert await engine.validate() == []


@JOINS
async def test_a_rollback_leaves_nothing(opened, url, join):
    async with opened() as engine:
        await subscribe(engine)
        with psycopg.connect(url) as connection:
            join(connection, "a")
            connection.rollback()
            for table in ("jobs", "chronicle_events", "fresh_keys"):
                query = sql.SQL("TABLE {}").format(sql.Identifier("holdfast", table))
                assert connection.execute(query).fetchall() == []
        assert await claimed_keys(engine) == []


@JOINS
async def test_jobs_of_a_key_run_one_after_another(opened, url, join):
    async with opened() as engine:
        await subscribe(engine)
        with psycopg.connect(url) as connection:
            join(connection, "a", "a", "b")
            connection.commit()
            join(connection, "a")
        run = []
        while jobs := (await engine.claim(queues=["chronicle"], worker="w", limit=9)).jobs:
            assert len({job.ties.key for job in jobs}) == len(jobs)
            run += [job.ties.key_seq for job in jobs if job.ties.key == "a"]
            await engine.settle([completed(job) for job in jobs])
        assert len(run) == 3
        assert run == sorted(run)


@JOINS
async def test_a_worker_that_waits_gets_it_at_the_commit(opened, url, join):
    async with opened() as engine:
        await subscribe(engine)
        with psycopg.connect(url) as connection:
            join(connection, "a")
            waiting = asyncio.create_task(
                engine.claim(queues=["chronicle"], worker="w", wait_seconds=20)
            )
            await asyncio.sleep(0)
        assert [job.ties.key for job in (await waiting).jobs] == ["a"]


async def test_keys_are_lined_up_without_a_claim(opened, url):
    """By the loop that reclaims, so that statistics of a queue that nobody serves are right."""
    async with opened() as engine:
        await subscribe(engine)
        with psycopg.connect(url) as connection:
            append_keys(connection, "a", "b")
        await engine.reclaim(every_seconds=0.001)
        with psycopg.connect(url) as connection:
            lines = connection.execute("SELECT line FROM holdfast.jobs").fetchall()
        assert lines == [(1,), (1,)]


async def test_explain_sees_what_a_claim_would(opened, url):
    async with opened() as engine:
        with psycopg.connect(url) as connection:
            job = NewJob(id="a", task="entry", queue="chronicle", key="a")
            joined_verbs.enqueue_sync(connection, [job], options=OPTIONS)
        [found] = await engine.explain(["a"])
        assert found is not None
        assert found.blockers == ()


async def test_a_queue_that_lost_its_order_meanwhile_is_lined_up(opened, url):
    async with opened() as engine:
        await subscribe(engine)
        with psycopg.connect(url) as connection:
            append_keys(connection, "a", "a")
            with psycopg.connect(url) as other:
                other.execute(
                    "INSERT INTO holdfast.policies (queue, line, ordered, limited, policy)"
                    " VALUES ('chronicle', 1, false, false, '')"
                )
        assert await claimed_keys(engine) == ["a", "a"]


# --- callers and callers ------------------------------------------------------------------------


def wait_until_blocked(url: str) -> None:
    query = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        for _look in range(100_000):
            if connection.execute(query).fetchone() != (0,):
                return
    raise AssertionError("nobody waits")


def test_appends_of_one_key_have_the_order_of_their_commits(url):
    with psycopg.connect(url) as first, psycopg.connect(url) as second:
        [one] = append(first, new_event("a"))
        with ThreadPoolExecutor(1) as pool:
            racing = pool.submit(append, second, new_event("a"))
            wait_until_blocked(url)
            first.commit()
            [two] = racing.result(20)
        assert two.position > one.position


def test_of_two_transactions_that_wait_for_each_other_one_is_told_to_begin_again(url):
    both = threading.Barrier(2)

    def run(first: str, second: str) -> str:
        with psycopg.connect(url) as connection:
            connection.execute("SET deadlock_timeout = '50ms'")
            append(connection, new_event(first))
            both.wait(20)
            try:
                append(connection, new_event(second))
            except Unavailable as error:
                connection.rollback()
                return str(error)
        return ""

    with ThreadPoolExecutor(2) as pool:
        said = sorted(pool.map(run, "ab", "ba"))
    assert said[0] == ""
    assert "roll your transaction back and begin it again" in said[1]


async def test_too_many_keys_in_one_transaction_are_refused_by_that_name(opened, url):
    jobs = [NewJob(task="entry", key=f"k{number}") for number in range(60_000)]
    with psycopg.connect(url) as connection:
        with pytest.raises(Unavailable, match=r"no room for more locks.*max_locks_per_transaction"):
            joined_verbs.enqueue_sync(connection, jobs, options=OPTIONS)
        append(connection, new_event("a"))  # the transaction goes on
    async with opened() as engine:
        assert await engine.count_events() == 1
        assert (await engine.find()).jobs == []
