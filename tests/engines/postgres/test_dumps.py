"""Dumps of PostgreSQL, and into it: everything comes back as it was, or no engine opens it."""

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from holdfast.engines.contract import Engine
from holdfast.engines.dump.format import (
    DumpedAttempt,
    DumpedJob,
    DumpHead,
    DumpRecord,
)
from holdfast.engines.dump.reading import read_dump
from holdfast.engines.journal.restore import restore
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.engines.postgres.restore.batch import HighestNumbers
from holdfast.engines.postgres.restore.restore import load
from holdfast.model.actions import ConfirmJobs, PurgeJobs, ReplayJobs
from holdfast.model.audit import AuditHead, follows, head_of
from holdfast.model.errors import (
    LeaseLost,
)
from holdfast.model.job import NewJob, admit
from holdfast.model.outcome import completed
from holdfast.model.policy import QueuePolicy
from holdfast.model.search import Filter
from holdfast.testing import SimDisk, VirtualClock
from holdfast.testing.machine import OPTIONS as BRIEFLY
from tests.engines.dump.test_dumps import OPTIONS, WHY, as_file, everything, live, opened, told

from .servers import Databases
from .stores import connected, filled
from .test_machine import EXAMPLES, machine_on

JOBS, JOB_BYTES = 8_000, 6_000


@pytest.fixture
def url(server18: Databases) -> Iterator[str]:
    with server18.fresh() as one:
        yield one


@pytest.fixture
def another_url(server18: Databases) -> Iterator[str]:
    with server18.fresh() as one:
        yield one


# --- there and back -----------------------------------------------------------------------------


async def test_a_store_goes_from_a_journal_to_postgres_and_back_as_it_was(url, another_url):
    clock = VirtualClock()
    first = await opened(SimDisk(), clock)
    await live(first, clock)
    records = await everything(first)
    loaded = await load(url, first.dump())
    assert loaded.contents == loaded.read_back
    assert loaded.contents.counts["job"] == 11
    second = await connected(url, clock)
    assert await second.validate() == []
    again = await everything(second)
    assert isinstance(again[0], DumpHead)
    assert told(again) == told(records)
    disk = SimDisk()
    restore(disk, read_dump(await as_file(second)))
    third = await opened(disk, clock)
    assert told(await everything(third)) == told(records)
    await load(another_url, second.dump())
    fourth = await connected(another_url, clock)
    assert told(await everything(fourth)) == told(records)
    for tenant in ("default", "acme"):
        ids = [one.job.id for one in records if isinstance(one, DumpedJob)]
        past = await first.history(ids, tenant=tenant)
        for engine in (second, third, fourth):
            assert await engine.history(ids, tenant=tenant) == past
    for engine in (second, third, fourth):
        assert await engine.counts() == await first.counts()
        assert await engine.groups() == await first.groups()
    for engine in (first, second, third, fourth):
        await engine.close()


async def test_what_lived_in_postgres_goes_to_memory_and_back_as_it_was(url, another_url):
    clock = VirtualClock()
    first = await connected(url, clock)
    await live(first, clock)
    records = await everything(first)
    memory = MemoryEngine(clock=clock, options=OPTIONS)
    memory.load(records)
    assert told(await everything(memory)) == told(records)
    await load(another_url, memory.dump())
    again = await connected(another_url, clock)
    assert told(await everything(again)) == told(records)
    assert await again.validate() == []
    await again.close()
    await first.close()


