"""A scrape looks at queues, not at jobs: its cost does not grow with the backlog."""

from __future__ import annotations

import sys
from types import FrameType

from holdfast.engines.embedded.engine import EmbeddedEngine
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.engines.queue_stats import StoreStats
from holdfast.model.job import NewJob
from holdfast.testing import SimDisk, VirtualClock


async def filled(engine: EmbeddedEngine, count: int) -> EmbeddedEngine:
    """Return the engine with so many jobs that are due, for later, and behind a key."""
    for queue in ("a", "b"):
        await engine.enqueue([NewJob(task="t", queue=queue) for _ in range(count)])
        await engine.enqueue([NewJob(task="t", queue=queue, delay_seconds=90)] * count)
        await engine.enqueue([NewJob(task="t", queue=queue, key="k") for _ in range(count)])
    return engine


def steps(engine: EmbeddedEngine) -> int:
    """Count the instructions that one survey takes."""
    engine.survey()  # whatever is made ready once is ready
    count = 0

    def trace(frame: FrameType, event: str, _arg: object) -> object:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        engine.survey()
    finally:
        sys.settrace(before)
    return count


async def journal(count: int) -> EmbeddedEngine:
    options = JournalOptions(inline=True, segment_bytes=1 << 24)
    clock = VirtualClock()
    return await filled(await JournalEngine.open(SimDisk(), clock=clock, options=options), count)


async def test_a_survey_takes_as_long_with_many_jobs_as_with_few():
    few, many = await journal(10), await journal(3_000)
    assert steps(few) == steps(many)
    found = many.survey()
    for queue in ("a", "b"):
        one = found.queues[queue]
        assert (one.counts.pending, one.scheduled) == (9_000, 3_000)
        assert one.oldest_due_us == found.now_us
    await few.close()
    await many.close()


async def test_the_plain_engine_takes_longer_so_that_the_count_can_fail():
    clock = VirtualClock()
    few = await filled(MemoryEngine(clock=clock), 3)
    many = await filled(MemoryEngine(clock=clock), 9)
    assert steps(many) > 2 * steps(few)


async def test_the_age_is_since_the_job_was_due():
    clock = VirtualClock()
    options = JournalOptions(inline=True, segment_bytes=1 << 16)
    engine = await JournalEngine.open(SimDisk(), clock=clock, options=options)
    await engine.enqueue([NewJob(task="t", queue="a", delay_seconds=10)])
    ages = []
    for seconds in (0, 9, 2, 30):
        clock.advance(seconds)
        found: StoreStats = engine.survey()
        ages.append((found.queues["a"].scheduled, found.oldest_age_seconds("a")))
    assert ages == [(1, 0.0), (1, 0.0), (0, 1.0), (0, 31.0)]
    await engine.close()
