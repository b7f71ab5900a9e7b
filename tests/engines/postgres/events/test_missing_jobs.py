"""The audit of events and their jobs."""

import psycopg
import pytest

from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.model.errors import InvalidInput
from holdfast.model.outcome import completed, dead
from holdfast.testing.conformance.fixture import FAILURE

from .appending import append, new_event, subscribe


async def test_a_job_is_unfinished_dead_or_finished_or_it_is_missing(opened, url):
    async with opened() as engine:
        await engine.append([new_event("before")])  # nobody wanted it
        await subscribe(engine)
        receipts = await engine.append([new_event(key) for key in "abcd"])
        jobs = (await engine.claim(queues=["chronicle"], worker="w", limit=3)).jobs
        await engine.settle([completed(jobs[0]), dead(jobs[1], FAILURE)])
        audit = await engine.missing_jobs()
        assert (audit.missing, audit.events) == ([], 5)
        with psycopg.connect(url) as connection:
            connection.execute("DELETE FROM holdfast.jobs WHERE state = 1")
        again = await engine.missing_jobs()
        [missing] = again.missing
        assert missing == ("default", receipts[3].id, "chronicle")
        # Only what came since the mark, and the mark stays until all is told.
        assert (await engine.missing_jobs(mark=audit.mark)).events == 0
        assert (await engine.missing_jobs(limit=1)).mark == ""


async def test_an_event_that_was_uncommitted_at_the_mark_is_in_the_next_audit(opened, url):
    async with opened() as engine:
        await subscribe(engine)
        with psycopg.connect(url) as connection:
            append(connection, new_event("a"))
            await engine.append([new_event("b")])
            first = await engine.missing_jobs()
            assert first.events == 1
            connection.execute("DELETE FROM holdfast.jobs WHERE key = 'a'")
        second = await engine.missing_jobs(mark=first.mark)
        assert len(second.missing) == 1
        third = await engine.missing_jobs(mark=second.mark)
        assert (third.events, third.missing) == (0, [])


@pytest.mark.parametrize("mark", ["x", "1:2:", "9" * 20, 7])
async def test_a_mark_that_is_none_is_refused(opened, mark):
    async with opened() as engine:
        with pytest.raises(InvalidInput, match="mark"):
            await engine.missing_jobs(mark=mark)


async def test_jobs_that_are_forgotten_are_not_missing(url):
    engine = await PostgresEngine.open(url, options=PostgresOptions(remember_seconds=0.000_001))
    try:
        await subscribe(engine)
        await engine.append([new_event("a")])
        jobs = (await engine.claim(queues=["chronicle"], worker="w")).jobs
        await engine.settle([completed(jobs[0])])
        assert (await engine.missing_jobs()).events == 0
    finally:
        await engine.close()
