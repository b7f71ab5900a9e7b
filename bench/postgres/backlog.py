"""``python -m bench.postgres.backlog DIRECTORY URL SECONDS COUNT``: few jobs waiting, and many.

The same number of jobs is worked off by the same worker, of 10,000 and of so many.
"""

import statistics
import time
from pathlib import Path

from .answering import answer
from .holdfast_side import SIDE
from .measuring import execute, fill, process

FEW = 10_000
TIMES = 3


async def measure(root: Path, seconds: str, count: str) -> dict[str, float]:
    """Measure a few times each; return the medians."""
    patience = 10 * float(seconds)
    await SIDE.open()
    try:
        few: list[float] = []
        for _ in range(TIMES):
            await fill(SIDE, FEW)
            few.append((await process(SIDE, root, FEW, patience)).per_second)
        start = time.perf_counter()
        await fill(SIDE, int(count))
        filled_seconds = time.perf_counter() - start
        await execute("CHECKPOINT")
        many = [
            (await process(SIDE, root, FEW, patience, recorded=False)).per_second
            for _ in range(TIMES)
        ]
    finally:
        await SIDE.close()
    return {
        "few_per_second": statistics.median(few),
        "many_per_second": statistics.median(many),
        "fill_many_seconds": filled_seconds,
    }


if __name__ == "__main__":
    answer(measure)
