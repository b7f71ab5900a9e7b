"""Periodic work is done once per interval, however many processes are ready to do it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import psycopg
import pytest

from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.database import Database
from holdfast.engines.postgres.connection.sansio import SansIO, Statement, execute, execute_all
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.engines.postgres.maintenance import periodic_lock
from holdfast.engines.postgres.maintenance.periodic_lock import PeriodicLock
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.model.errors import InvalidInput
from holdfast.model.job import MICROSECONDS, NewJob, State
from holdfast.testing import VirtualClock
from holdfast.worker.loops import LeaseLoop

OPTIONS = PostgresOptions()
START_US = 1_800_000_000 * MICROSECONDS
WORK = PeriodicLock("work", 10.0)


@pytest.fixture
def url(server18):
    with server18.fresh() as fresh:
        yield fresh


@contextlib.asynccontextmanager
async def opened(url: str, count: int) -> AsyncIterator[list[Database]]:
    databases = [Database(url, OPTIONS) for _number in range(count)]
    for database in databases:
        await database.open()
    try:
        yield databases
    finally:
        for database in databases:
            await database.close()


def at(seconds: float) -> CallContext:
    return CallContext(OPTIONS, OPTIONS.schema, START_US + int(seconds * MICROSECONDS))


def work() -> SansIO[bool]:
    """Do something."""
    yield from execute("set_flag", name="worked", to=True)
    return True


async def ticks(databases: list[Database], seconds: list[float]) -> list[float]:
    """Run all processes at each of these moments, all at once; return when work was done."""
    done = []
    for now in seconds:
        came = [WORK.run(database, work, at(now)) for database in databases for _twice in "ab"]
        done += [now for answer in await asyncio.gather(*came) if answer]
    return done


async def test_of_many_that_come_one_does_the_work(url):
    async with opened(url, 3) as databases:
        times = [0.0, 0.1, 5.0, 8.9, 9.1, 9.2, 15.0, 20.0, 20.1, 35.0, 44.5]
        assert await ticks(databases, times) == [0.0, 9.1, 20.0, 35.0, 44.5]


async def test_who_was_second_sees_that_it_is_done(url):
    """It gets the lock after the first one has ended, and looks again."""

    async with opened(url, 2) as (one, other):
        late = WORK._run_locked(work, at(0.0))
        assert await WORK.run(one, work, at(0.0))
        assert await other.perform(lambda: late) is None


async def test_other_work_is_not_held_up(url):
    async with opened(url, 1) as (one,):
        assert await WORK.run(one, work, at(0.0))
        assert await WORK._replace(name="other").run(one, work, at(0.0))


async def test_a_clock_that_was_set_back_stops_nothing(url):
    async with opened(url, 1) as (one,):
        assert await WORK.run(one, work, at(1_000.0))
        assert await WORK.run(one, work, at(0.0))
        assert not await WORK.run(one, work, at(1.0))


def test_ticks_that_come_a_little_early_are_not_put_off(monkeypatch, url):
    async def run() -> list[bool | None]:
        async with opened(url, 1) as (one,):
            return [await WORK.run(one, work, at(now)) for now in (0.0, 9.999, 19.998)]

    assert asyncio.run(run()) == [True, True, True]
    monkeypatch.setattr(periodic_lock, "_EARLY", 0.0)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DELETE FROM holdfast.loops")
    assert asyncio.run(run()) == [True, None, True]


@contextlib.asynccontextmanager
async def hanging(url: str, database: Database) -> AsyncIterator[asyncio.Future[bool | None]]:
    """Begin the work and hang in the middle of it, as long as this lasts."""
    begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def hangs() -> SansIO[bool]:
        begun.set_result(None)
        yield from execute("lock_keys", names=["held"])
        return True

    await WORK.enter(database)
    with psycopg.connect(url) as blocker:
        blocker.execute("SELECT pg_advisory_xact_lock(holdfast.lock_number('held'))")
        going = asyncio.ensure_future(database.perform(lambda: WORK._run_locked(hangs, at(0.0))))
        await begun
        waits = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        while not blocker.execute(waits).fetchall():  # it was sent, and gets there
            pass
        yield going


async def test_while_it_is_being_done_nobody_else_begins(url):
    async with opened(url, 2) as (one, other):
        async with hanging(url, one) as first:
            assert await WORK.run(other, work, at(0.0)) is None
        assert await first
        assert await WORK.run(other, work, at(0.1)) is None


def without_lock(
    self: PeriodicLock, make: Callable[[], SansIO[bool]], context: CallContext
) -> SansIO[bool | None]:
    """Do what ``PeriodicLock`` does, without the lock."""
    [[row]] = yield from execute_all(self._last_run(context))
    if not self._due(row):
        return None
    result = yield from make()
    yield from execute_all(Statement("record_run", {"name": self.name, "at_us": row[0]}))
    return result


async def test_without_the_lock_it_is_done_twice(url, monkeypatch):
    monkeypatch.setattr(PeriodicLock, "_run_locked", without_lock)

    async with opened(url, 2) as (one, other):
        async with hanging(url, one) as first:
            assert await WORK.run(other, work, at(0.0))
        assert await first


async def test_when_its_holder_dies_another_takes_over(url):
    async with opened(url, 2) as (one, other), hanging(url, one) as first:
        with psycopg.connect(url, autocommit=True) as killer:
            killed = killer.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
                "WHERE datname = current_database() AND wait_event = 'advisory'"
            ).fetchall()
        assert killed == [(True,)]
        first.cancel()
        await asyncio.wait([first])
        assert first.cancelled(), "it is not retried when it was cancelled"
        assert await WORK.run(other, work, at(0.1))


# --- reclaim ---------------------------------------------------------------------------------


async def test_the_loops_of_many_daemons_end_leases_once_per_interval(url, monkeypatch):
    clock = VirtualClock()
    engines = [await PostgresEngine.open(url, clock=clock) for _number in range(3)]
    reads: list[str] = []
    for engine in engines:
        loop = LeaseLoop(engine, None, 1.0, reclaims=True)
        engine.test_loop = loop  # type: ignore[attr-defined]
        bound = engine._database._bind

        def counting(statement, bound=bound):
            reads.append(statement.name)
            return bound(statement)

        monkeypatch.setattr(engine._database, "_bind", counting)
    for _second in range(5):
        for engine in engines:
            await engine.test_loop.step(clock.now_us())  # type: ignore[attr-defined]
        clock.advance(1.0)
    assert reads.count("find_overdue") == 5
    assert reads.count("read_last_run") == 5 * 3 + 5

    await engines[0].enqueue([NewJob(task="t", id="j")])
    [job] = (await engines[0].claim(queues=["default"], worker="w")).jobs
    assert (await engines[1].reclaim(every_seconds=1.0)).lost == []
    assert (await engines[2].reclaim(every_seconds=1.0, forced=[job])).lost != []
    [after] = await engines[0].get(["j"])
    assert after is not None
    assert after.state is State.PENDING, "what people force is done at once"
    for engine in engines:
        await engine.close()


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), "1"])
async def test_an_interval_that_is_none_is_refused(url, seconds):
    engine = await PostgresEngine.open(url)
    try:
        for verb in (engine.reclaim, engine.prune):
            with pytest.raises(InvalidInput):
                await verb(every_seconds=seconds)
    finally:
        await engine.close()
