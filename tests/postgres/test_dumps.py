"""Dumps of PostgreSQL, and into it: everything comes back as it was, or nobody gets to see it."""

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from psycopg import sql

from holdfast.engines.base import Engine
from holdfast.engines.dump import (
    DumpedAttempt,
    DumpedJob,
    DumpHead,
    DumpRecord,
    read_dump,
)
from holdfast.engines.journal.restoring import restore
from holdfast.engines.memory import MemoryEngine
from holdfast.engines.postgres import PostgresEngine
from holdfast.engines.postgres.arriving import Numbers
from holdfast.engines.postgres.loading import Hooks, Loaded, load
from holdfast.model.errors import (
    CorruptDump,
    InvalidInput,
    LeaseLost,
    StorageError,
    Unavailable,
)
from holdfast.model.job import NewJob, State, admit
from holdfast.model.operation import AuditHead, follows, head_of
from holdfast.model.outcome import completed
from holdfast.model.policy import QueuePolicy
from holdfast.model.search import Filter
from holdfast.testing import SimDisk, VirtualClock
from holdfast.testing.machine import OPTIONS as BRIEFLY
from tests.dump.test_dumps import OPTIONS, WHY, as_file, everything, live, opened, told

from .servers import Databases
from .test_conformance import postgres_options
from .test_machine import EXAMPLES, machine_on

JOBS, JOB_BYTES = 20_000, 3_000


@pytest.fixture
def url(server18: Databases) -> Iterator[str]:
    with server18.fresh() as one:
        yield one


@pytest.fixture
def another_url(server18: Databases) -> Iterator[str]:
    with server18.fresh() as one:
        yield one


async def connected(url: str, clock: VirtualClock) -> PostgresEngine:
    return await PostgresEngine.open(url, clock=clock, options=postgres_options(OPTIONS))


async def stream(records: Iterable[DumpRecord], most: int = 7) -> AsyncIterator[list[DumpRecord]]:
    """Pass records on, a few at a time."""
    listed = list(records)
    for start in range(0, len(listed), most):
        yield listed[start : start + most]


async def filled(clock: VirtualClock) -> MemoryEngine:
    engine = MemoryEngine(clock=clock, options=OPTIONS)
    await live(engine, clock)
    return engine


def rows_in(url: str) -> dict[str, int]:
    """Return how many rows each table has."""
    tables = (
        *("jobs", "dead", "history", "attempts", "notes"),
        *("audit", "policies", "flags", "schedules", "loading"),
    )
    with psycopg.connect(url) as connection:
        return {
            table: len(
                connection.execute(
                    sql.SQL("TABLE {}").format(sql.Identifier("holdfast", table))
                ).fetchall()
            )
            for table in tables
        }


# --- there and back -----------------------------------------------------------------------------


def test_a_store_goes_from_a_journal_to_postgres_and_back_as_it_was(url, another_url):
    async def run() -> None:
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

    asyncio.run(run())


def test_what_lived_in_postgres_goes_to_memory_and_back_as_it_was(url, another_url):
    async def run() -> None:
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

    asyncio.run(run())


