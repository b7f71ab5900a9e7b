"""Which queues a worker serves that nobody has named to it."""

import asyncio

from holdfast.engines.memory.engine import MemoryEngine
from holdfast.model.job import NewJob
from holdfast.model.outcome import completed
from holdfast.testing.loop import VirtualLoop
from holdfast.worker.options import WorkerOptions
from holdfast.worker.registry import Registry
from holdfast.worker.worker import Worker


class Slow(MemoryEngine):
    """An engine that takes long to look for queues."""

    looked = 0
    seconds = 0.0

    async def queues(self, **caller):
        self.looked += 1
        await asyncio.sleep(self.seconds)
        return await super().queues(**caller)


def played(scenario):
    async def run() -> None:
        engine = Slow()
        worker = Worker(engine, Registry(), "w", WorkerOptions(slots=1, inline=True))
        await scenario(engine, worker)
        await worker.stop(0)

    loop = VirtualLoop()
    try:
        loop.run_until_complete(run())
    finally:
        loop.close()


def test_a_queue_is_served_from_when_it_is_seen_until_an_hour_after_it_was_empty():
    async def scenario(engine: Slow, worker: Worker) -> None:
        await engine.enqueue([NewJob(task="t", queue="odd")])
        await worker.look_for_queues()
        assert "odd" in worker._queues()
        [job] = (await engine.claim(queues=["odd"], worker="w")).jobs
        await engine.settle([completed(job)])
        for minutes, served in ((59, True), (2, False)):
            await asyncio.sleep(60 * minutes)
            await worker.look_for_queues()
            assert ("odd" in worker._queues()) is served

    played(scenario)


def test_where_looking_takes_long_it_is_done_less_often():
    async def scenario(engine: Slow, worker: Worker) -> None:
        for seconds, expected in ((0.0, 100), (1.0, 15)):
            engine.seconds, engine.looked = seconds, 0
            for _second in range(100):
                await worker.look_for_queues()
                await asyncio.sleep(3)
            assert abs(engine.looked - expected) <= 2

    played(scenario)
