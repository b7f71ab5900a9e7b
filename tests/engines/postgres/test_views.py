"""What people see in SQL."""

import asyncio

import psycopg

from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.model.failure import Failure
from holdfast.model.job import NewJob
from holdfast.model.outcome import completed, dead


def test_a_view_says_pending_processing_done_and_failed(server18):
    async def work(url: str) -> None:
        engine = await PostgresEngine.open(url)
        jobs = [NewJob(task="t", id=name) for name in ("done", "failed", "processing", "pending")]
        await engine.enqueue(jobs)
        claim = await engine.claim(queues=["default"], worker="w1", limit=3)
        first, second, _third = claim.jobs
        failure = Failure.of("timeout", "took 3 s")
        assert await engine.settle([completed(first), dead(second, failure)]) == [None, None]
        await engine.close()

    with server18.fresh() as url:
        asyncio.run(work(url))
        with psycopg.connect(url) as connection:
            seen = connection.execute(
                "SELECT id, status, attempts, owner, error_reason, last_error FROM holdfast.work"
            ).fetchall()
    assert sorted(seen) == [
        ("done", "done", 1, "w1", None, None),
        ("failed", "failed", 1, "w1", "timeout", "took 3 s"),
        ("pending", "pending", 0, None, None, None),
        ("processing", "processing", 1, "w1", None, None),
    ]
