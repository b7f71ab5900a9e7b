"""Loads into PostgreSQL that are stopped, disturbed or refused: no engine sees half of a dump."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

import psycopg
import pytest

from holdfast.engines.dump.format import (
    DumpedJob,
    DumpRecord,
)
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.engines.postgres.restore.restore import ProgressHooks, RestoreResult, load
from holdfast.model.errors import (
    CorruptDump,
    InvalidInput,
    StorageError,
    Unavailable,
)
from holdfast.model.job import NewJob, State
from holdfast.model.policy import QueuePolicy
from holdfast.testing import VirtualClock
from tests.engines.dump.test_dumps import WHY, everything, told

from .servers import Databases
from .stores import connected, filled, rows_in, stream


@pytest.fixture
def url(server18: Databases) -> Iterator[str]:
    with server18.fresh() as one:
        yield one


# --- stopped in the middle ----------------------------------------------------------------------


class StoppedError(Exception):
    """This load was killed."""


async def stopping(records: Sequence[DumpRecord], at: int) -> AsyncIterator[list[DumpRecord]]:
    """Pass records on, and then no more."""
    for one in records[:at]:
        yield [one]
    raise StoppedError


async def test_interrupted_after_every_part_it_goes_on_and_nobody_uses_it_meanwhile(url):
    clock = VirtualClock()
    records = await everything(await filled(clock))
    known = set()
    for at in range(1, len(records)):
        with pytest.raises(StoppedError):
            await load(url, stopping(records, at), part_records=2)
        known.add(sum(rows_in(url).values()) - 1)
        with pytest.raises(Unavailable, match="under way or was interrupted after"):
            await connected(url, clock)
    assert len(known) > len(records) // 3
    loaded = await load(url, stream(records), part_records=2)
    assert loaded.known_records >= len(records) - 4
    engine = await connected(url, clock)
    assert told(await everything(engine)) == told(records)
    assert await engine.validate() == []
    await engine.close()
    assert rows_in(url)["loading"] == 0


async def test_a_load_that_goes_on_with_something_else_is_refused_and_can_begin_anew(url):
    clock = VirtualClock()
    source = await filled(clock)
    records = await everything(source)
    with pytest.raises(StoppedError):
        await load(url, stopping(records, 9), part_records=2)
    before = rows_in(url)
    await source.set_policy("mail", None, WHY)
    changed = await everything(source)
    with pytest.raises(InvalidInput, match="half loaded with something else"):
        await load(url, stream(changed))
    with pytest.raises(InvalidInput, match="half loaded with something else"):
        await load(url, stream(records[:4]))
    assert rows_in(url) == before
    await load(url, stream(changed), anew=True)
    engine = await connected(url, clock)
    assert told(await everything(engine)) == told(changed)
    await engine.close()


async def test_of_two_loads_at_once_one_is_refused(url):
    records = await everything(await filled(VirtualClock()))
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncIterator[list[DumpRecord]]:
        yield records[:9]
        begun.set()
        await go_on.wait()
        yield records[9:]

    slow = asyncio.ensure_future(load(url, slowly(), part_records=4))
    await begun.wait()
    fast = await load(url, stream(records), part_records=4)
    assert fast.known_records == 8
    go_on.set()
    with pytest.raises(Unavailable, match="another load"):
        await slow
    assert rows_in(url)["loading"] == 0


# --- refused ------------------------------------------------------------------------------------


async def put_job(engine: PostgresEngine) -> None:
    await engine.enqueue([NewJob(task="t")])


async def put_flag(engine: PostgresEngine) -> None:
    await engine.set_flag("f", WHY, on=True)


async def put_policy(engine: PostgresEngine) -> None:
    await engine.set_policy("q", QueuePolicy(paused=True), WHY)


@pytest.mark.parametrize("put", [put_job, put_flag, put_policy])
@pytest.mark.parametrize("anew", [False, True])
async def test_what_has_anything_in_it_is_left_as_it_is(url, put, anew):
    clock = VirtualClock()
    engine = await connected(url, clock)
    await put(engine)
    before = rows_in(url)
    with pytest.raises(InvalidInput, match="is not empty: there are rows in"):
        await load(url, (await filled(clock)).dump(), anew=anew)
    assert rows_in(url) == before
    await engine.close()


async def test_where_somebody_waits_for_work_nothing_is_loaded(url):
    with psycopg.connect(url) as connection:
        connection.execute(
            "INSERT INTO holdfast.waiting VALUES ('w', holdfast.now_us() + 60000000, '{q}')"
        )
    with pytest.raises(Unavailable, match="workers wait for jobs there: stop"):
        await load(url, (await filled(VirtualClock())).dump())
    assert rows_in(url)["loading"] == 0


async def test_without_tables_it_says_what_to_do(url):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA holdfast CASCADE")

    with pytest.raises(Unavailable, match="run holdfast migrate"):
        await load(url, (await filled(VirtualClock())).dump())
    with pytest.raises(Unavailable, match="run holdfast migrate"):
        await PostgresEngine.open(url)


async def test_a_dump_without_a_head_or_with_a_job_twice_is_refused(url):
    records = await everything(await filled(VirtualClock()))
    jobs = [one for one in records if isinstance(one, DumpedJob)]
    [pending, *_more] = [one for one in jobs if one.job.state is State.PENDING]
    with pytest.raises(CorruptDump, match="no head"):
        await load(url, stream(records[1:]))
    assert rows_in(url)["loading"] == 0
    with pytest.raises(CorruptDump, match="twice"):
        await load(url, stream([*records, pending]))


def test_who_writes_into_it_meanwhile_is_noticed_before_anybody_uses_it(url):
    """An engine that was open before the load began."""

    async def run() -> RestoreResult:
        clock = VirtualClock()
        early = await connected(url, clock)
        records = await everything(await filled(clock))

        async def disturbed() -> AsyncIterator[list[DumpRecord]]:
            yield records[:-3]
            claim = await early.claim(queues=["default", "keyed"], worker="w", limit=9)
            assert claim.jobs == []  # an unfinished load has no claimable jobs
            await early.enqueue([NewJob(task="t")])
            await early.close()
            yield records[-3:]

        return await load(url, disturbed(), part_records=2)

    with pytest.raises(StorageError, match="12 of 11 job records"):
        asyncio.run(run())
    with pytest.raises(Unavailable, match="interrupted"):
        asyncio.run(connected(url, VirtualClock()))


async def test_progress_is_told(url):
    gone: list[int] = []
    back: list[int] = []
    source = await filled(VirtualClock())
    hooks = ProgressHooks(gone.append, back.append)
    await load(url, stream(await everything(source)), hooks=hooks)
    assert gone == sorted(gone)
    assert (gone[-1], back[-1]) == (11, 11)