def test_whatever_was_done_before_and_is_done_after_a_move(server18):
    """Beside the oracle, with a move to another database every now and then."""

    class MovingMachine(machine_on(server18)):  # type: ignore[misc]
        async def reopen(self, cut: int | None) -> Engine | None:
            del cut
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
            max_examples=max(1, EXAMPLES // 13),
            stateful_step_count=30,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


# --- what a dump is -----------------------------------------------------------------------------


def test_a_dump_is_of_one_moment_and_nobody_waits_for_it(url):
    async def run() -> None:
        clock = VirtualClock()
        engine = await connected(url, clock)
        await live(engine, clock)
        before = told(await everything(engine))
        batches = engine.dump()
        records = list(await anext(batches))
        await engine.enqueue([NewJob(task="t", id="late")])
        await engine.purge(Filter(ids=("d2",)), WHY)
        await engine.set_flag("late", WHY, on=True)
        records += [record async for batch in batches for record in batch]
        assert told(records) == before
        assert told(await everything(engine)) != before
        await engine.close()

    asyncio.run(run())


def test_what_is_forgotten_is_not_in_a_dump_and_neither_is_what_happened_to_it(url):
    async def run() -> None:
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

    asyncio.run(run())


async def many_jobs() -> AsyncIterator[list[DumpRecord]]:
    """Make more than may be in memory at once."""
    yield [DumpHead("made", 1, JOBS, 0)]
    for start in range(1, JOBS + 1, 100):
        yield [
            DumpedJob(admit(NewJob(task="t", payload={"n": "x" * JOB_BYTES}), f"j{n}", n, n))
            for n in range(start, start + 100)
        ]


def test_memory_does_not_grow_with_what_is_loaded_and_dumped(url):
    async def run() -> None:
        gc.collect()
        tracemalloc.start()
        try:
            loaded = await load(url, many_jobs())  # which reads it back
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert loaded.read_back.counts == {"job": JOBS}
        assert peak_bytes < JOBS * JOB_BYTES / 2

    asyncio.run(run())


# --- work goes on -------------------------------------------------------------------------------


def test_work_goes_on_where_it_was(url):
    """Tokens only grow, keys keep their order, what waits still waits, the audit is one chain."""

    async def run() -> None:
        clock = VirtualClock()
        source = await filled(clock)
        highest = source._plain_state.last_token
        await load(url, source.dump())
        engine = await connected(url, clock)
        await engine.enqueue([NewJob(task="t", id="k9", key="album", queue="keyed")])
        assert (await engine.claim(queues=["keyed"], worker="w", limit=9)).jobs == []
        await engine.replay(Filter(ids=("k0",), tenant="default"), WHY)
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
        await engine.confirm(Filter(ids=("after",)), WHY)
        [after] = (await engine.claim(queues=["default"], worker="w")).jobs
        assert after.id == "after"
        end = AuditHead()
        for record in await engine.audited(limit=100):
            assert follows(end, record)
            end = head_of(record)
        assert await engine.validate() == []
        await engine.close()

    asyncio.run(run())


def test_a_lease_of_before_goes_on_and_a_policy_keeps_its_queue_in_lines(url):
    async def run() -> None:
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

    asyncio.run(run())


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
        monkeypatch.setattr(Numbers, "with_record", no_numbers)
    await load(url, source.dump())
    engine = await connected(url, clock)
    last = 0
    while last < old.token - 1:  # so that the numbers meet, if they begin anew
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


# --- stopped in the middle ----------------------------------------------------------------------


class StoppedError(Exception):
    """This load was killed."""


async def stopping(records: Sequence[DumpRecord], at: int) -> AsyncIterator[list[DumpRecord]]:
    """Pass records on, and then no more."""
    for one in records[:at]:
        yield [one]
    raise StoppedError


def test_interrupted_after_every_part_it_goes_on_and_nobody_uses_it_meanwhile(url):
    async def run() -> None:
        clock = VirtualClock()
        records = await everything(await filled(clock))
        known = set()
        for at in range(1, len(records)):
            with pytest.raises(StoppedError):
                await load(url, stopping(records, at), part_records=2)
            known.add(sum(rows_in(url).values()) - 1)
            with pytest.raises(Unavailable, match="under way or was interrupted after"):
                await connected(url, clock)
        assert len(known) > len(records) // 3
        loaded = await load(url, stream(records), part_records=2)
        assert loaded.known_records >= len(records) - 4
        engine = await connected(url, clock)
        assert told(await everything(engine)) == told(records)
        assert await engine.validate() == []
        await engine.close()
        assert rows_in(url)["loading"] == 0

    asyncio.run(run())


def test_a_load_that_goes_on_with_something_else_is_refused_and_can_begin_anew(url):
    async def run() -> None:
        clock = VirtualClock()
        source = await filled(clock)
        records = await everything(source)
        with pytest.raises(StoppedError):
            await load(url, stopping(records, 9), part_records=2)
        before = rows_in(url)
        await source.set_policy("mail", None, WHY)
        changed = await everything(source)
        with pytest.raises(InvalidInput, match="half loaded with something else"):
            await load(url, stream(changed))
        with pytest.raises(InvalidInput, match="half loaded with something else"):
            await load(url, stream(records[:4]))
        assert rows_in(url) == before
        await load(url, stream(changed), anew=True)
        engine = await connected(url, clock)
        assert told(await everything(engine)) == told(changed)
        await engine.close()

    asyncio.run(run())


def test_of_two_loads_at_once_one_is_refused(url):
    async def run() -> None:
        records = await everything(await filled(VirtualClock()))
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def slowly() -> AsyncIterator[list[DumpRecord]]:
            yield records[:9]
            begun.set()
            await go_on.wait()
            yield records[9:]

        slow = asyncio.ensure_future(load(url, slowly(), part_records=4))
        await begun.wait()
        fast = await load(url, stream(records), part_records=4)
        assert fast.known_records == 8
        go_on.set()
        with pytest.raises(Unavailable, match="another load"):
            await slow
        assert rows_in(url)["loading"] == 0

    asyncio.run(run())


# --- refused ------------------------------------------------------------------------------------


async def put_job(engine: PostgresEngine) -> None:
    await engine.enqueue([NewJob(task="t")])


async def put_flag(engine: PostgresEngine) -> None:
    await engine.set_flag("f", WHY, on=True)


async def put_policy(engine: PostgresEngine) -> None:
    await engine.set_policy("q", QueuePolicy(paused=True), WHY)


@pytest.mark.parametrize("put", [put_job, put_flag, put_policy])
@pytest.mark.parametrize("anew", [False, True])
def test_what_has_anything_in_it_is_left_as_it_is(url, put, anew):
    async def run() -> None:
        clock = VirtualClock()
        engine = await connected(url, clock)
        await put(engine)
        before = rows_in(url)
        with pytest.raises(InvalidInput, match="is not empty: there is something in"):
            await load(url, (await filled(clock)).dump(), anew=anew)
        assert rows_in(url) == before
        await engine.close()

    asyncio.run(run())


def test_where_somebody_waits_for_work_nothing_is_loaded(url):
    async def run() -> None:
        with psycopg.connect(url) as connection:
            connection.execute(
                "INSERT INTO holdfast.waiting VALUES ('w', holdfast.now_us() + 60000000, '{q}')"
            )
        with pytest.raises(Unavailable, match="somebody waits for work there: stop"):
            await load(url, (await filled(VirtualClock())).dump())
        assert rows_in(url)["loading"] == 0

    asyncio.run(run())


def test_without_tables_it_says_what_to_do(url):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA holdfast CASCADE")

    async def run() -> None:
        with pytest.raises(Unavailable, match="run holdfast migrate"):
            await load(url, (await filled(VirtualClock())).dump())
        with pytest.raises(Unavailable, match="run holdfast migrate"):
            await PostgresEngine.open(url)

    asyncio.run(run())


def test_a_dump_without_a_head_or_with_a_job_twice_is_refused(url):
    async def run() -> None:
        records = await everything(await filled(VirtualClock()))
        jobs = [one for one in records if isinstance(one, DumpedJob)]
        [pending, *_more] = [one for one in jobs if one.job.state is State.PENDING]
        with pytest.raises(CorruptDump, match="no head"):
            await load(url, stream(records[1:]))
        assert rows_in(url)["loading"] == 0
        with pytest.raises(CorruptDump, match="twice"):
            await load(url, stream([*records, pending]))

    asyncio.run(run())


def test_who_writes_into_it_meanwhile_is_noticed_before_anybody_uses_it(url):
    """An engine that was open before the load began."""

    async def run() -> Loaded:
        clock = VirtualClock()
        early = await connected(url, clock)
        records = await everything(await filled(clock))

        async def disturbed() -> AsyncIterator[list[DumpRecord]]:
            yield records[:-3]
            claim = await early.claim(queues=["default", "keyed"], worker="w", limit=9)
            assert claim.jobs == []  # nobody may claim what is not all there
            await early.enqueue([NewJob(task="t")])
            await early.close()
            yield records[-3:]

        return await load(url, disturbed(), part_records=2)

    with pytest.raises(StorageError, match="12 of 11 job records"):
        asyncio.run(run())
    with pytest.raises(Unavailable, match="interrupted"):
        asyncio.run(connected(url, VirtualClock()))


def test_progress_is_told(url):
    async def run() -> None:
        gone: list[int] = []
        back: list[int] = []
        source = await filled(VirtualClock())
        hooks = Hooks(gone.append, back.append)
        await load(url, stream(await everything(source)), hooks=hooks)
        assert gone == sorted(gone)
        assert (gone[-1], back[-1]) == (11, 11)

    asyncio.run(run())
