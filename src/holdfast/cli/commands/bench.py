"""``holdfast bench``: measure this machine with a temporary store."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.cli.options import json_option
from holdfast.cli.output import document, echo, progress, table

if TYPE_CHECKING:
    from holdfast.engines.contract import Engine
    from holdfast.engines.journal.engine import JournalEngine
    from holdfast.worker.worker import Worker

_SYNC_SECONDS = 0.5
_PRODUCERS = 32
_SLOTS = 64


class BenchFigures(msgspec.Struct, frozen=True):
    """The results."""

    directory: str
    sync: str
    jobs: int
    fdatasyncs_per_second: float
    enqueued_one_by_one_per_second: float
    enqueued_together_per_second: float
    processed_per_second: float
    latency_ms_p50: float
    latency_ms_p99: float


@click.command("bench")
@click.option(
    "--jobs",
    type=click.IntRange(100, 1_000_000),
    default=5_000,
    show_default=True,
    help="How many jobs to enqueue and process.",
)
@click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where to create the store: choose the disk that you will use.",
)
@click.option(
    "--sync",
    type=click.Choice(["always", "interval", "off"]),
    default="always",
    show_default=True,
    help="When to fsync.",
)
@json_option
def bench(*, jobs: int, directory: Path | None, sync: str, as_json: bool) -> None:
    """Measure enqueue, processing and latency on this machine, in a temporary store.

    It takes a few seconds. The tasks do nothing, so this is the cost of Holdfast itself.
    """
    import asyncio  # noqa: PLC0415 - only here
    import tempfile  # noqa: PLC0415

    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=directory) as place,
        progress("bench", 4, wanted=not as_json) as on_progress,
    ):
        found = asyncio.run(_measure(Path(place), jobs, sync, on_progress))
    if as_json:
        document(found)
        return
    table(
        ("WHAT", "FIGURE"),
        [
            ("fdatasync, one after another", f"{found.fdatasyncs_per_second:,.0f}/s"),
            ("enqueue, one caller", f"{found.enqueued_one_by_one_per_second:,.0f}/s"),
            (f"enqueue, {_PRODUCERS} callers", f"{found.enqueued_together_per_second:,.0f}/s"),
            (f"process, {_SLOTS} slots", f"{found.processed_per_second:,.0f}/s"),
            ("enqueue to running, p50", f"{found.latency_ms_p50:,.2f} ms"),
            ("enqueue to running, p99", f"{found.latency_ms_p99:,.2f} ms"),
        ],
        right=("FIGURE",),
    )
    echo(f"{jobs:,} jobs that do nothing, sync={sync}, in {found.directory}")


async def _measure(
    place: Path, jobs: int, sync: str, on_progress: Callable[[int], None]
) -> BenchFigures:
    import asyncio  # noqa: PLC0415

    from msgspec.structs import replace  # noqa: PLC0415

    from holdfast.settings import Settings  # noqa: PLC0415
    from holdfast.stores.opening import own_journal  # noqa: PLC0415

    syncs = await asyncio.to_thread(_sync_rate, place / "probe")
    on_progress(1)
    engine = await own_journal(replace(Settings(), store=str(place / "store"), sync=sync))
    try:
        few = max(50, min(500, jobs // 10))
        alone = await _enqueue(engine, few, 1)
        together = await _enqueue(engine, jobs, _PRODUCERS)
        on_progress(2)
        done = await _process(engine, few + jobs)
        on_progress(3)
        latencies = sorted(await _latencies(engine, few))
        on_progress(4)
    finally:
        await engine.close()
    return BenchFigures(
        directory=str(place.parent),
        sync=sync,
        jobs=jobs,
        fdatasyncs_per_second=syncs,
        enqueued_one_by_one_per_second=alone,
        enqueued_together_per_second=together,
        processed_per_second=done,
        latency_ms_p50=latencies[len(latencies) // 2] * 1e3,
        latency_ms_p99=latencies[len(latencies) * 99 // 100] * 1e3,
    )


def _sync_rate(path: Path) -> float:
    """Return how many synced writes of 4 KiB per second the disk does."""
    sync = getattr(os, "fdatasync", os.fsync)
    block, room = b"\0" * 4_096, 16 << 20
    with path.open("wb", buffering=0) as file:
        file.write(b"\0" * room)
        os.fsync(file.fileno())
        file.seek(0)
        count, began = 0, time.perf_counter()
        while (seconds := time.perf_counter() - began) < _SYNC_SECONDS:
            if file.tell() >= room:
                file.seek(0)
            file.write(block)
            sync(file.fileno())
            count += 1
    return count / seconds


async def _enqueue(engine: Engine, jobs: int, producers: int) -> float:
    import asyncio  # noqa: PLC0415

    from holdfast.model.job import NewJob  # noqa: PLC0415

    left = iter(range(jobs))

    async def produce() -> None:
        for _ in left:
            await engine.enqueue([NewJob(task="nothing", payload=b'{"n":1}')])

    began = time.perf_counter()
    await asyncio.gather(*(produce() for _ in range(producers)))
    return jobs / (time.perf_counter() - began)


async def _process(engine: JournalEngine, jobs: int) -> float:
    import asyncio  # noqa: PLC0415

    done = 0
    finished = asyncio.Event()

    async def nothing(n: int) -> None:  # noqa: ARG001 - from the payload
        nonlocal done
        done += 1
        if done >= jobs:
            finished.set()

    worker = _worker(engine, nothing)
    began = time.perf_counter()
    worker.start()
    await finished.wait()
    await worker.stop(30.0)
    return jobs / (time.perf_counter() - began)


async def _latencies(engine: JournalEngine, jobs: int) -> list[float]:
    """Enqueue one job after another into an idle store; return the time until each ran."""
    import asyncio  # noqa: PLC0415

    from holdfast.model.job import NewJob  # noqa: PLC0415

    began = asyncio.Event()

    async def nothing(n: int) -> None:  # noqa: ARG001 - from the payload
        began.set()

    worker = _worker(engine, nothing)
    worker.start()
    found: list[float] = []
    for _ in range(jobs):
        began.clear()
        sent = time.perf_counter()
        await engine.enqueue([NewJob(task="nothing", payload=b'{"n":1}')])
        await began.wait()
        found.append(time.perf_counter() - sent)
    await worker.stop(30.0)
    return found


def _worker(engine: JournalEngine, function: Callable[..., object]) -> Worker:
    from holdfast.worker.options import WorkerOptions  # noqa: PLC0415
    from holdfast.worker.registry import Execution, Registry, TaskSpec  # noqa: PLC0415
    from holdfast.worker.signature import Signature  # noqa: PLC0415
    from holdfast.worker.worker import Worker  # noqa: PLC0415

    registry = Registry()
    spec = TaskSpec("nothing", function, Signature(function, "nothing"), Execution.LOOP)
    registry.add_task(spec)
    return Worker(engine, registry, "bench", WorkerOptions(slots=_SLOTS))
