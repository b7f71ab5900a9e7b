"""Dumps: everything comes back as it was, from one engine to another, or nothing does."""

import asyncio
import io
import random
import struct
from collections.abc import Sequence

import pytest

from holdfast.engines.contract import Engine, EngineOptions
from holdfast.engines.dump.format import (
    FORMAT,
    MAGIC,
    DumpedAttempt,
    DumpedAudit,
    DumpedFlag,
    DumpedJob,
    DumpedNote,
    DumpedPolicy,
    DumpedSchedule,
    DumpHead,
    DumpRecord,
    write_dump,
)
from holdfast.engines.dump.reading import read_dump, verify_dump
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.engines.journal.restore import restore
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.model.actions import ArchiveJobs, ConfirmJobs, NoteJobs, PurgeJobs, ReplayJobs
from holdfast.model.audit import Attribution, AuditEntry, AuditHead, follows, head_of
from holdfast.model.effects import ScheduleState
from holdfast.model.errors import (
    CorruptDump,
    CorruptHistory,
    InvalidInput,
    StorageError,
    UnknownFormat,
)
from holdfast.model.failure import Failure
from holdfast.model.job import Edit, Job, NewJob, State
from holdfast.model.outcome import completed, dead, release, retry
from holdfast.model.policy import QueuePolicy, Rate
from holdfast.model.search import Filter
from holdfast.testing import Fault, SimDisk, VirtualClock

OPTIONS = EngineOptions(remember_seconds=10_000.0)
JOURNAL = JournalOptions(inline=True, segment_bytes=8192, remember_seconds=10_000.0)
WHY = Attribution("ops", "the mail server is back", (AuditEntry("replay", "job", "d0", "ops"),))
FAILURE = Failure.of("upstream_5xx", "503 from 10.0.0.7")


async def live(engine: Engine, clock: VirtualClock) -> None:
    """Have something of everything."""
    await engine.enqueue(
        [
            *(NewJob(task="t", id=f"c{n}", payload={"n": n}) for n in range(3)),
            *(NewJob(task="t", id=f"d{n}", tenant="acme", scope="library:42") for n in range(3)),
            *(NewJob(task="t", id=f"k{n}", key="album", queue="keyed") for n in range(3)),
            NewJob(task="t", id="after", depends_on=("c0", "c1"), hold=True),
            NewJob(task="t", id="later", delay_seconds=500, unique="u", expires_seconds=900),
        ]
    )
    clock.advance(1)
    claim = await engine.claim(queues=["default", "keyed"], worker="w", limit=20)
    jobs = {job.id: job for job in claim.jobs}
    await engine.settle(
        [completed(jobs["c0"], b"[1]"), retry(jobs["c1"], FAILURE, 5.0), release(jobs["c2"])]
        + [dead(jobs[f"d{n}"], FAILURE) for n in range(3)]
        + [dead(jobs["k0"], FAILURE)]
    )
    clock.advance(1)
    await engine.operate(ReplayJobs(run="r1"), Filter(ids=("d0",)), WHY)
    await engine.operate(ArchiveJobs(), Filter(ids=("d1",)), WHY)
    await engine.operate(NoteJobs("looks like the outage of Tuesday"), Filter(ids=("d2",)), WHY)
    [pending] = [job for job in await engine.get(["c2"]) if job is not None]
    await engine.edit(pending, Edit(payload={"n": 7}, priority=3), WHY)
    await engine.set_policy("mail", QueuePolicy(rate=Rate(10, 60.0), fair=True), WHY)
    await engine.set_flag("auto_replay", WHY, on=False)
    await engine.set_schedule("digest", ScheduleState("0 6 * * *", "UTC", "t", "mail"), WHY)


async def everything(engine: Engine) -> list[DumpRecord]:
    return [record async for batch in engine.dump() for record in batch]


def told(records: Sequence[DumpRecord]) -> list[object]:
    """Return what two dumps of the same have in common: all but where and when."""
    kinds = [record for record in records if not isinstance(record, DumpHead)]
    return sorted(kinds, key=repr)


def head(records: Sequence[DumpRecord]) -> DumpHead:
    first = records[0]
    assert isinstance(first, DumpHead)
    return first


async def opened(disk: SimDisk, clock: VirtualClock) -> JournalEngine:
    return await JournalEngine.open(disk, clock=clock, options=JOURNAL)


async def as_file(engine: Engine) -> io.BytesIO:
    file = io.BytesIO()
    await write_dump(file, engine.dump())
    return file


async def test_a_dump_has_everything_and_goes_round_from_memory_to_journal_and_back():
    clock = VirtualClock()
    first = MemoryEngine(clock=clock, options=OPTIONS)
    await live(first, clock)
    records = await everything(first)
    kinds = {type(record) for record in records}
    assert kinds == {
        DumpHead, DumpedJob, DumpedAttempt, DumpedNote,
        DumpedPolicy, DumpedFlag, DumpedSchedule, DumpedAudit,
    }  # fmt: skip
    disk = SimDisk()
    assert restore(disk, read_dump(await as_file(first))) == (11, 7)
    second = await opened(disk, clock)
    again = await everything(second)
    assert told(again) == told(records)
    third = MemoryEngine(clock=clock, options=OPTIONS)
    third.load(record for batch in read_dump(await as_file(second)) for record in batch)
    assert told(await everything(third)) == told(records)
    names = [(job.tenant, job.id) for job in third._state.jobs()]
    for tenant, job_id in names:
        assert await second.history([job_id], tenant=tenant) == await first.history(
            [job_id], tenant=tenant
        )
    assert await second.counts() == await first.counts() == await third.counts()
    assert await second.groups() == await first.groups()
    await second.close()


