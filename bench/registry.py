"""What it costs that a daemon announces itself to the registry: pairs of runs, on and off.

    python -m bench --only registry

A pair is measured back to back on the same machine, and its ratio says what announcing costs.
"""

import asyncio
import os
import time
from pathlib import Path

from holdfast import Holdfast
from holdfast.daemon import announcer

from . import postgres

JOBS = 60_000
BATCH = 1_000
SLOTS = 200
NEVER_SECONDS = 86_400.0


async def _backlog_rate(store: str | os.PathLike[str]) -> float:
    """Run a backlog of tasks that do nothing; return jobs per second."""
    app = Holdfast(store, own=True)
    ran = 0

    @app.task
    async def nothing() -> None:
        nonlocal ran
        ran += 1

    for _batch in range(JOBS // BATCH):
        await nothing.enqueue_many([()] * BATCH)
    await app.close()
    began = time.perf_counter()
    async with app.running(workers=SLOTS, metrics_port=0, log_level="error"):
        while ran < JOBS:
            await asyncio.sleep(0.001)
        return JOBS / (time.perf_counter() - began)


def measure(
    root: Path, server: postgres.server.Durable, order: tuple[bool, bool]
) -> dict[str, float]:
    """Measure one pair on each store, in this order, which should alternate."""
    found: dict[str, float] = {}
    beat_seconds = announcer.BEAT_SECONDS
    for on in order:
        word = "on" if on else "off"
        announcer.BEAT_SECONDS = beat_seconds if on else NEVER_SECONDS
        try:
            rate = asyncio.run(_backlog_rate(root / f"registry-{word}"))
            found[f"journal_registry_{word}_per_second"] = rate
            with server.with_our_tables() as url:
                rate = asyncio.run(_backlog_rate(url))
            found[f"postgres_registry_{word}_per_second"] = rate
        finally:
            announcer.BEAT_SECONDS = beat_seconds
    for store in ("journal", "postgres"):
        off = found[f"{store}_registry_off_per_second"]
        on_rate = found[f"{store}_registry_on_per_second"]
        found[f"{store}_registry_cost_percent"] = 100 * (1 - on_rate / off)
    return found
