"""Notifications: a waiting claim wakes without polling, or it is logged that it has to poll."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import statistics
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.engines.postgres.jobs import claim_statements as claiming_module
from holdfast.engines.postgres.jobs import notifier
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.model.audit import Attribution
from holdfast.model.errors import EngineClosed, InvalidInput
from holdfast.model.job import Job, NewJob
from holdfast.model.outcome import completed
from holdfast.model.policy import QueuePolicy
from tests.engines.postgres.pooler import pooled

NEVER = PostgresOptions(poll_interval_seconds=3_600.0)
"""Only notifications find work."""
OFTEN = PostgresOptions(poll_interval_seconds=0.02)
OPERATION = Attribution("ann", "to see")
LISTENS = "FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'"
PATIENCE_SECONDS = 20.0
OLDER = """
WITH made AS (
    INSERT INTO holdfast.jobs (
        created_at_us, run_at_us, max_attempts, priority, state, line, tenant, id, scope, queue,
        task, payload
    )
    SELECT 1, n.run_at_us, 3, 0, 1, 1, 'default', n.id, '', 'q', 't', '{}'
    FROM (VALUES ('later', holdfast.now_us()), ('first', 1)) AS n (id, run_at_us)
)
SELECT pg_notify('holdfast', 'q')
"""
"""Two jobs at once, as if they had failed before: one is due since long ago."""


@pytest.fixture
def url(server18):
    with server18.fresh() as fresh:
        yield fresh


@contextlib.asynccontextmanager
async def opened(url: str, options: PostgresOptions = NEVER) -> AsyncIterator[PostgresEngine]:
    engine = await PostgresEngine.open(url, options=options)
    try:
        yield engine
    finally:
        await engine.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 - of many kinds
            await asyncio.sleep(0.001)


def claiming(engine: PostgresEngine, queue: str = "q") -> asyncio.Future[list[Job]]:
    """Claim, and wait as long as it takes."""

    async def claim() -> list[Job]:
        asked = engine.claim(queues=[queue], worker="w", wait_seconds=3_600.0)
        return (await asyncio.wait_for(asked, PATIENCE_SECONDS)).jobs

    return asyncio.ensure_future(claim())


def asleep(engine: PostgresEngine, queue: str = "q") -> Callable[[], bool]:
    """Whether a claim sleeps there and is registered for notifications."""
    return lambda: engine._notifier.covers([queue]) and engine._notifier._waiting[queue] > 0


async def put(engine: PostgresEngine, job_id: str, **fields: Any) -> None:
    await engine.enqueue([NewJob(task="t", queue="q", id=job_id, **fields)])


def execute(url: str, statement: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        return len(connection.execute(statement).fetchall())


def said(caplog) -> list[str]:
    names = [record.getMessage().split()[0] for record in caplog.records]
    return [name for name in names if name.startswith("postgres.")]


# --- notified --------------------------------------------------------------------------------


def test_who_waits_wakes_when_another_process_enqueues(url):
    async def run() -> list[float]:
        took = []
        async with opened(url) as waiter, opened(url) as other:
            for number in range(30):
                claim = claiming(waiter)
                await until(asleep(waiter))
                began = time.perf_counter()
                await put(other, f"j{number}")
                [job] = await claim
                took.append(time.perf_counter() - began)
                assert job.id == f"j{number}"
                await waiter.settle([completed(job)])
        return took

    took = asyncio.run(run())
    sys.stderr.write(f"enqueued to claimed elsewhere: p50 {statistics.median(took) * 1e3:.2f} ms\n")


def test_who_is_told_of_work_takes_it_without_looking_for_it_first(url, monkeypatch):
    looks = 0
    look = claiming_module.read_watermarks

    def counted(request, context, after):
        nonlocal looks
        looks += 1
        return look(request, context, after)

    monkeypatch.setattr(claiming_module, "read_watermarks", counted)

    async def run() -> None:
        nonlocal looks
        async with opened(url) as waiter, opened(url) as other:
            # A job of another priority than the last needs a look at the watermarks.
            for number, (priority, expected) in enumerate([(0, 1), (0, 0), (0, 0), (5, 1), (5, 0)]):
                claim = claiming(waiter)
                await until(asleep(waiter))
                looks = 0
                await put(other, f"j{number}", priority=priority)
                [job] = await claim
                assert (job.id, looks) == (f"j{number}", expected)
                await waiter.settle([completed(job)])

    asyncio.run(run())


@pytest.mark.parametrize("what", ["of a higher priority", "due before what was claimed last"])
async def test_who_is_told_of_work_takes_what_comes_first(url, what):
    async with opened(url) as waiter, opened(url) as other:
        for number in range(2):
            claim = claiming(waiter)
            await until(asleep(waiter))
            await put(other, f"before-{number}")
            await waiter.settle([completed(job) for job in await claim])
        claim = claiming(waiter)
        await until(asleep(waiter))
        if what == "of a higher priority":
            later = NewJob(task="t", queue="q", id="later")
            await other.enqueue([later, replace(later, id="first", priority=5)])
        else:
            execute(url, OLDER)
        [job] = await claim
        assert job.id == "first"


async def test_what_becomes_due_or_free_wakes_who_waits(url):
    async with opened(url) as waiter, opened(url) as other:
        claim = claiming(waiter)
        await until(asleep(waiter))
        await put(other, "later", delay_seconds=0.05)
        assert [job.id for job in await claim] == ["later"]

        await put(other, "first", key="k")
        await put(other, "second", key="k")
        [first] = (await other.claim(queues=["q"], worker="o")).jobs
        claim = claiming(waiter)
        await until(asleep(waiter))
        await other.settle([completed(first)])
        assert [job.id for job in await claim] == ["second"]

        await other.set_policy("q", QueuePolicy(paused=True), OPERATION)
        await put(other, "third")
        claim = claiming(waiter)
        await until(asleep(waiter))
        await other.set_policy("q", None, OPERATION)
        assert [job.id for job in await claim] == ["third"]


async def test_claims_of_one_process_are_registered_together(url):
    async with opened(url) as waiter, opened(url) as other:
        claims = {queue: claiming(waiter, queue) for queue in "abc"}
        for queue in claims:
            await until(asleep(waiter, queue))
        for queue, claim in claims.items():
            await other.enqueue([NewJob(task="t", queue=queue, id=queue)])
            assert [job.id for job in await claim] == [queue]


async def test_nobody_is_notified_in_vain(url):
    async with opened(url) as waiter, opened(url) as other:
        raw = await psycopg.AsyncConnection.connect(url, autocommit=True)
        async with raw:
            await raw.execute("LISTEN holdfast")
            await put(other, "unheard")
            [job] = (await waiter.claim(queues=["q"], worker="w")).jobs
            claim = claiming(waiter)
            await until(asleep(waiter))
            await other.enqueue([NewJob(task="t", queue="another", id="elsewhere")])
            await put(other, "heard")
            await claim
            heard = []
            async for notice in raw.notifies(timeout=PATIENCE_SECONDS):
                if not notice.payload.startswith("\n"):
                    heard.append(notice.payload)
                    break
            assert heard == ["q"]
            assert job.id == "unheard"


async def test_who_stays_asleep_stays_registered(url, monkeypatch):
    monkeypatch.setattr(notifier, "REGISTERED_SECONDS", 0.3)
    monkeypatch.setattr(notifier, "RENEW_SECONDS", 0.02)

    async with opened(url) as waiter, opened(url) as other:
        claim = claiming(waiter)
        await until(asleep(waiter))
        first_us = waiter._notifier._until_us
        await until(lambda: waiter._resources.clock.now_us() > first_us + 100_000)
        await put(other, "j")
        await claim


async def test_what_is_waited_for_no_more_is_not_renewed(url, monkeypatch):
    monkeypatch.setattr(notifier, "REGISTERED_SECONDS", 0.1)
    monkeypatch.setattr(notifier, "RENEW_SECONDS", 0.01)

    async with opened(url) as waiter, opened(url) as other:
        first, second = claiming(waiter, "q"), claiming(waiter, "other")
        await until(asleep(waiter, "other"))
        await put(other, "j")
        await first
        assert waiter._notifier._registered == {"q", "other"}
        await until(lambda: waiter._notifier._registered == {"other"})
        assert not second.done()
        second.cancel()


# --- the look after registering --------------------------------------------------------------


def put_in_the_gap(engine: PostgresEngine, other: PostgresEngine, *, looks_again: bool) -> None:
    """Have a job come after the last look of a claim, and before it is registered."""
    register = engine._notifier.register
    came: list[str] = []

    async def late(queues: list[str]) -> bool:
        if engine._notifier.listening and not came:
            came.append("gap")
            await put(other, "gap")
        return await register(queues) and looks_again

    engine._notifier.register = late  # type: ignore[method-assign, assignment]


async def test_a_job_that_comes_before_registering_is_seen(url):
    async with opened(url) as waiter, opened(url) as other:
        put_in_the_gap(waiter, other, looks_again=True)
        assert [job.id for job in await claiming(waiter)] == ["gap"]


async def test_without_the_second_look_it_is_not(url):
    async with opened(url) as waiter, opened(url) as other:
        put_in_the_gap(waiter, other, looks_again=False)
        claim = claiming(waiter)
        await until(asleep(waiter))
        [job] = await other.get(["gap"])
        assert job is not None, "it is there, without a notification"
        assert not claim.done()
        assert not any(future.done() for future in waiter._resources.waiters._waiting)
        waiter._resources.waiters.wake_all()
        assert [job.id for job in await claim] == ["gap"]


# --- when it does not work -------------------------------------------------------------------


def test_a_lost_connection_is_made_again_and_nothing_is_missed(url, caplog):
    caplog.set_level(logging.INFO)

    async def run() -> None:
        async with opened(url) as waiter, opened(url) as other:
            for number in range(3):
                claim = claiming(waiter)
                await until(asleep(waiter))
                assert execute(url, f"SELECT pg_terminate_backend(pid) {LISTENS}") == 1
                if number:  # in the first round it may come before we listen
                    await until(lambda: not waiter._notifier.listening)
                    await until(asleep(waiter))
                await put(other, f"j{number}")
                [job] = await claim
                assert job.id == f"j{number}"

    asyncio.run(run())
    assert said(caplog) == [], "it was mended at once"


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(notifier, "ECHO_SECONDS", 0.15)
    monkeypatch.setattr(notifier, "_MAX_PAUSE_SECONDS", 0.05)


async def test_behind_a_pooler_it_is_said_once_and_polling_finds_the_work(url, impatient, caplog):
    caplog.set_level(logging.INFO)

    async with pooled(url) as (pooler, through), opened(through, OFTEN) as waiter:
        claim = claiming(waiter)
        await until(lambda: pooler.swallowed >= 3)
        assert said(caplog) == ["postgres.not_notified"]
        assert not waiter._notifier.covers(["q"])
        async with opened(url) as other:
            await put(other, "j")
            assert [job.id for job in await claim] == ["j"]
            claim = claiming(waiter)
            pooler.swallows = False
            await until(asleep(waiter))
            await put(other, "k")
            assert [job.id for job in await claim] == ["k"]
        assert said(caplog) == ["postgres.not_notified", "postgres.notified"]
        assert said_in_words(caplog, "listen_url")


def said_in_words(caplog, words: str) -> bool:
    return any(words in record.getMessage() for record in caplog.records)


def test_past_the_pooler_it_hears(url, impatient, caplog):
    async def run() -> None:
        async with pooled(url) as (_pooler, through):
            options = PostgresOptions(poll_interval_seconds=3_600.0, listen_url=url)
            async with opened(through, options) as waiter, opened(through) as other:
                claim = claiming(waiter)
                await until(asleep(waiter))
                await put(other, "j")
                assert [job.id for job in await claim] == ["j"]

    asyncio.run(run())
    assert said(caplog) == []


async def test_a_listener_that_went_deaf_notices(url, impatient, monkeypatch, caplog):
    monkeypatch.setattr(notifier, "PROBE_SECONDS", 0.02)
    monkeypatch.setattr(notifier, "RENEW_SECONDS", 0.02)

    async with pooled(url) as (pooler, through), opened(through) as waiter:
        pooler.swallows = False
        claim = claiming(waiter)
        await until(asleep(waiter))
        pooler.swallows = True
        await until(lambda: said(caplog) == ["postgres.not_notified"])
        claim.cancel()


async def test_without_listening_there_is_no_connection_for_it(url):
    options = PostgresOptions(listen=False, poll_interval_seconds=0.02)
    async with opened(url, options) as waiter, opened(url) as other:
        claim = claiming(waiter)
        await put(other, "j")
        assert [job.id for job in await claim] == ["j"]
        assert execute(url, f"SELECT pid {LISTENS}") == 0


async def test_closing_ends_the_connection_that_listens(url):
    async with opened(url) as waiter:
        claim = claiming(waiter)
        await until(asleep(waiter))
        assert execute(url, f"SELECT pid {LISTENS}") == 1
    with pytest.raises(EngineClosed):
        await claim
    await until(lambda: execute(url, f"SELECT pid {LISTENS}") == 0)


def test_a_listen_url_that_is_none_is_refused():
    with pytest.raises(InvalidInput) as caught:
        PostgresOptions(listen_url="postgresql://[")
    assert caught.value.field == "listen_url"


# --- what it costs ---------------------------------------------------------------------------


async def test_who_waits_asks_one_thing_each_time(url):
    async with opened(url, OFTEN) as waiter:
        claim = claiming(waiter)
        await until(asleep(waiter))
        asked: Counter[str] = Counter()
        bound = waiter._database._bind

        def counting(statement):
            asked[statement.name] += 1
            return bound(statement)

        waiter._database._bind = counting  # type: ignore[method-assign]
        await until(lambda: asked["read_watermarks"] >= 20)
        assert asked.total() - asked["read_watermarks"] <= 1, "a renewal, perhaps"
        claim.cancel()
