"""What the measurements share: a backlog, workers on it, and what a job costs either side."""

import asyncio
import contextlib
import dataclasses
import itertools
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import psycopg

from bench.brokers import driver as brokers
from bench.brokers import progress
from bench.brokers.driver import Worker

from . import cpu
from .side import BULK, Side, url

LOOK_SECONDS = 0.005
READY_SECONDS = 30.0
"""How long workers may take to start."""
RECORD_SECONDS = 10.0
"""How long the last completions may take to be recorded."""
WARM_UP = 20
IDLE_SECONDS = 0.3
"""After which a worker that has nothing to do is not in the middle of a transaction."""
_NUMBERS = itertools.count()


@dataclasses.dataclass(frozen=True)
class Rate:
    """Jobs a second, and the processor time that one takes, in the server and in the workers."""

    per_second: float
    server_us: float
    worker_us: float


class Meter:
    """Processor time, of some processes and of the server, from now on."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._before = cpu.used(pids), cpu.used_by_server(url())

    def rate(self, jobs: int, seconds: float) -> Rate:
        """Return what so many jobs in so much time came to."""
        workers, server = cpu.used(self._pids), cpu.used_by_server(url())
        server_us, worker_us = server - self._before[1], workers - self._before[0]
        return Rate(jobs / seconds, 1e6 * server_us / jobs, 1e6 * worker_us / jobs)


async def execute(statement: str) -> object:
    """Run a statement in the driver's database; return the first value of its answer."""
    async with await psycopg.AsyncConnection.connect(url(), autocommit=True) as connection:
        cursor = await connection.execute(statement.encode())
        row = await cursor.fetchone() if cursor.description is not None else None
        return None if row is None else row[0]


async def fill(side: Side, count: int) -> None:
    """Let there be so many jobs more."""
    for _chunk in range(count // BULK):
        await side.put_many()
    await execute("ANALYZE")  # or the first plans are made for empty tables


@contextlib.asynccontextmanager
async def working(side: Side, root: Path, processes: int = 1) -> AsyncIterator[list[Worker]]:
    """Run worker processes, nothing counted yet."""
    directory = root / f"run-{next(_NUMBERS)}"
    (directory / "progress").mkdir(parents=True)
    os.environ[progress.DIRECTORY] = str(directory / "progress")
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(brokers.working(side, directory)) for _ in range(processes)]


async def warm_up(side: Side, workers: Sequence[Worker]) -> None:
    """Have every process do something: then it is connected, and its statements are prepared."""
    give_up = time.monotonic() + READY_SECONDS
    while (now := progress.read(workers[0].progress)).processes < len(workers):
        ended = [worker for worker in workers if worker.process.poll() is not None]
        if ended or time.monotonic() > give_up:
            said = "\n".join(worker.log.read_text()[-2000:] for worker in ended or workers)
            raise RuntimeError(f"only {now.processes} of {len(workers)} workers work:\n{said}")
        if len(workers) > 1:
            await side.put_many()  # or the first one that wakes takes them all
        for _ in range(WARM_UP):
            await side.put()
    await recorded(side)
    await asyncio.sleep(IDLE_SECONDS)


@contextlib.contextmanager
def held_still(workers: Sequence[Worker]) -> Iterator[None]:
    """Have these processes do nothing for a while."""
    for worker in workers:
        worker.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for worker in workers:
            worker.process.send_signal(signal.SIGCONT)


async def work_off(
    side: Side, workers: Sequence[Worker], count: int, seconds: float, before: int
) -> Rate:
    """Work off a backlog of so many, or as much of it as so much time allows.

    ``before`` is how many jobs had started already. From the start of the first to the moment when
    the last one is recorded as done; if time is up before, to the last start.
    """
    meter = Meter([worker.process.pid for worker in workers])
    begun = await workers[0].some(before + 1)
    ended = await workers[0].until(before + count, seconds, LOOK_SECONDS)
    last = ended.last if ended.count < before + count else await recorded(side)
    return meter.rate(ended.count - begun.count, last - begun.last)


async def recorded(side: Side) -> float:
    """Wait until every completion is recorded; return when that was."""
    give_up = time.monotonic() + RECORD_SECONDS
    async with await psycopg.AsyncConnection.connect(url(), autocommit=True) as connection:
        while True:
            cursor = await connection.execute(side.unfinished.encode())
            if await cursor.fetchone() == (False,):
                return time.monotonic()
            if time.monotonic() > give_up:
                raise RuntimeError(f"jobs were started but not recorded in {RECORD_SECONDS:g} s")
            await asyncio.sleep(LOOK_SECONDS)
