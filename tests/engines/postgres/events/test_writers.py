"""Many writers at once, some of which roll back: every committed event has its job."""

import asyncio
import random
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.model.event_search import EventFilter
from holdfast.model.outcome import completed

from .appending import append, new_event, subscribe
from .checkpoint_reader import LastIdReader

WRITERS, TRANSACTIONS, KEYS = 8, 25, 12
ROLLED_BACK = 0.15


def write(url: str, seed: int) -> list[tuple[str, str]]:
    """Append in transactions; return the key and id of every event that was committed."""
    rng = random.Random(seed)
    committed: list[tuple[str, str]] = []
    with psycopg.connect(url) as connection:
        for _number in range(TRANSACTIONS):
            key = f"k{rng.randrange(KEYS)}"
            events = [new_event(key) for _event in range(rng.randrange(1, 4))]
            receipts = append(connection, *events)
            connection.execute("SELECT 1")  # others commit meanwhile
            if rng.random() < ROLLED_BACK:
                connection.rollback()
            else:
                connection.commit()
                committed += [(key, one.id) for one in receipts]
    return committed


async def project(engine: PostgresEngine, total: asyncio.Future[int]) -> dict[str, list[str]]:
    """Complete the jobs as they come until all are; return the events of each key, in order."""
    applied: defaultdict[str, list[str]] = defaultdict(list)
    count = 0
    while not total.done() or count < total.result():
        jobs = (await engine.claim(queues=["chronicle"], worker="w", limit=20)).jobs
        assert len({job.ties.key for job in jobs}) == len(jobs)
        for job in jobs:
            applied[str(job.ties.key)].append(job.id.partition(":")[2])
        assert await engine.settle([completed(job) for job in jobs]) == [None] * len(jobs)
        count += len(jobs)
    return applied


@pytest.mark.parametrize("seed", [19])
async def test_every_committed_event_has_its_job_and_a_reader_by_position_loses_some(
    opened, url, seed
):
    async with opened(5_000) as engine:
        await subscribe(engine)
        loop = asyncio.get_running_loop()
        total: asyncio.Future[int] = loop.create_future()
        projecting = asyncio.create_task(project(engine, total))
        reader = LastIdReader(url)
        with ThreadPoolExecutor(WRITERS) as pool:
            writing = [
                loop.run_in_executor(pool, write, url, seed + number) for number in range(WRITERS)
            ]
            while not all(one.done() for one in writing):
                reader.read()
                await asyncio.sleep(0)
            committed = [one for part in await asyncio.gather(*writing) for one in part]
        reader.read()
        reader.close()
        total.set_result(len(committed))
        applied = await projecting
        assert {one for part in applied.values() for one in part} == {one for _, one in committed}
        assert sum(map(len, applied.values())) == len(committed)
        for key, ids in applied.items():
            page = await engine.find_events(EventFilter(key=key), limit=1_000)
            assert ids == [event.id for event in page.events]
        assert (await engine.missing_jobs()).missing == []
        assert await engine.validate() == []
        # The control: what a checkpoint would have missed.
        missed = len(committed) - len(reader.seen)
        print(  # noqa: T201 - how much, for a reader of docs/projections.md
            f"seed {seed}: {len(committed)} events committed, {missed} missed by `id > last`"
        )
        assert len(reader.seen) < len(committed)


async def test_control_a_reader_by_position_loses_the_event_of_a_slow_transaction(opened, url):
    async with opened() as engine:
        await subscribe(engine)
        reader = LastIdReader(url)
        with psycopg.connect(url) as slow:
            [late] = append(slow, new_event("a"))
            [early] = await engine.append([new_event("b")])
            assert early.position > late.position
            reader.read()
        reader.read()
        reader.close()
        assert reader.seen == {early.id}
        jobs = (await engine.claim(queues=["chronicle"], worker="w", limit=9)).jobs
        assert {job.id for job in jobs} == {f"chronicle:{one.id}" for one in (late, early)}
