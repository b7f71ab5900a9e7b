"""The samples of a journal: a file of its own, which may be lost, and never stops the store."""

from __future__ import annotations

import random
import sqlite3
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.engines.embedded import sampler
from holdfast.engines.embedded.sampler import FlowCounter, MemorySamples, Sampler
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.readonly_engine import open_readonly
from holdfast.engines.journal.samples.store import SqliteSamples
from holdfast.engines.journal.wal.disk import LocalDisk
from holdfast.engines.queue_stats import StoreStats
from holdfast.model.errors import EngineClosed
from holdfast.model.job import MICROSECONDS, NewJob
from holdfast.model.outcome import completed
from holdfast.model.samples import (
    QueueDepth,
    QueueFlow,
    QueueSample,
    SamplePoint,
    SampleQuery,
    Series,
    Tier,
    sample_query,
)
from holdfast.testing import VirtualClock


@asynccontextmanager
async def journal(directory: Path, clock: VirtualClock) -> AsyncIterator[JournalEngine]:
    engine = await JournalEngine.open(directory, clock=clock)
    try:
        yield engine
    finally:
        await engine.close()


async def points(engine: JournalEngine, clock: VirtualClock) -> list[SamplePoint]:
    found = await engine.samples(from_us=0, to_us=clock.now_us() + 1, step_seconds=1)
    return found.get("default", [])


async def work(engine: JournalEngine, count: int) -> None:
    """Enqueue so many jobs, and complete them."""
    await engine.enqueue([NewJob(task="t") for _number in range(count)])
    jobs = (await engine.claim(queues=["default"], worker="w", limit=count)).jobs
    assert await engine.settle([completed(job) for job in jobs]) == [None] * count


async def test_samples_survive_a_restart_and_rates_begin_anew(tmp_path):
    """No rate is negative, and what an earlier process counted is not counted again."""
    clock = VirtualClock()
    async with journal(tmp_path, clock) as engine:
        await work(engine, 50)
        clock.advance(10)
        await engine.take_sample()
    clock.advance(600)
    async with journal(tmp_path, clock) as engine:
        await work(engine, 5)
        clock.advance(10)
        await engine.take_sample()
        found = await points(engine, clock)
    assert [point.completed_per_second for point in found] == [5.0, 0.5]
    assert [point.enqueued_per_second for point in found] == [5.0, 0.5]


async def test_right_after_the_start_there_is_no_rate(tmp_path):
    """A job in the first moment is not a rate of thousands: the next sample has it."""
    clock = VirtualClock()
    async with journal(tmp_path, clock) as engine:
        await work(engine, 20)
        clock.advance(0.001)
        await engine.take_sample()
        assert [point.completed_per_second for point in await points(engine, clock)] == [0.0]
        clock.advance(9.999)
        await engine.take_sample()
        found = await points(engine, clock)
    assert max(point.completed_per_second for point in found) == pytest.approx(2.0)


async def test_a_sample_leaves_nothing_in_the_log(tmp_path):
    clock = VirtualClock()
    async with journal(tmp_path, clock) as engine:
        await work(engine, 3)
        before = sum(file.stat().st_size for file in (tmp_path / "log").iterdir())
        seq = engine._state.seq
        for _sample in range(5):
            clock.advance(10)
            await engine.take_sample()
        assert engine._state.seq == seq
        assert sum(file.stat().st_size for file in (tmp_path / "log").iterdir()) == before
        assert stat.S_IMODE((tmp_path / "samples.sqlite").stat().st_mode) == 0o600


def damage_bytes(file: Path) -> None:
    file.write_bytes(b"this is no database" * 500)


