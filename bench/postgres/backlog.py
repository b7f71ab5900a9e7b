"""``python -m bench.postgres.backlog DIRECTORY SECONDS COUNT``: few jobs waiting, and many.

The same number of jobs is worked off by the same worker, of 10,000 and of so many.
"""

import statistics
import time
from pathlib import Path

from .answering import answer
from .holdfast_side import SIDE
from .measuring import LOOK_SECONDS, execute, fill, working

FEW = 10_000
WARM_UP = 2_000
"""Starts that do not count: connections are opened, statements prepared."""
TIMES = 3


async def rate(root: Path, seconds: float) -> float:
    """Let a worker start on what there is; return jobs a second up to the 10,000th."""
    async with working(SIDE, root) as [worker]:
        begun = await worker.some(WARM_UP)
        ended = await worker.until(FEW, seconds, LOOK_SECONDS)
        return (ended.count - begun.count) / (ended.last - begun.last)


async def measure(root: Path, seconds: str, count: str) -> dict[str, float]:
    """Measure a few times each; return the medians."""
    patience = 10 * float(seconds)
    few: list[float] = []
    many: list[float] = []
    await SIDE.open()
    try:
        for _ in range(TIMES):
            await execute(SIDE.clear)
            await fill(SIDE, FEW)
            await execute("CHECKPOINT")  # as below: the first change of a page is logged whole
            few.append(await rate(root, patience))
        await execute(SIDE.clear)
        start = time.perf_counter()
        await fill(SIDE, int(count))
        filled_seconds = time.perf_counter() - start
        await execute("CHECKPOINT")
        for _ in range(TIMES):
            many.append(await rate(root, patience))  # noqa: PERF401 - as above
    finally:
        await SIDE.close()
    return {
        "few_per_second": statistics.median(few),
        "many_per_second": statistics.median(many),
        "fill_many_seconds": filled_seconds,
    }


if __name__ == "__main__":
    answer(measure)