@pytest.mark.parametrize("target", ["memory", "journal"])
async def test_work_goes_on_where_it_was(target):
    """Tokens only grow, keys keep their order, what waits still waits, the audit is one chain."""

    clock, disk = VirtualClock(), SimDisk()
    source = await opened(SimDisk(), clock)
    await live(source, clock)
    file = await as_file(source)
    engine: Engine
    if target == "journal":
        restore(disk, read_dump(file))
        engine = await opened(disk, clock)
    else:
        memory = MemoryEngine(clock=clock, options=OPTIONS)
        memory.load(record for batch in read_dump(file) for record in batch)
        engine = memory
    highest = head(await everything(source)).last_token
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
    await engine.settle([completed(job) for job in jobs])
    await engine.operate(ConfirmJobs(), Filter(ids=("after",)), WHY)
    assert [job.id for job in (await engine.claim(queues=["default"], worker="w")).jobs] == [
        "after"
    ]
    end = AuditHead()
    for record in await engine.audited(limit=100):
        assert follows(end, record)
        end = head_of(record)
    assert await engine.validate() == []
    await engine.close()
    if target == "journal":
        again = await opened(disk.crash(), clock)
        [job_again] = await again.get(["k9"])
        assert job_again is not None
        assert job_again.state is State.COMPLETED
        await again.close()


async def test_a_dump_is_of_one_moment():
    clock = VirtualClock()
    engine = await opened(SimDisk(), clock)
    await live(engine, clock)
    before = told(await everything(engine))
    stream = engine.dump()
    records = list(await anext(stream))
    await engine.enqueue([NewJob(task="t", id="late")])
    await engine.operate(PurgeJobs(), Filter(ids=("d2",)), WHY)
    await engine.compact()
    records += [record async for batch in stream for record in batch]
    assert told(records) == before
    await engine.close()


async def file_of(records: int = 40) -> bytes:
    engine = MemoryEngine(clock=VirtualClock(), options=OPTIONS)
    await engine.enqueue([NewJob(task="t", id=f"j{n}", payload={"n": n}) for n in range(records)])
    return (await as_file(engine)).getvalue()


async def test_every_bit_flip_in_a_dump_is_found():
    whole = await file_of()
    for at in range(0, 8 * len(whole), 7):
        altered = bytearray(whole)
        altered[at // 8] ^= 1 << at % 8
        with pytest.raises((CorruptDump, UnknownFormat)):
            verify_dump(io.BytesIO(bytes(altered)))


async def test_a_dump_that_was_cut_short_or_goes_on_is_refused():
    whole = await file_of()
    for size in range(len(whole) - 1):
        with pytest.raises(CorruptDump):
            verify_dump(io.BytesIO(whole[:size]))
    with pytest.raises(CorruptDump):
        verify_dump(io.BytesIO(whole + b"x"))


async def test_a_newer_dump_and_something_else_are_refused():
    newer = MAGIC + struct.pack("<I", FORMAT + 1)
    with pytest.raises(UnknownFormat, match="dump format"):
        verify_dump(io.BytesIO(newer + (await file_of())[len(newer) :]))
    with pytest.raises(CorruptDump, match="Nothing was loaded"):
        verify_dump(io.BytesIO(random.Random(1).randbytes(1000)))


async def test_an_older_dump_is_read(monkeypatch):
    monkeypatch.setattr("holdfast.engines.dump.format.FORMAT", 1)
    older = await file_of()
    monkeypatch.undo()
    assert verify_dump(io.BytesIO(older)).format == 1
    restore(SimDisk(), read_dump(io.BytesIO(older)))


async def test_nothing_of_an_altered_dump_is_loaded():
    altered = bytearray(await file_of())
    altered[-30] ^= 1
    disk = SimDisk()
    with pytest.raises(CorruptDump):
        restore(disk, read_dump(io.BytesIO(bytes(altered))))
    memory = MemoryEngine()
    with pytest.raises(CorruptDump):
        memory.load(one for batch in read_dump(io.BytesIO(bytes(altered))) for one in batch)
    assert await memory.counts() == {}
    assert disk.names("snapshots") == disk.names("log") == []


async def test_a_dump_is_only_loaded_into_what_is_new():
    whole = await file_of()

    clock, disk = VirtualClock(), SimDisk()
    engine = await opened(disk, clock)
    await engine.enqueue([NewJob(task="t")])
    await engine.close()
    with pytest.raises(InvalidInput, match="not empty"):
        restore(disk, read_dump(io.BytesIO(whole)))
    memory = MemoryEngine(clock=clock)
    await memory.enqueue([NewJob(task="t")])
    with pytest.raises(InvalidInput, match="new"):
        memory.load([])


def test_killed_while_it_restores_it_is_whole_or_does_not_open():
    whole = asyncio.run(file_of(5))
    clean = SimDisk()
    restore(clean, read_dump(io.BytesIO(whole)))
    outcomes = set()
    for call in range(1, clean.calls + 1):
        disk = SimDisk(faults={call: Fault.KILL})
        with pytest.raises((OSError, StorageError)):
            restore(disk, read_dump(io.BytesIO(whole)))
        found = disk.crash()

        async def look(found: SimDisk = found) -> list[Job | None]:
            engine = await opened(found, VirtualClock())
            jobs = await engine.get([f"j{n}" for n in range(5)])
            await engine.close()
            return jobs

        try:
            jobs = asyncio.run(look())
        except CorruptHistory:
            outcomes.add("refused")
        else:
            assert all(jobs) or not any(jobs)
            outcomes.add("whole" if all(jobs) else "nothing")
    assert {"refused", "nothing"} <= outcomes