def damage_page(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[4_096:6_000] = bytes(1_904)
    file.write_bytes(content)


def damage_header(file: Path) -> None:
    file.write_bytes(b"\x00" * 100 + file.read_bytes()[100:])


def other_program(file: Path) -> None:
    file.unlink()
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE samples (what TEXT)")


def other_version(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA user_version = 99")


DAMAGES = [damage_bytes, damage_page, damage_header, other_program, other_version]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda one: one.__name__)
async def test_a_damaged_file_is_replaced_and_the_store_works(tmp_path, caplog, damage):
    clock = VirtualClock()
    async with journal(tmp_path, clock) as engine:
        for number in range(150):
            await engine.enqueue([NewJob(task="t", queue=f"q{number}")])
        await engine.take_sample()
    damage(tmp_path / "samples.sqlite")
    async with journal(tmp_path, clock) as engine:
        await work(engine, 1)
        clock.advance(20)
        await engine.take_sample()
        assert [point.completed_per_second for point in await points(engine, clock)] == [0.05]
        assert await engine.validate() == []
    assert "samples.discarded" in caplog.text


async def test_a_file_that_is_lost_while_the_store_runs_is_no_error(tmp_path):
    clock = VirtualClock()
    async with journal(tmp_path, clock) as engine:
        await work(engine, 1)
        await engine.take_sample()
        (tmp_path / "samples.sqlite").unlink()
        for _sample in range(3):
            clock.advance(10)
            await engine.take_sample()
            await points(engine, clock)
        await work(engine, 1)
    async with journal(tmp_path, clock) as engine:
        assert (await engine.counts())["default"].completed == 2


async def test_a_file_that_cannot_be_written_costs_the_samples_alone(tmp_path, caplog):
    clock = VirtualClock()
    (tmp_path / "samples.sqlite").mkdir()
    async with journal(tmp_path, clock) as engine:
        for _sample in range(3):
            await work(engine, 1)
            assert await engine.take_sample() == pytest.approx(10, abs=1)
            clock.advance(11)
        assert await points(engine, clock) == []
    assert caplog.text.count("samples.failed") == 1, "it is said once"


async def test_without_an_owner_samples_are_read_and_not_written(tmp_path):
    clock = VirtualClock()
    async with journal(tmp_path, clock) as engine:
        await engine.enqueue([NewJob(task="t")])
        await engine.take_sample()
        expected = await points(engine, clock)
    content = (tmp_path / "samples.sqlite").read_bytes()
    reader = await open_readonly(LocalDisk(tmp_path), clock=clock)
    found = await reader.samples(from_us=0, to_us=clock.now_us() + 1, step_seconds=1)
    assert found == {"default": expected}
    with pytest.raises(EngineClosed):
        await reader.take_sample()
    await reader.close()
    assert (tmp_path / "samples.sqlite").read_bytes() == content
    damage_bytes(tmp_path / "samples.sqlite")
    content = (tmp_path / "samples.sqlite").read_bytes()
    reader = await open_readonly(LocalDisk(tmp_path), clock=clock)
    assert await reader.samples(from_us=0, to_us=clock.now_us() + 1) == {}
    await reader.close()
    assert (tmp_path / "samples.sqlite").read_bytes() == content, "the owner decides what goes"


@pytest.mark.parametrize("seed", range(3))
async def test_the_file_answers_as_memory_does(seed):
    """Whatever was sampled, and whatever is asked."""
    rng = random.Random(seed)
    memory, file = MemorySamples(), SqliteSamples(":memory:")
    at_us = 1_800_000_000 * MICROSECONDS
    for _sample in range(400):
        at_us += rng.randrange(1, 1_200 * MICROSECONDS)
        taken = {
            queue: QueueSample(
                QueueDepth(*rng.choices(range(100), k=6)),
                QueueFlow(*rng.choices(range(100), k=4)),
                rng.choice((0.0, 8.0, 16.0)),
            )
            for queue in rng.sample(["a", "b", "c"], rng.randint(1, 3))
        }
        await memory.add(at_us, taken)
        await file.add(at_us, taken)
        if rng.random() < 0.5:
            ends = sorted(at_us + rng.randrange(-(10**12) // 5, 10**9) for _end in range(2))
            names = tuple(rng.sample(["a", "b", "c", "unknown"], rng.randint(0, 2)))
            step = rng.choice((0.0, 30.0, 60.0, 3_600.0))
            query = sample_query(names, ends[0], ends[1] + 1, step, at_us)
            assert _rounded(await file.read(query)) == _rounded(await memory.read(query))
    everything = SampleQuery((), Tier.MINUTE, 0, at_us + 1, 60 * MICROSECONDS)
    assert await file.read(everything)
    await file.close()


def _rounded(series: Series) -> dict[str, list[tuple[float, ...]]]:
    return {
        queue: [
            tuple(round(getattr(point, field), 6) for field in SamplePoint.__struct_fields__)
            for point in points
        ]
        for queue, points in series.items()
    }


class SlowSamples(MemorySamples):
    """Takes so long to keep a sample, by a loop that stands still otherwise."""

    seconds = 0.0

    async def add(self, at_us, samples):
        await super().add(at_us, samples)
        self.now = getattr(self, "now", 0.0) + self.seconds

    def time(self) -> float:
        return getattr(self, "now", 0.0)


async def test_what_costs_much_is_done_less_often(monkeypatch):
    """At most one part in twenty of the time."""
    store = SlowSamples()
    monkeypatch.setattr(f"{sampler.__name__}.asyncio.get_running_loop", lambda: store)
    taker = Sampler(store, lambda: StoreStats(1, {}), FlowCounter(), 0)
    assert await taker.take(10.0, 10 * MICROSECONDS) == 10.0
    store.seconds = 3.0
    assert await taker.take(10.0, 20 * MICROSECONDS) == 60.0
    assert await taker.take(10.0, 40 * MICROSECONDS) == 40.0, "20 of 60 seconds have passed"
    store.seconds = 0.1
    assert await taker.take(10.0, 80 * MICROSECONDS) == 10.0
