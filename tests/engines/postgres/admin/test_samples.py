"""Samples on PostgreSQL: one process takes them, and rates are those of the whole store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from holdfast.engines.postgres.admin import samples
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.model.job import MICROSECONDS, NewJob
from holdfast.model.samples import SamplePoint
from holdfast.testing import VirtualClock
from holdfast.worker.loops import SampleLoop


@pytest.fixture
def url(server18):
    with server18.fresh() as fresh:
        yield fresh


@asynccontextmanager
async def opened(url: str, clock: VirtualClock, count: int) -> AsyncIterator[list[PostgresEngine]]:
    engines = [await PostgresEngine.open(url, clock=clock) for _number in range(count)]
    try:
        yield engines
    finally:
        for engine in engines:
            await engine.close()


async def points(engine: PostgresEngine, clock: VirtualClock) -> list[SamplePoint]:
    now_us = clock.now_us()
    from_us = now_us - 3_600 * MICROSECONDS
    found = await engine.samples(["default"], from_us=from_us, to_us=now_us + 1)
    return found.get("default", [])


async def test_of_several_daemons_one_samples_and_the_rates_are_of_all(url):
    clock = VirtualClock()
    async with opened(url, clock, 3) as engines:
        loops = [SampleLoop(engine) for engine in engines]
        for loop in loops:
            await loop.step(clock.now_us())
        for _tick in range(4):
            clock.advance(1)
            for engine in engines:  # each process enqueues, and none of them knows of the others
                await engine.enqueue([NewJob(task="t") for _job in range(10)])
            clock.advance(9)
            for loop in loops:
                assert await loop.step(clock.now_us()) >= clock.now_us() + 10 * MICROSECONDS
        with psycopg.connect(url) as connection:
            [[taken]] = connection.execute(
                "SELECT count(DISTINCT at_us) FROM holdfast.samples WHERE tier = 0"
            ).fetchall()
        assert taken == 4
        found = await engines[0].samples(from_us=0, to_us=clock.now_us() + 1, step_seconds=3_600)
        assert found["default"][0].enqueued_per_second == pytest.approx(3.0)


async def test_what_one_process_found_to_cost_much_all_do_less_often(url):
    clock = VirtualClock()
    async with opened(url, clock, 2) as [one, other]:
        await one.take_sample()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("UPDATE holdfast.last_sample SET cost_seconds = 3")
        await one.enqueue([NewJob(task="t")])
        clock.advance(50)
        assert await other.take_sample() == 60.0
        assert await points(other, clock) == []
        clock.advance(10)
        assert await other.take_sample() < 60.0
        assert len(await points(other, clock)) == 1


async def _commits_late(url: str) -> float:
    """Return how many jobs per second are shown, of one whose transaction was open for a while."""
    clock = VirtualClock()
    async with opened(url, clock, 1) as [engine]:
        await engine.enqueue([NewJob(task="t", id="first")])
        clock.advance(20)
        await engine.take_sample()
        clock.advance(9)
        copied = (
            "INSERT INTO holdfast.jobs (created_at_us, run_at_us, max_attempts, priority, state, "
            "line, tenant, id, scope, queue, task, payload) SELECT %s, run_at_us, max_attempts, "
            "priority, state, line, tenant, 'late', scope, queue, task, payload "
            "FROM holdfast.jobs WHERE id = 'first'"
        )
        with psycopg.connect(url) as connection:
            connection.execute(copied, [clock.now_us()])
            clock.advance(1)
            await engine.take_sample()
            connection.commit()
        clock.advance(10)
        await engine.take_sample()
        return sum(point.enqueued_per_second for point in await points(engine, clock))


async def test_a_job_whose_transaction_commits_after_a_sample_is_in_the_next(url):
    assert await _commits_late(url) == pytest.approx(0.1, rel=0.01)


async def test_control_without_waiting_for_late_commits_it_is_lost(url, monkeypatch):
    monkeypatch.setattr(samples, "_LATE_SECONDS", 0.0)
    assert await _commits_late(url) == 0.0


async def test_after_a_pause_rates_are_of_the_last_minute_alone(url):
    """Nothing is counted for hours back: that would be long to read, and no rate of today."""
    clock = VirtualClock()
    async with opened(url, clock, 1) as [engine]:
        await engine.take_sample()
        clock.advance(1)
        await engine.enqueue([NewJob(task="t") for _job in range(1_000)])
        clock.advance(3_600)
        await engine.enqueue([NewJob(task="t") for _job in range(5)])
        clock.advance(5)
        await engine.take_sample()
        *_earlier, last = await points(engine, clock)
        assert last.enqueued_per_second == pytest.approx(0.5)


async def test_a_queue_that_falls_silent_is_sampled_on(url):
    """So that a rate of a longer time is not that of its busy seconds."""
    clock = VirtualClock()
    async with opened(url, clock, 1) as [engine]:
        await engine.enqueue([NewJob(task="t", id="a")])
        clock.advance(5)
        await engine.take_sample()
        [job] = (await engine.claim(queues=["default"], worker="w")).jobs
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("DELETE FROM holdfast.jobs WHERE id = %s", [job.id])
        for _sample in range(5):
            clock.advance(10)
            await engine.take_sample()
        found = await points(engine, clock)
        assert [point.pending + point.in_flight for point in found] == [1, 0, 0, 0, 0, 0]
        clock.advance(2 * 3_600)
        await engine.take_sample()
        assert await points(engine, clock) == [], "an hour later it is left out"


async def test_losing_the_tables_of_samples_is_no_error(url):
    clock = VirtualClock()
    async with opened(url, clock, 1) as [engine]:
        await engine.enqueue([NewJob(task="t")])
        await engine.take_sample()
        with psycopg.connect(url, autocommit=True) as connection:
            found = connection.execute(
                "SELECT relname FROM pg_class WHERE relpersistence = 'u' AND relkind = 'r' "
                "AND relname IN ('samples', 'last_sample')"
            ).fetchall()
            assert len(found) == 2, "a crash of the server empties them"
            connection.execute("TRUNCATE holdfast.samples, holdfast.last_sample")
        assert await points(engine, clock) == []
        clock.advance(10)
        await engine.take_sample()
        assert [point.pending for point in await points(engine, clock)] == [1]
