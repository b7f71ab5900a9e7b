"""Outages on PostgreSQL: one record for all processes, and nothing more to do without one."""

import asyncio

import pytest

from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.model.audit import Attribution
from holdfast.model.failure import Failure
from holdfast.model.job import NewJob
from holdfast.model.outage import DependencyReport, OutagePhase, dependency_of
from holdfast.model.outcome import completed, retry
from tests.engines.postgres.servers import Databases

OPS = Attribution("ann", "test")
DOWN = Failure.of("connection", "refused")


def test_all_processes_share_one_probe(server18: Databases):
    async def main(url: str) -> None:
        engines = [await PostgresEngine.open(url) for _number in range(3)]
        first, second, _third = engines
        try:
            await first.enqueue([NewJob(task="t", queue=f"q{n}@api") for n in range(6)])
            await first.report_outage([DependencyReport("api", tripped=True, failure=DOWN)])
            [known] = await second.outages()
            assert known.phase is OutagePhase.OUT
            queues = [f"q{n}@api" for n in range(6)]
            claims = await asyncio.gather(
                *(
                    engine.claim(queues=queues[n:], worker=f"w{n}", limit=9, wait_seconds=2.5)
                    for n, engine in enumerate(engines)
                )
            )
            jobs = [job for claim in claims for job in claim.jobs]
            assert len(jobs) == 1
            await second.settle([retry(jobs[0], DOWN, 600)])
            [known] = await first.outages()
            assert (known.probes, known.pause_us) == (1, 4_000_000)
        finally:
            for engine in engines:
                await engine.close()

    with server18.fresh() as url:
        asyncio.run(main(url))


def test_settles_and_claims_of_an_outage_do_not_deadlock(server18: Databases):
    """Two processes claim, fail and report at once, in queues in opposite order."""

    async def work(engine: PostgresEngine, queues: list[str]) -> int:
        done = 0
        for turn in range(40):
            claim = await engine.claim(queues=queues, worker="w", limit=4)
            for number, job in enumerate(claim.jobs):
                failed = (turn + number) % 3 == 0
                await engine.settle([retry(job, DOWN) if failed else completed(job)])
                done += not failed
            newest = max((job.claimed_at_us for job in claim.jobs), default=0)
            await engine.report_outage([DependencyReport("api", len(claim.jobs), newest)])
        return done

    async def main(url: str) -> None:
        engines = [await PostgresEngine.open(url) for _number in range(3)]
        queues = ["a@api", "b@api", "c@api"]
        try:
            await engines[0].enqueue(
                [NewJob(task="t", queue=queues[n % 3], key=f"k{n % 5}") for n in range(100)]
            )
            await engines[0].report_outage([DependencyReport("api", tripped=True)])
            await engines[0].set_outage("other", OPS, on=True)
            order = [queues, queues[::-1], queues[1:]]
            async with asyncio.timeout(60):
                await asyncio.gather(*map(work, engines, order))
            assert await engines[0].validate() == []
        finally:
            for engine in engines:
                await engine.close()

    with server18.fresh() as url:
        asyncio.run(main(url))


@pytest.mark.parametrize("queue", ["mail", "mail@api", "a@b@c", "mail@", "@api", "@", "é@ü"])
def test_the_database_knows_the_same_dependencies(server18: Databases, queue: str):
    async def main(url: str) -> None:
        engine = await PostgresEngine.open(url)
        try:
            await engine.enqueue([NewJob(task="t", queue=queue)])
            await engine.report_outage([DependencyReport(dependency_of(queue), tripped=True)])
            assert (await engine.claim(queues=[queue], worker="w")).jobs == []
        finally:
            await engine.close()

    with server18.fresh() as url:
        asyncio.run(main(url))
