"""What need not be remembered is forgotten, whole days at a time; nothing else is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from hashlib import shake_256

import psycopg
import pytest
from psycopg import sql

from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.engines.postgres.maintenance import prune as prune_module
from holdfast.engines.postgres.maintenance.prune import PruneResult
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.engines.postgres.schema.migrate import migrate
from holdfast.model.actions import NoteJobs
from holdfast.model.audit import Attribution, AuditEntry
from holdfast.model.failure import Failure
from holdfast.model.job import Job, NewJob
from holdfast.model.outcome import completed, dead, retry
from holdfast.model.record import Record
from holdfast.model.search import Filter
from holdfast.testing import VirtualClock
from holdfast.worker.loops import PruneLoop

DAY = 86_400.0
NOON_US = (20_833 * 86_400 + 43_200) * 1_000_000  # of 2027-01-15
OPTIONS = PostgresOptions(remember_seconds=DAY)
TIMES = (("soon", 60_000_000), ("later", 120_000_000))
OPERATION = Attribution("ann", "to see")
FAILURE = Failure.of("upstream_5xx", "503")


@pytest.fixture(params=["server18", "server16"])
def url(request):
    with request.getfixturevalue(request.param).fresh() as fresh:
        yield fresh


@contextlib.asynccontextmanager
async def opened(
    url: str, options: PostgresOptions = OPTIONS
) -> AsyncIterator[tuple[PostgresEngine, VirtualClock]]:
    clock = VirtualClock(NOON_US)
    engine = await PostgresEngine.open(url, options=options, clock=clock)
    try:
        yield engine, clock
        assert await engine.validate() == []
    finally:
        await engine.close()


def ask(url: str, statement: str, *names: str) -> list[tuple]:
    """Ask the database; ``{}`` in a statement stands for one of these names."""
    with psycopg.connect(url, autocommit=True) as connection:
        composed = sql.SQL(statement).format(*map(sql.Identifier, names))
        return connection.execute(composed).fetchall()


def days(url: str, schema: str = "holdfast") -> list[str]:
    """Return the partitions of history, without what they are all called."""
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid "
            "WHERE i.inhparent = %s::regclass ORDER BY 1",
            [f"{schema}.history"],
        ).fetchall()
    return [name.removeprefix("history_") for (name,) in found]


def count(url: str, table: str) -> int:
    return int(ask(url, "SELECT count(*) FROM holdfast.{}", table)[0][0])


def with_a_past(url: str, table: str) -> list[str]:
    found = ask(url, "SELECT DISTINCT id FROM holdfast.{} ORDER BY 1", table)
    return [job_id for (job_id,) in found]


async def finish(engine: PostgresEngine, *ids: str) -> None:
    await engine.enqueue([NewJob(task="t", id=job_id) for job_id in ids])
    jobs = await take(engine)
    await engine.settle([completed(job) for job in jobs])


async def take(engine: PostgresEngine) -> list[Job]:
    return (await engine.claim(queues=["default"], worker="w", limit=100)).jobs


async def known(engine: PostgresEngine) -> list[str]:
    return sorted(job.id for job in (await engine.find(Filter())).jobs)


async def test_days_are_made_ahead_and_dropped_when_nothing_in_them_is_remembered(url):
    async with opened(url) as (engine, clock):
        assert await engine.prune() == PruneResult(days_made=4)
        assert days(url) == ["20270115", "20270116", "20270117", "20270118", "rest"]
        assert await engine.prune() == PruneResult()
        await finish(engine, "first")
        assert count(url, "history_20270115") == 1
        assert count(url, "history_rest") == 0

        clock.advance(DAY)  # remembered up to this very moment
        await finish(engine, "second")
        assert await engine.prune() == PruneResult(days_made=1)
        assert await known(engine) == ["first", "second"]
        clock.advance(DAY / 2 - 1)  # one second before nothing of the first day is remembered
        assert (await engine.prune()).days_dropped == 0
        clock.advance(1)
        assert (await engine.prune()).days_dropped == 1
        assert days(url)[0] == "20270116"
        assert await known(engine) == ["second"]


async def test_what_is_in_the_default_partition_stops_nothing_and_goes_in_its_time(
    url, monkeypatch
):
    monkeypatch.setattr(prune_module, "CHUNK", 2)

    async with opened(url) as (engine, clock):
        await finish(engine, "a", "b", "c", "d", "e")
        assert await engine.prune() == PruneResult(days_made=3), "but for today, which has begun"
        assert days(url) == ["20270116", "20270117", "20270118", "rest"]
        clock.advance(DAY / 2 - 1)
        await finish(engine, "f")
        assert count(url, "history_rest") == 6
        clock.advance(DAY / 2 + 1)
        await finish(engine, "g")
        assert count(url, "history_20270116") == 1
        assert await engine.prune() == PruneResult(days_made=1)
        assert await known(engine) == list("abcdefg")
        clock.advance(1)
        assert await engine.prune() == PruneResult(jobs=5)
        assert await known(engine) == list("fg")
        assert count(url, "history_rest") == 1


async def test_a_jobs_past_goes_with_it_and_not_before(url, monkeypatch):
    monkeypatch.setattr(prune_module, "CHUNK", 3)
    ids = ["again", "dead", "done", "done2", "open", "young"]

    async with opened(url) as (engine, clock):
        await engine.prune()
        await engine.enqueue([NewJob(task="t", id=job_id) for job_id in ids])
        await engine.settle(
            [
                dead(job, FAILURE) if job.id == "dead" else retry(job, FAILURE, delay_seconds=0)
                for job in await take(engine)
            ]
        )
        await engine.operate(NoteJobs("looked at"), Filter(ids=tuple(ids)), OPERATION)
        in_hand = {job.id: job for job in await take(engine)}
        await engine.settle([completed(in_hand[one]) for one in ("again", "done", "done2")])
        clock.advance(1.5 * DAY)
        await engine.settle([completed(in_hand["young"])])
        # Another job has got the id of one that is forgotten: its past is its own.
        await engine.enqueue([NewJob(task="t", id="again")])
        await engine.operate(NoteJobs("anew"), Filter(ids=("again",)), OPERATION)

        await prune_all(engine)
        assert with_a_past(url, "attempts") == ["dead", "open", "young"]
        assert with_a_past(url, "notes") == ["again", "dead", "open", "young"]
        found = await engine.history(["again", "dead", "open", "young"])
        again, *others = [one for one in found if one is not None]
        assert [note.text for note in again.notes] == ["anew"]
        assert [note.text for one in others for note in one.notes] == ["looked at"] * 3
        assert [len(one.attempts) for one in others] == [1, 1, 2]


async def prune_all(engine: PostgresEngine) -> None:
    """Prune as often as it takes to come round."""
    while True:
        done = await engine.prune()
        if not done.attempts and not done.notes and not engine._pruner._places:
            return


async def test_nothing_is_waited_for_while_somebody_reads_history(url):
    async with opened(url) as (engine, clock):
        await engine.prune()
        clock.advance(4 * DAY)
        with psycopg.connect(url) as reader:
            reader.execute("SELECT count(*) FROM holdfast.history")
            assert await engine.prune() == PruneResult()
            await finish(engine, "meanwhile")
            assert await known(engine) == ["meanwhile"]
        done = await engine.prune()
        assert done.days_dropped == 3
        assert done.days_made == 3, "today has begun in the rest"
        assert await known(engine) == ["meanwhile"]


async def test_another_schema_has_days_of_its_own(url):
    migrate(url, "another")

    options = PostgresOptions(remember_seconds=DAY, schema="another")
    async with opened(url, options) as (engine, clock):
        assert await engine.prune() == PruneResult(days_made=4)
        assert days(url, "another") == ["20270115", "20270116", "20270117", "20270118", "rest"]
        assert days(url) == ["rest"]
        clock.advance(5 * DAY)
        assert await engine.prune() == PruneResult(days_made=4, days_dropped=4)


async def test_those_who_wait_no_more_are_forgotten(url):
    async with opened(url) as (engine, _clock):
        now_us = NOON_US - 3_600_000_000
        with psycopg.connect(url, autocommit=True) as connection:
            for listener, until_us in (("gone", now_us - 1), ("here", now_us)):
                connection.execute(
                    "INSERT INTO holdfast.waiting (listener, until_us, queues) "
                    "VALUES (%s, %s, '{q}')",
                    (listener, until_us),
                )
        await engine.prune()
        assert ask(url, "SELECT listener FROM holdfast.waiting") == [("here",)]


async def test_loops_of_many_daemons_prune_once_per_interval(url):
    async with opened(url) as (engine, clock):
        other = await PostgresEngine.open(url, options=OPTIONS, clock=clock)
        done: list[PruneResult] = []

        class Counting:
            def __init__(self, engine: PostgresEngine) -> None:
                self._engine = engine

            async def prune(self, *, every_seconds: float) -> None:
                done.append(await self._engine.prune(every_seconds=every_seconds))

        loops = [PruneLoop(Counting(engine)), PruneLoop(Counting(other))]
        nexts = [await loop.step(clock.now_us()) for loop in loops]
        assert nexts == [clock.now_us() + 60_000_000] * 2
        assert done == [PruneResult(days_made=4), PruneResult()]
        clock.advance(DAY)
        for loop in loops:
            await loop.step(clock.now_us())
        assert [one.days_made for one in done[2:]] == [1, 0]
        await other.close()


def test_without_the_care_for_the_default_partition_a_day_cannot_be_made(url):
    """What ``make_day`` looks at first is what makes it work."""

    async def run() -> None:
        async with opened(url) as (engine, _clock):
            await finish(engine, "a")

    asyncio.run(run())
    day_us = NOON_US - NOON_US % 86_400_000_000
    with (
        psycopg.connect(url, autocommit=True) as connection,
        pytest.raises(psycopg.errors.CheckViolation),
    ):
        connection.execute(
            "CREATE TABLE holdfast.history_20270115 PARTITION OF holdfast.history "
            f"FOR VALUES FROM ({day_us}) TO ({day_us + 86_400_000_000})"
        )
    assert ask(url, f"SELECT holdfast.make_day({day_us})") == [(False,)]


async def finish_large(engine: PostgresEngine, clock: VirtualClock, *ids: str) -> None:
    """Finish jobs of about 16 KiB each, one second apart."""
    for number, job_id in enumerate(ids):
        text = shake_256(bytes([number])).hexdigest(8_192)
        await engine.enqueue([NewJob(task="t", id=job_id, payload={"text": text})])
        [job] = await take(engine)
        clock.advance(1)
        await engine.settle([completed(job)])


async def test_whole_days_go_first_and_then_the_oldest_of_a_day_when_there_are_too_many_bytes(url):
    options = PostgresOptions(remember_seconds=10 * DAY, max_history_bytes=256 * 1024)
    async with opened(url, options) as (engine, clock):
        await engine.prune()
        await finish_large(engine, clock, *(f"a{number:02}" for number in range(20)))
        clock.advance(DAY)
        ids = [f"b{number:02}" for number in range(30)]
        await finish_large(engine, clock, *ids)
        await engine.audit([AuditEntry("test", "job", "a00", "ann")])
        pruned = await engine.prune()
        assert pruned.days_dropped == 1, "the first day"
        kept = await known(engine)
        assert kept == ids[-len(kept) :]
        assert 8 <= len(kept) <= 16
        assert pruned.jobs == len(ids) - len(kept)
        assert await engine.prune() == PruneResult(), "there is room for more now"
        assert len(await engine.audited()) == 1


@pytest.mark.parametrize("seed", [0.1, 0.2, 0.3])
async def test_a_sample_is_enough_to_find_the_bound(seed, url, monkeypatch):
    monkeypatch.setattr(prune_module, "_choose_seed", lambda: seed)
    monkeypatch.setattr(prune_module, "_SAMPLE_BLOCKS", 20)
    monkeypatch.setattr(prune_module, "_BLOCKS_AT_ONCE", 3)
    # With one connection: each writes into a block of its own, and a seed chooses among blocks.
    options = PostgresOptions(
        remember_seconds=10 * DAY, max_history_bytes=512 * 1024, max_connections=1
    )
    async with opened(url, options) as (engine, clock):
        every = [f"{number:02}-{n}" for number in range(60) for n in range(10)]
        for number in range(60):
            text = shake_256(bytes([number])).hexdigest(600)
            jobs = [NewJob(task="t", id=f"{number:02}-{n}", payload={"x": text}) for n in range(10)]
            await engine.enqueue(jobs)
            clock.advance(1)
            await engine.settle([completed(job) for job in await take(engine)])
        await engine.prune()
        kept = sorted(job.id for job in (await engine.find(limit=1_000)).jobs)
        assert kept == every[-len(kept) :]
        assert 200 <= len(kept) <= 480, "about 320 of these have 512 KiB"


async def test_what_older_code_finished_has_no_payload(url):
    async with opened(url) as (engine, _clock):
        await finish(engine, "a")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("UPDATE holdfast.history SET payload = NULL")
        [job] = await engine.get(["a"])
        assert job is not None
        assert job.payload == b""


async def test_records_that_expired_are_deleted(url):
    async with opened(url) as (engine, clock):
        soon, later = (Record("once", name, "{}", NOON_US + us) for name, us in TIMES)
        for record in (soon, later):
            await engine.enqueue([NewJob(task="t")], once=record)
        clock.advance(61)
        await engine.prune()
        async with await psycopg.AsyncConnection.connect(url) as connection:
            found = await connection.execute("SELECT name FROM holdfast.records")
            assert await found.fetchall() == [("later",)]