def test_whatever_was_done_before_and_is_done_after_a_move(server18):
    """Beside the oracle, with a move to another database every now and then."""

    class MovingMachine(machine_on(server18)):  # type: ignore[misc]
        oracle: MemoryEngine

        async def reopen(self, cut_seed: int | None) -> Engine | None:
            del cut_seed
            before = told(await everything(self.subject))
            url = self.stack.enter_context(server18.fresh())
            await load(url, self.subject.dump(), part_records=3)
            await self.subject.close()
            # A dump does not know whose turn it is, nor how much of a rate is spent.
            oracle = MemoryEngine(clock=self.clock, options=BRIEFLY)
            oracle.load([one async for batch in self.oracle.dump() for one in batch])
            self.oracle = oracle
            self.url = url
            moved: Engine = await self._open()
            assert told(await everything(moved)) == before
            assert await moved.validate() == []
            return moved

    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        MovingMachine,
        settings=settings(
            max_examples=max(1, EXAMPLES // 20),
            stateful_step_count=25,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


# --- what a dump is -----------------------------------------------------------------------------


async def test_a_dump_is_of_one_moment_and_nobody_waits_for_it(url):
    clock = VirtualClock()
    engine = await connected(url, clock)
    await live(engine, clock)
    before = told(await everything(engine))
    batches = engine.dump()
    records = list(await anext(batches))
    await engine.enqueue([NewJob(task="t", id="late")])
    await engine.operate(PurgeJobs(), Filter(ids=("d2",)), WHY)
    await engine.set_flag("late", WHY, on=True)
    records += [record async for batch in batches for record in batch]
    assert told(records) == before
    assert told(await everything(engine)) != before
    await engine.close()


async def test_what_is_forgotten_is_not_in_a_dump_and_neither_is_what_happened_to_it(url):
    clock = VirtualClock()
    engine = await connected(url, clock)
    await live(engine, clock)
    [c1] = (await engine.claim(queues=["default"], worker="w", tasks=["t"])).jobs
    await engine.settle([completed(c1)])
    names = {one.job.id for one in await everything(engine) if isinstance(one, DumpedJob)}
    assert {"c0", c1.id} <= names
    clock.advance(OPTIONS.remember_seconds + 1)
    records = await everything(engine)
    names = {one.job.id for one in records if isinstance(one, DumpedJob)}
    assert not {"c0", c1.id} & names
    assert not any(isinstance(one, DumpedAttempt) and one.id == c1.id for one in records)
    assert any(isinstance(one, DumpedAttempt) for one in records)
    await engine.close()


async def many_jobs() -> AsyncIterator[list[DumpRecord]]:
    """Make more than may be in memory at once."""
    yield [DumpHead("made", 1, JOBS, 0)]
    for start in range(1, JOBS + 1, 100):
        yield [
            DumpedJob(admit(NewJob(task="t", payload={"n": "x" * JOB_BYTES}), f"j{n}", n, n))
            for n in range(start, start + 100)
        ]


async def test_memory_does_not_grow_with_what_is_loaded_and_dumped(url):
    gc.collect()
    tracemalloc.start()
    try:
        loaded = await load(url, many_jobs())  # which reads it back
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert loaded.read_back.counts == {"job": JOBS}
    assert peak_bytes < JOBS * JOB_BYTES / 2


# --- work goes on -------------------------------------------------------------------------------


async def test_work_goes_on_where_it_was(url):
    """Tokens only grow, keys keep their order, what waits still waits, the audit is one chain."""

    clock = VirtualClock()
    source = await filled(clock)
    highest = source._state.last_token
    await load(url, source.dump())
    engine = await connected(url, clock)
    await engine.enqueue([NewJob(task="t", id="k9", key="album", queue="keyed")])
    assert (await engine.claim(queues=["keyed"], worker="w", limit=9)).jobs == []
    await engine.operate(ReplayJobs(), Filter(ids=("k0",), tenant="default"), WHY)
    order = []
    for _turn in range(4):
        [job] = (await engine.claim(queues=["keyed"], worker="w", limit=9)).jobs
        assert job.token > highest
        order.append(job.id)
        await engine.settle([completed(job)])
    assert order == ["k0", "k1", "k2", "k9"]
    clock.advance(10)
    jobs = (await engine.claim(queues=["default"], worker="w", limit=9)).jobs
    assert {job.id for job in jobs} == {"c1", "c2", "d0"}
    assert await engine.settle([completed(job) for job in jobs]) == [None] * 3
    await engine.operate(ConfirmJobs(), Filter(ids=("after",)), WHY)
    [after] = (await engine.claim(queues=["default"], worker="w")).jobs
    assert after.id == "after"
    end = AuditHead()
    for record in await engine.audited(limit=100):
        assert follows(end, record)
        end = head_of(record)
    assert await engine.validate() == []
    await engine.close()


async def test_a_lease_of_before_goes_on_and_a_policy_keeps_its_queue_in_lines(url):
    clock = VirtualClock()
    source = MemoryEngine(clock=clock, options=OPTIONS)
    await source.set_policy("mail", QueuePolicy(fair=True), WHY)
    await source.enqueue(
        [NewJob(task="t", queue="mail", tenant=tenant, id=f"{tenant}{n}")
         for tenant in ("a", "b") for n in range(3)]
    )  # fmt: skip
    [held] = (await source.claim(queues=["mail"], worker="w")).jobs
    await load(url, source.dump())
    engine = await connected(url, clock)
    assert await engine.validate() == []
    assert (await engine.extend([held], lease_seconds=60))[0] is not None
    assert await engine.settle([completed(held)]) == [None]
    jobs = (await engine.claim(queues=["mail"], worker="w", limit=4)).jobs
    assert {job.tenant for job in jobs} == {"a", "b"}
    await engine.close()


async def settle_of_the_old_world(
    url: str, monkeypatch: pytest.MonkeyPatch | None
) -> LeaseLost | None:
    """Have a job held, lost and claimed again after a move; let its first holder settle it."""
    clock = VirtualClock()
    source = MemoryEngine(clock=clock, options=OPTIONS)
    await source.enqueue([*[NewJob(task="t")] * 5, NewJob(task="t", id="j")])
    await source.settle(
        [
            completed(job)
            for job in (await source.claim(queues=["default"], worker="w", limit=5)).jobs
        ]
    )
    [old] = (await source.claim(queues=["default"], worker="w", lease_seconds=5)).jobs
    clock.advance(6)
    await source.reclaim()
    clock.advance(600)
    if monkeypatch is not None:
        no_numbers = lambda self, record: self
        monkeypatch.setattr(HighestNumbers, "with_record", no_numbers)
    await load(url, source.dump())
    engine = await connected(url, clock)
    last = 0
    while last < old.token - 1:  # so that the numbers meet, if they start again
        await engine.enqueue([NewJob(task="t", priority=9)])
        [other] = (await engine.claim(queues=["default"], worker="w")).jobs
        last = other.token
    [new] = (await engine.claim(queues=["default"], worker="w")).jobs
    assert new.id == "j"
    [refused] = await engine.settle([completed(old)])
    await engine.close()
    return refused


def test_a_late_settle_of_the_world_before_is_refused(url):
    assert isinstance(asyncio.run(settle_of_the_old_world(url, None)), LeaseLost)


def test_without_numbers_that_go_on_it_would_have_been_taken(url, monkeypatch):
    assert asyncio.run(settle_of_the_old_world(url, monkeypatch)) is None
