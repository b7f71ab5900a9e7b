"""What the measurements share: a backlog, workers on it, and what a job costs either side."""

import asyncio
import contextlib
import dataclasses
import itertools
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg

from bench.brokers import driver as brokers
from bench.brokers import progress
from bench.brokers.driver import Worker

from . import cpu
from .side import BULK, Side, url

LOOK_SECONDS = 0.005
RECORD_SECONDS = 10.0
"""How long the last completions may take to be recorded."""
WARM_UP = 2_000
"""Starts that do not count: connections are opened, statements prepared."""
_NUMBERS = itertools.count()


@dataclasses.dataclass(frozen=True)
class Rate:
    """Jobs a second, and the processor time that one takes, in the server and in the workers."""

    per_second: float
    server_us: float
    worker_us: float


async def execute(statement: str) -> object:
    """Run a statement in the driver's database; return the first value of its answer."""
    async with await psycopg.AsyncConnection.connect(url(), autocommit=True) as connection:
        cursor = await connection.execute(statement.encode())
        row = await cursor.fetchone() if cursor.description is not None else None
        return None if row is None else row[0]


async def fill(side: Side, count: int) -> None:
    """Let there be so many jobs and no others."""
    await execute(side.clear)
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


async def process(
    side: Side,
    root: Path,
    count: int,
    seconds: float,
    processes: int = 1,
    *,
    skip: int = WARM_UP,
    recorded: bool = True,
) -> Rate:
    """Work off so many jobs of a backlog, or as many as so much time allows.

    From the start of the first job that counts to the moment when the last one is ``recorded`` as
    done, if that is to be waited for; if time is up before, to the last start.
    """
    async with working(side, root, processes) as workers:
        begun = await workers[0].some(skip)
        pids = [worker.process.pid for worker in workers]
        before = cpu.used(pids), cpu.used_by_server(url())
        ended = await workers[0].until(count, seconds, LOOK_SECONDS)
        last = ended.last
        if recorded and ended.count >= count:
            last = await _recorded(side)
        after = cpu.used(pids), cpu.used_by_server(url())
    done = ended.count - begun.count
    return Rate(
        done / (last - begun.last),
        1e6 * (after[1] - before[1]) / done,
        1e6 * (after[0] - before[0]) / done,
    )


async def _recorded(side: Side) -> float:
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
