"""``python -m bench.postgres.bare DIRECTORY SECONDS``: the statements without their engine.

What completes a batch and claims the next, in one transaction, from plain psycopg; and beside it
the engine's own call for that. What lies between is checking, rows made jobs, and the pool. Then
what takes new jobs in, in bulk.
"""

import os
import time
from pathlib import Path
from typing import Any

import psycopg

from holdfast.engines.contract import DEFAULT_LEASE_SECONDS
from holdfast.engines.postgres.connection.statements import statement
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.model.ids import RANDOM_BYTES, rising_uuid7s
from holdfast.model.outcome import Outcome, completed

from .answering import answer
from .holdfast_side import SIDE
from .jobs import BATCH, nothing
from .lists import ADAPTERS, with_lists
from .measuring import Meter, Rate, execute, fill
from .side import BULK, TEXT, url

_QUEUE = "default"
_TOKEN, _PLACE = 17, slice(9, 11)
"""Where in a claimed row its token is, and its place in line."""


def bare(count: int) -> Rate:
    """Claim so many in batches, and complete the last batch with it."""
    claim, complete = statement("claim"), statement("complete")
    anybody = {"caller_tenant": None, "caller_scopes": None, "now_us": None}
    request = anybody | {
        "watermark_queues": [_QUEUE],
        "watermark_priorities": [0],
        "tasks": [nothing.name],
        "limit": BATCH,
        "worker": "bare",
        "nonce": 1,
        "lease_seconds": DEFAULT_LEASE_SECONDS,
        "max_processing_seconds": 3_600.0,
        "guessed": False,
    }
    done = 0
    rows: list[tuple[Any, ...]] = []
    place = [0, 0]
    with psycopg.connect(url(), autocommit=True, context=ADAPTERS) as connection:
        meter, start = Meter([os.getpid()]), time.perf_counter()
        while done < count:
            with connection.pipeline():
                if rows:
                    connection.cursor(binary=True).execute(
                        complete, with_lists(anybody | _held(rows))
                    )
                cursor = connection.cursor(binary=True)
                watermarks = {"watermark_run_at_us": [place[0]], "watermark_seqs": [place[1]]}
                cursor.execute(claim, with_lists(request | watermarks))
            rows = cursor.fetchall()
            assert rows, done
            place = list(max(row[_PLACE] for row in rows))
            done += len(rows)
        connection.cursor(binary=True).execute(complete, with_lists(anybody | _held(rows)))
        return meter.rate(done, time.perf_counter() - start)


def _held(rows: list[tuple[Any, ...]]) -> dict[str, object]:
    return {
        "tenants": [row[1] for row in rows],
        "ids": [row[0] for row in rows],
        "tokens": [row[_TOKEN] for row in rows],
        "results": [None] * len(rows),
    }


def bare_bulk(seconds: float) -> Rate:
    """Put the same jobs in, so many a statement, with no checks and no answers."""
    put, done = statement("enqueue"), 0
    kind: dict[str, object] = {
        "tenant": "default",
        "queue": _QUEUE,
        "task": nothing.name,
        "scope": "",
    }
    kind |= {"priority": 0, "max_attempts": 25, "now_us": None, "channel": "nobody"}
    kind |= {"estimated_seconds": None, "max_processing_seconds": None}
    payloads = [nothing.spec.signature.encode((TEXT,), {})] * BULK
    with psycopg.connect(url(), autocommit=True, context=ADAPTERS) as connection:
        meter, start = Meter([os.getpid()]), time.perf_counter()
        while time.perf_counter() - start < seconds:
            ids = list(rising_uuid7s(time.time_ns() // 1_000, os.urandom(RANDOM_BYTES * BULK)))
            connection.execute(put, with_lists({"ids": ids, "payloads": payloads}) | kind)
            done += BULK
        return meter.rate(done, time.perf_counter() - start)


async def through_the_engine(count: int) -> Rate:
    """Claim so many in batches, and settle the last batch in the same call."""
    engine = await PostgresEngine.open(url())
    done = 0
    outcomes: list[Outcome] = []
    meter, start = Meter([os.getpid()]), time.perf_counter()
    while done < count:
        claim = await engine.claim(
            queues=[_QUEUE], tasks=[nothing.name], worker="w", limit=BATCH, settle=outcomes
        )
        outcomes = [completed(job) for job in claim.jobs]
        assert outcomes, done
        done += len(outcomes)
    await engine.settle(outcomes)
    rate = meter.rate(done, time.perf_counter() - start)
    await engine.close()
    return rate


async def measure(_root: Path, seconds: str) -> dict[str, float]:
    """Measure both, on backlogs of the same size as the worker's."""
    count = int(float(seconds) * SIDE.backlog_per_second) // BULK * BULK
    await SIDE.open()
    try:
        bulk_rate = bare_bulk(float(seconds))
        await execute(SIDE.clear)
        await fill(SIDE, count)
        bare_rate = bare(count)
        await execute(SIDE.clear)
        await fill(SIDE, count)
        engine_rate = await through_the_engine(count)
    finally:
        await SIDE.close()
    return {
        "bare_bulk_per_second": bulk_rate.per_second,
        "bare_bulk_server_us": bulk_rate.server_us,
        "bare_per_second": bare_rate.per_second,
        "bare_server_us": bare_rate.server_us,
        "bare_client_us": bare_rate.worker_us,
        "engine_per_second": engine_rate.per_second,
        "engine_server_us": engine_rate.server_us,
        "engine_client_us": engine_rate.worker_us,
    }


if __name__ == "__main__":
    answer(measure)
