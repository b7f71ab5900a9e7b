"""``python -m bench.postgres.driver DIRECTORY MODULE SECONDS`` measures ours or a peer.

Enqueue with no worker, process with no producer, then one job at a time on an idle worker.
"""

import dataclasses
import importlib
import os
import time
from pathlib import Path

from bench.brokers import driver as brokers
from bench.brokers import progress
from bench.brokers.driver import enqueue

from .answering import answer
from .measuring import Meter, Rate, execute, fill, held_still, warm_up, work_off, working
from .side import BULK, Side

PROCESSES = (2, 4)


async def bulk(side: Side, seconds: float) -> Rate:
    """One caller, many jobs a call."""
    await side.put_many()  # connects
    meter, done, start = Meter([os.getpid()]), 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        await side.put_many()
        done += BULK
    return meter.rate(done, time.perf_counter() - start)


async def work(side: Side, root: Path, seconds: float, processes: int = 1) -> Rate:
    """Work off a backlog without producers, with workers that are warm."""
    count = int(seconds * side.backlog_per_second) // BULK * BULK
    await execute(side.clear)
    async with working(side, root, processes) as workers:
        await warm_up(side, workers)
        with held_still(workers):
            before = progress.read(workers[0].progress).count
            await fill(side, count)
        return await work_off(side, workers, count, 2 * seconds, before)


async def latencies(side: Side, root: Path) -> list[float]:
    """Return the seconds from before the call to the start of the job, in order."""
    await execute(side.clear)
    async with working(side, root) as [worker]:
        return await brokers.latencies(side, worker)


async def measure(root: Path, module: str, told_seconds: str) -> dict[str, float]:
    """Measure one side."""
    seconds = float(told_seconds)
    side: Side = importlib.import_module(f"{__package__}.{module}").SIDE
    await side.open()
    try:
        _count, put_rate = await enqueue(side, seconds)
        rate = await bulk(side, seconds)
        found = {
            "enqueue_per_second": put_rate,
            "bulk_per_second": rate.per_second,
            "bulk_server_us": rate.server_us,
            "bulk_client_us": rate.worker_us,
        }
        rate = await work(side, root, seconds)
        found["process_per_second"] = rate.per_second
        found["server_us"], found["worker_us"] = rate.server_us, rate.worker_us
        if side.ours:
            found |= await _more_of_ours(side, root, seconds)
        taken = await latencies(side, root)
    finally:
        await side.close()
    found["latency_p50_ms"] = taken[len(taken) // 2] * 1e3
    found["latency_p99_ms"] = taken[len(taken) * 99 // 100] * 1e3
    return found


async def _more_of_ours(side: Side, root: Path, seconds: float) -> dict[str, float]:
    """With uvloop, and with more processes."""
    quick = dataclasses.replace(side, environment={"HOLDFAST_EVENT_LOOP": "uvloop"})
    found = {"uvloop_process_per_second": (await work(quick, root, seconds)).per_second}
    for count in PROCESSES:
        rate = await work(side, root, seconds, count)
        found[f"process_{count}_per_second"] = rate.per_second
        found[f"server_{count}_cores"] = rate.server_us * rate.per_second / 1e6
    return found


if __name__ == "__main__":
    answer(measure)
