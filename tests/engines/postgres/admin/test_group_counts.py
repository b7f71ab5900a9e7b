"""The counts of groups of dead letters: whatever happens, they are what a recount says."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest
from msgspec.structs import replace

from holdfast.engines.postgres.connection.statements import statement
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.engines.postgres.maintenance import prune
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.model.actions import ArchiveJobs, PurgeJobs, ReplayJobs, RestoreJobs, RetargetJobs
from holdfast.model.audit import Attribution
from holdfast.model.failure import Failure, FailureClass
from holdfast.model.failure_groups import group_dead_jobs
from holdfast.model.job import NewJob, State
from holdfast.model.outcome import dead
from holdfast.model.search import Filter
from holdfast.testing import VirtualClock
from tests.engines.postgres.schema.test_migrations import rows

WHO = Attribution("ann", "to see")
TIMEOUT = Failure.of("timeout", "no answer from 10.0.0.1")
FAILURES = (
    TIMEOUT,
    replace(TIMEOUT, status=504),
    replace(TIMEOUT, failure_class=FailureClass.DETERMINISTIC),
    Failure("odd", FailureClass.UNKNOWN, ""),
)
ACTIONS = (ReplayJobs(), ArchiveJobs(), RestoreJobs(), PurgeJobs(), RetargetJobs("t1"))
FILTERS = (
    Filter(),
    Filter(queues=("q0",)),
    Filter(classes=(FailureClass.TRANSIENT,)),
    Filter(statuses=(0,), tasks=("t0",)),
    Filter(fingerprint=""),
    Filter(error_reasons=("timeout",), without=(Filter(queues=("q1",)),)),
    Filter(without=(Filter(classes=(FailureClass.TRANSIENT,)),)),
    Filter(states=(State.ARCHIVED,)),
    Filter(without=(Filter(states=(State.DEAD,)),)),
    Filter(tenant="a"),
)


@pytest.fixture(params=["server18", "server16"])
def url(request):
    with request.getfixturevalue(request.param).fresh() as fresh:
        yield fresh


@pytest.fixture
def made(server18):
    with server18.fresh() as fresh:
        yield fresh


@asynccontextmanager
async def opened(url: str, clock: VirtualClock | None = None) -> AsyncIterator[PostgresEngine]:
    options = PostgresOptions(listen=False)
    engine = await PostgresEngine.open(url, clock=clock or VirtualClock(), options=options)
    try:
        yield engine
    finally:
        await engine.close()


async def let_die(engine: PostgresEngine, jobs: list[NewJob], *failures: Failure) -> None:
    await engine.enqueue(jobs)
    queues = sorted({job.queue for job in jobs})
    claim = await engine.claim(queues=queues, worker="w", limit=1_000)
    outcomes = [
        dead(job, failures[number % len(failures)]) for number, job in enumerate(claim.jobs)
    ]
    assert await engine.settle(outcomes) == [None] * len(outcomes)


async def check(engine: PostgresEngine, now_us: int) -> None:
    letters = (await engine.find(Filter(states=(State.DEAD,)), limit=1_000)).jobs
    for wanted in FILTERS:
        found = [job for job in letters if wanted.matches(job)]
        assert await engine.groups(wanted) == group_dead_jobs(found, now_us), wanted
    assert await engine.validate() == []


async def live(engine: PostgresEngine, clock: VirtualClock, rng: random.Random) -> None:
    for step in range(40):
        clock.advance(rng.choice([1, 60, 3_600]))
        if rng.random() < 0.5:
            jobs = [
                NewJob(
                    task=f"t{rng.randrange(2)}",
                    queue=f"q{rng.randrange(2)}",
                    tenant=rng.choice("ab"),
                    scope=rng.choice(["", "x", "y"]),
                )
                for _ in range(rng.randrange(1, 6))
            ]
            await let_die(engine, jobs, *rng.sample(FAILURES, 2))
        else:
            some = rng.choice([*FILTERS[:4], Filter(tenant="b", scope="x")])
            await engine.operate(rng.choice(ACTIONS), some, WHO, limit=rng.randrange(1, 5))
        if rng.random() < 0.3:
            await engine.prune()
        if step % 4 == 3:
            await check(engine, clock.now_us())


@pytest.mark.parametrize("seed", [1, 2])
async def test_after_any_life_groups_are_as_a_recount_says(url, monkeypatch, seed):
    monkeypatch.setattr(prune, "CHANGES_AT_ONCE", 3)  # a death and its end in different parts
    clock = VirtualClock()
    async with opened(url, clock) as engine:
        await live(engine, clock, random.Random(seed))
        await check(engine, clock.now_us())
        await engine.operate(PurgeJobs(), Filter(states=(State.DEAD,)), WHO)
        await engine.prune()
        assert await engine.groups() == []
    tables = ("dead_changes", "dead_groups", "dead_tallies")
    assert [rows(url, f"TABLE holdfast.{name}") for name in tables] == [[], [], []]


@pytest.mark.parametrize(
    "harm",
    [
        "DELETE FROM holdfast.dead_changes",
        "UPDATE holdfast.dead_groups SET scopes = scopes + 1",
        "UPDATE holdfast.dead_tallies SET count = count + 1 WHERE kind = 3",
        "DELETE FROM holdfast.dead_tallies WHERE kind = 0",
        "ALTER TABLE holdfast.dead DISABLE TRIGGER count_deleted; DELETE FROM holdfast.dead",
    ],
)
async def test_control_wrong_counts_are_found_and_a_recount_mends_them(made, harm):
    clock = VirtualClock()
    async with opened(made, clock) as engine:
        await let_die(engine, [NewJob(task="t", scope=scope) for scope in "abc"], TIMEOUT)
        await engine.prune()
        await let_die(engine, [NewJob(task="t", scope=scope) for scope in "cd"], TIMEOUT)
        assert await engine.validate() == []
        rows(made, harm)
        [problem] = await engine.validate()
        assert "recount_dead" in problem
        rows(made, "SELECT holdfast.recount_dead()")
        await check(engine, clock.now_us())
        await engine.prune()
        await check(engine, clock.now_us())


async def test_counts_go_with_a_truncated_table(made):
    async with opened(made) as engine:
        await let_die(engine, [NewJob(task="t")], TIMEOUT)
        await engine.prune()
        await let_die(engine, [NewJob(task="t")], TIMEOUT)
        rows(made, "TRUNCATE holdfast.dead")
        assert await engine.groups() == []
        assert await engine.validate() == []


async def test_whoever_may_write_dead_letters_need_no_rights_on_the_counts(made):
    async with opened(made) as engine:
        await let_die(engine, [NewJob(task="t")], TIMEOUT)
        rows(made, "CREATE ROLE writer LOGIN")
        try:
            rows(made, "GRANT USAGE ON SCHEMA holdfast TO writer")
            rows(made, "GRANT SELECT, DELETE ON holdfast.dead TO writer")
            rows(made.replace("user=holdfast", "user=writer"), "DELETE FROM holdfast.dead")
        finally:
            rows(made, "DROP OWNED BY writer; DROP ROLE writer")
        assert await engine.groups() == []
        assert await engine.validate() == []


UNCOMMITTED = {
    "a settle": b"DELETE FROM holdfast.dead",
    "a fold": statement("fold_dead_changes") % {b"limit": b"9"},
}


@pytest.mark.parametrize("name", UNCOMMITTED)
async def test_who_settles_waits_for_nobody_who_counts(made, name):
    async with opened(made) as engine:
        await let_die(engine, [NewJob(task="t")], TIMEOUT)
        async with await psycopg.AsyncConnection.connect(made) as connection:
            await connection.execute(UNCOMMITTED[name])
            await asyncio.wait_for(let_die(engine, [NewJob(task="t")], TIMEOUT), 10)
            [group] = await engine.groups()
            assert group.count == 2
        [group] = await engine.groups()
        assert group.count == (1 if name == "a settle" else 2)
        assert await engine.validate() == []


async def test_two_who_fold_at_once_count_once(made, monkeypatch):
    monkeypatch.setattr(prune, "CHANGES_AT_ONCE", 2)
    async with opened(made) as one, opened(made) as other:
        for number in range(12):
            await let_die(one, [NewJob(task="t", scope=f"s{number % 3}")], TIMEOUT)
        await asyncio.gather(one.prune(), other.prune())
        [group] = await one.groups()
        assert (group.count, group.scopes) == (12, 3)
        assert await one.validate() == []
