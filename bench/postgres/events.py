"""``python -m bench.postgres.events DIRECTORY COUNT``: events in, and projected by a worker.

Append in bulk with one subscription; then a backlog of events worked off by ``holdfast run``, of
1,000 keys and of one, to a plain table and to the chronicle. Beside it a plain psycopg program that
writes the same rows.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import LiteralString

import psycopg

from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.model.audit import Attribution
from holdfast.projections.chronicle import PROJECTION as CHRONICLE
from holdfast.projections.declaration import Projection
from holdfast.projections.generations import Generations

from . import plain_events
from .answering import answer
from .event_app import books, renamed
from .measuring import READY_SECONDS, Meter, Rate, execute
from .side import BULK, url

KEYS = 1_000
_CLEAR = "TRUNCATE holdfast.jobs, holdfast.history, holdfast.chronicle_events, holdfast.fresh_keys"
_BEGUN = "SELECT count(*) FROM holdfast.history"
_ENDED = "SELECT (NOT EXISTS (SELECT FROM holdfast.jobs))::int"
_LOOK_SECONDS = 0.05
"""Longer than for jobs: a look passes by the rows that are done and not yet removed."""
_WORKER = (
    *("-m", "holdfast", "run", f"{__package__}.event_app:app"),
    *("--metrics-port", "0", "--log-level", "error", "--projection"),
)


@contextlib.asynccontextmanager
async def subscribed(projection: Projection) -> AsyncIterator[PostgresEngine]:
    """Open the engine with an empty store and this projection alone."""
    await execute(_CLEAR)
    engine = await PostgresEngine.open(url())
    try:
        generations = Generations(engine)
        for name in await engine.subscriptions():
            await engine.set_subscription(name, None, Attribution("bench", "one at a time"))
        await generations.ensure(projection)
        await generations.subscribe(projection)
        yield engine
    finally:
        await engine.close()


async def append(engine: PostgresEngine, count: int, keys: int) -> Rate:
    """Append so many events, a thousand a call."""
    meter, start = Meter([os.getpid()]), time.perf_counter()
    for first in range(0, count, BULK):
        await engine.append(renamed(first, BULK, keys))
    return meter.rate(count, time.perf_counter() - start)


def project(root: Path, projection: Projection, count: int) -> Rate:
    """Work off the backlog by a daemon; count from its first completed jobs on."""
    give_up = time.monotonic() + READY_SECONDS + count / 100
    with (root / "worker.log").open("ab") as log:
        command = [sys.executable, *_WORKER, projection.name]
        worker = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        with psycopg.connect(url(), autocommit=True) as connection:
            begun = _wait(connection, worker, give_up, _BEGUN)
            meter, start = Meter([worker.pid]), time.perf_counter()
            _wait(connection, worker, give_up, _ENDED)
        return meter.rate(count - begun, time.perf_counter() - start)
    except RuntimeError as error:
        raise RuntimeError(f"{error}: {(root / 'worker.log').read_text()[-2000:]}") from None
    finally:
        worker.terminate()
        worker.wait()


def _wait(
    connection: psycopg.Connection,
    worker: subprocess.Popen[bytes],
    give_up: float,
    query: LiteralString,
) -> int:
    """Wait until this is not zero; return it."""
    while True:
        row = connection.execute(query).fetchone()
        if row is not None and row[0]:
            return int(row[0])
        if worker.poll() is not None or time.monotonic() > give_up:
            raise RuntimeError("the worker has ended, or is too slow")
        time.sleep(_LOOK_SECONDS)


async def measure(root: Path, told_count: str) -> dict[str, float]:
    """Measure with so many events each."""
    count = int(told_count) // BULK * BULK
    found: dict[str, float] = {}

    def keep(name: str, rate: Rate) -> None:
        found[f"{name}_per_second"] = rate.per_second
        found[f"{name}_server_us"] = rate.server_us
        found[f"{name}_client_us"] = rate.worker_us

    await execute(_CLEAR)
    keep("plain_append", plain_events.append(count, KEYS))
    keep("plain_project", plain_events.project(count))
    for name, projection, keys in (
        ("books", books, KEYS),
        ("hot_key", books, 1),
        ("chronicle", CHRONICLE, KEYS),
    ):
        async with subscribed(projection) as engine:
            keep(f"{name}_append", await append(engine, count, keys))
        keep(f"{name}_project", project(root, projection, count))
    return found


if __name__ == "__main__":
    answer(measure)
