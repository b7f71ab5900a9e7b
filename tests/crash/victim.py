"""A process that works until it is killed, saying on its output what it was told."""

import asyncio
import itertools
import os
import random
import sys

from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.model.failure import Failure
from holdfast.model.job import NewJob
from holdfast.model.outcome import completed, dead, retry

FAILURE = Failure.of("upstream_5xx", "503")


def say(what: str, job_id: str) -> None:
    os.write(1, f"{what} {job_id}\n".encode())


async def produce(engine: JournalEngine, prefix: str) -> None:
    for number in itertools.count():
        count = 1 + number % 3
        jobs = [
            NewJob(task="t", id=f"{prefix}-{number}-{n}", payload={"x": "y" * 100}, max_attempts=99)
            for n in range(count)
        ]
        for receipt in await engine.enqueue(jobs):
            say("enqueued", receipt.id)


async def consume(engine: JournalEngine, worker: str, rng: random.Random) -> None:
    outcomes: list = []
    while True:
        claim = await engine.claim(
            queues=["default"], worker=worker, limit=5, settle=outcomes, lease_seconds=1
        )
        for outcome, refused in zip(outcomes, claim.settled, strict=True):
            if refused is None and outcome.kind in ("completed", "dead"):
                say(outcome.kind, outcome.id)
        outcomes = []
        for job in claim.jobs:
            say("token", f"{job.id} {job.token}")
            roll = rng.random()
            if roll < 0.8:
                outcomes.append(completed(job))
            elif roll < 0.9:
                outcomes.append(retry(job, FAILURE))
            else:
                outcomes.append(dead(job, FAILURE))
        if not claim.jobs:
            await asyncio.sleep(0)


async def main(directory: str, seed: int) -> None:
    options = JournalOptions(segment_bytes=256 * 1024, compact_bytes=512 * 1024)
    engine = await JournalEngine.open(directory, options=options)
    say("opened", str(seed))
    rng = random.Random(seed)
    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(produce(engine, f"{seed}.{number}"))
        for number in range(2):
            group.create_task(consume(engine, f"own/{number}", rng))
        group.create_task(consume(engine, "remote", rng))


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
