"""A million jobs: ``python -m bench.large NAME DIRECTORY COUNT`` runs one measurement.

Each runs in a new process, so that the memory of one does not affect the next.
"""

import asyncio
import json
import os
import resource
import sys
import time
from pathlib import Path

from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.model.job import NewJob

from . import ours


def resident_bytes() -> int:
    """Return the memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


async def fill(directory: str, count: int) -> dict[str, float]:
    """Fill a directory; measure the memory of a pending job beside its payload."""
    engine = await JournalEngine.open(directory, options=ours.OPTIONS)
    await engine.enqueue(ours.new_jobs(1_000))
    before = resident_bytes()
    start = time.perf_counter()
    for _chunk in range(count // 1_000 - 1):
        await engine.enqueue([NewJob(task="t", payload={"x": "y" * 192}) for _ in range(1_000)])
    seconds = time.perf_counter() - start
    per_job = (resident_bytes() - before) / (count - 1_000) - len(ours.PAYLOAD)
    # Left as a crash leaves it: no close.
    os.write(1, json.dumps({"memory_bytes_per_job": per_job, "fill_seconds": seconds}).encode())
    os._exit(0)


async def recovery(directory: str, _count: int) -> dict[str, float]:
    """Measure opening a directory with many pending jobs."""
    engine = await JournalEngine.open(directory, options=ours.OPTIONS)
    report = engine.recovery
    await engine.close()
    return {"recovery_seconds": report.seconds, "recovered_jobs": report.jobs}


async def process(directory: str, _count: int) -> dict[str, float]:
    """Claim and settle 50,000 of them."""
    engine = await JournalEngine.open(directory, options=ours.OPTIONS)
    rate = await ours.process(engine, 50_000)
    await engine.close()
    return {"claim_and_settle_per_second": rate}


async def compaction(directory: str, _count: int) -> dict[str, float]:
    """Compact under load; measure how late the event loop's timers are, with and without."""
    options = JournalOptions(compact_bytes=1 << 40)
    engine = await JournalEngine.open(directory, options=options)
    worst = 0.0
    stop = False

    async def watch() -> None:
        nonlocal worst
        while not stop:
            due = time.perf_counter() + 0.001
            await asyncio.sleep(0.001)
            worst = max(worst, time.perf_counter() - due)

    async def load() -> None:
        while not stop:
            await engine.enqueue(ours.new_jobs(10))

    tasks = [asyncio.create_task(watch()), asyncio.create_task(load())]
    await asyncio.sleep(2)
    without, worst = worst, 0.0
    start = time.perf_counter()
    done = await engine.compact()
    seconds, during = time.perf_counter() - start, worst
    stop = True
    await asyncio.gather(*tasks)
    await engine.close()
    return {
        "compaction_seconds": seconds,
        "snapshot_bytes": 0 if done is None else done.size,
        "loop_stall_ms_while_compacting": during * 1e3,
        "loop_stall_ms_without": without * 1e3,
    }


def main() -> None:
    """Run the measurement named on the command line."""
    name, directory, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    measures = {
        "fill": fill,
        "recovery": recovery,
        "process": process,
        "compaction": compaction,
    }
    sys.stdout.write(json.dumps(asyncio.run(measures[name](directory, count))))


if __name__ == "__main__":
    main()
