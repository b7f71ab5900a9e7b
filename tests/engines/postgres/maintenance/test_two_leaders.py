"""Several daemons do periodic work: without a leader, and still it is done once."""

import asyncio
from collections import Counter
from pathlib import Path

from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.model.job import NewJob, State
from holdfast.testing import VirtualClock
from tests.e2e.rig import until
from tests.engines.postgres.load import ServerRig

TICKS = str(Path(__file__).parents[1] / "ticks.py")
JOBS = 60
NO_SOCKET = "no socket: another daemon of this store"


def test_each_tick_runs_once_whoever_dies(durable, tmp_path, byte_code):
    with durable.databases.fresh() as url:
        rig = ServerRig(tmp_path, url, byte_code)
        try:
            first, second = rig.run(app=TICKS).ready(), rig.run(app=TICKS).ready()
            until(lambda: len(rig.ledger.ended()) >= 3, "ticks run")
            first.kill()
            so_far = len(rig.ledger.ended())
            until(lambda: len(rig.ledger.ended()) >= so_far + 2, "the other one goes on")
            second.stop()
            recorded = Counter(str(record["job_id"]) for record in rig.records())
            begun, ended = rig.ledger.begun(), rig.ledger.ended()
        finally:
            rig.close()
    assert set(recorded.values()) == {1}
    assert begun.total() <= len(begun) + 1  # one may have been under way when a daemon was killed
    assert set(ended) >= set(recorded)


def test_of_daemons_that_start_at_once_all_run_and_one_takes_commands(durable, tmp_path, byte_code):
    with durable.databases.fresh() as url:
        rig = ServerRig(tmp_path, url, byte_code)
        try:
            rig.run().ready().kill()  # leaves its socket behind
            together = [rig.run() for _number in range(3)]
            others = [one for one in together if NO_SOCKET in one.ready().output]
            [first] = [one for one in together if one not in others]
            assert rig.command("workers", "list").returncode == 0
            first.kill()
            assert NO_SOCKET not in rig.run().ready().output
            assert rig.command("workers", "list").returncode == 0
            for one in others:
                one.stop()
            assert rig.command("workers", "list").returncode == 0, "theirs was not the socket"
        finally:
            rig.close()


def test_many_who_reclaim_at_once_end_each_lease_once(server18):
    """And one job more runs out its attempts: it dies once."""

    async def main(url: str) -> None:
        clock = VirtualClock()
        options = PostgresOptions(listen=False)
        engines = [
            await PostgresEngine.open(url, clock=clock, options=options) for _number in range(3)
        ]
        try:
            news = [
                NewJob(task="t", id=f"j{n}", key=f"k{n % 7}" if n % 2 else None)
                for n in range(JOBS)
            ]
            await engines[0].enqueue([*news, NewJob(task="t", id="last", max_attempts=1)])
            held = (await engines[0].claim(queues=["default"], worker="w", limit=JOBS + 1)).jobs
            clock.advance(3_600)
            ended: Counter[str] = Counter()
            while True:
                found = await asyncio.gather(
                    *(engine.reclaim(limit=25) for engine in engines for _ in range(6))
                )
                lost = [job.id for reclaim in found for job in reclaim.lost]
                ended.update(lost)
                if not lost:
                    break
            assert ended == Counter(job.id for job in held)
            after = await engines[0].get([job.id for job in held])
            assert {job.losses for job in after if job is not None} == {1}
            assert [job.id for job in after if job is not None and job.state is State.DEAD] == [
                "last"
            ]
            for history in await engines[0].history([job.id for job in held]):
                assert history is not None
                assert len(history.attempts) == 1
        finally:
            for engine in engines:
                await engine.close()

    with server18.fresh() as url:
        asyncio.run(main(url))
