"""How much is looked at: little, however many jobs wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import psycopg
import pytest

from holdfast.engines.postgres.admin import groups as groups_module
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.model.audit import Attribution
from holdfast.model.failure import Failure, FailureClass
from holdfast.model.job import NewJob
from holdfast.model.outcome import completed, dead
from holdfast.model.policy import QueuePolicy
from holdfast.model.search import Filter
from tests.engines.postgres.schema.test_migrations import AS_BEFORE, rows


@pytest.fixture
def made(server18):
    with server18.fresh() as url:
        yield url


READ = """
SELECT (SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'jobs') + sum(idx_tup_read)
FROM pg_stat_user_indexes WHERE relname = 'jobs'
"""


async def claim_one_by_one(engine: PostgresEngine) -> None:
    for _time in range(5):
        assert (await engine.claim(queues=["default"], worker="w")).jobs


async def claim_for_very_many(engine: PostgresEngine) -> None:
    queues = ["default", *(f"none{number}" for number in range(1_500))]
    assert (await engine.claim(queues=queues, worker="w")).jobs


async def take_turns(engine: PostgresEngine) -> None:
    await engine.enqueue([NewJob(task="t", queue="fair", tenant=name) for name in "abc"])
    for _time in range(3):
        [job] = (await engine.claim(queues=["fair"], worker="w")).jobs
        assert await engine.settle([completed(job)]) == [None]


async def name_queues(engine: PostgresEngine) -> None:
    await engine.enqueue([NewJob(task="t", queue=f"q{n}", key="k") for n in range(9) for _ in "ab"])
    assert await engine.queues() == ["default", *(f"q{n}" for n in range(9))]


LOOKS = {
    "in lanes": claim_one_by_one,
    "of very many": claim_for_very_many,
    "by turns": take_turns,
    "queues": name_queues,
}


async def let_tenants_take_turns(engine: PostgresEngine) -> None:
    policy = QueuePolicy(fair=True, max_in_flight=2)
    await engine.set_policy("fair", policy, Attribution("ann", "to see"))


async def with_engine(url: str, work: Callable[[PostgresEngine], Awaitable[None]]) -> None:
    engine = await PostgresEngine.open(url, options=PostgresOptions(listen=False))
    try:
        await work(engine)
    finally:
        await engine.close()


def looked_at(url: str, work: Callable[[PostgresEngine], Awaitable[None]]) -> int:
    """Do something where 2,000 jobs wait; return how many jobs and index entries were read."""
    asyncio.run(with_engine(url, let_tenants_take_turns))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(AS_BEFORE, [[f"{n:04}" for n in range(2_000)]])
        connection.execute("ANALYZE holdfast.jobs")

    [[before]] = rows(url, READ)
    asyncio.run(with_engine(url, work))  # what a connection has counted is there when it has ended
    [[after]] = rows(url, READ)
    return int(str(after)) - int(str(before))


@pytest.mark.parametrize("name", LOOKS)
def test_few_jobs_are_looked_at_however_many_wait(made, name):
    assert looked_at(made, LOOKS[name]) < 500


@pytest.mark.parametrize(
    ("name", "statement", "old", "new"),
    [
        ("in lanes", "claim", "queue_number(", "x("),
        ("in lanes", "read_watermarks", "queue_number(", "x("),
        ("of very many", "read_all_watermarks", "queue_number(", "x("),
        (
            "by turns",
            "realign_lines",
            "p.line = 2 AND j.queue = p.queue AND j.line = 1",
            "j.line <> 9",
        ),
        (
            "by turns",
            "drop_turns",
            "j.line = 2 AND j.queue = t.queue AND j.tenant",
            "j.tenant || ''",
        ),
        ("by turns", "lock_dependents", "AND w.line = 0", ""),
        ("queues", "list_queues", "queue_number(", "x("),
    ],
)
def test_control_a_statement_without_its_index_looks_at_all(
    made, rewritten, name, statement, old, new
):
    rewritten(lambda file, text: text.replace(old, new) if file == statement else text)
    rows(made, "CREATE FUNCTION holdfast.x(text) RETURNS int IMMUTABLE RETURN length($1)")
    assert looked_at(made, LOOKS[name]) > 2_000


# --- dead letters -------------------------------------------------------------------------------

LETTERS = 2_000
COPY_THE_ONE = """
INSERT INTO holdfast.dead
SELECT c.* FROM holdfast.dead AS d
CROSS JOIN generate_series(2, {count}) AS n
CROSS JOIN jsonb_populate_record(d, jsonb_build_object('id', n, 'scope', 's' || n)) AS c
"""
READ_OF_DEAD = """
SELECT
    (SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE relname LIKE 'dead%')
    + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname LIKE 'dead%')
"""


async def let_one_die(engine: PostgresEngine) -> None:
    await engine.enqueue([NewJob(task="t")])
    [job] = (await engine.claim(queues=["default"], worker="w")).jobs
    assert await engine.settle([dead(job, Failure.of("timeout", "no answer"))]) == [None]


async def fold(engine: PostgresEngine) -> None:
    await engine.prune()


async def list_groups(engine: PostgresEngine) -> None:
    transient = (FailureClass.TRANSIENT,)
    for wanted in (Filter(), Filter(queues=("default",)), Filter(classes=transient)):
        [group] = await engine.groups(wanted)
        assert (group.count, group.scopes, sum(group.trend)) == (LETTERS, LETTERS, LETTERS)


def read_for_groups(url: str) -> int:
    """List the groups of many dead letters; return how many rows and index entries were read."""
    asyncio.run(with_engine(url, let_one_die))
    rows(url, COPY_THE_ONE.format(count=LETTERS))
    asyncio.run(with_engine(url, fold))
    rows(url, "ANALYZE holdfast.dead, holdfast.dead_tallies, holdfast.dead_changes")
    [[before]] = rows(url, READ_OF_DEAD)
    asyncio.run(with_engine(url, list_groups))
    [[after]] = rows(url, READ_OF_DEAD)
    return int(str(after)) - int(str(before))


def test_groups_are_listed_without_reading_the_dead_letters(made):
    assert read_for_groups(made) < 100


def test_control_groups_that_are_counted_read_every_dead_letter(made, monkeypatch):
    monkeypatch.setattr(groups_module, "_is_of_whole_groups", lambda *_: False)
    assert read_for_groups(made) > 3 * LETTERS
