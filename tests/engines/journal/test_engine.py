"""What the journal promises beyond the contract."""

import asyncio
import os
import subprocess
import sys

import pytest

from holdfast.engines.contract import Admission
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.engines.journal.wal.flush import InlineRunner
from holdfast.engines.journal.wal.group_commit import GroupCommit, SyncMode
from holdfast.model.errors import (
    DirectoryInUse,
    DurabilityLost,
    InvalidInput,
    StorageError,
    TooLarge,
)
from holdfast.model.job import NewJob, State
from holdfast.model.outcome import completed
from holdfast.testing import Fault, SimDisk, VirtualClock

INLINE = JournalOptions(inline=True, segment_bytes=64 * 1024)


def job(job_id: str, **fields: object) -> NewJob:
    return NewJob(task="t", id=job_id, **fields)  # type: ignore[arg-type]


async def opened(disk: SimDisk, clock: VirtualClock | None = None, **fields: object):
    shared = {name: getattr(INLINE, name) for name in JournalOptions.__struct_fields__}
    options = JournalOptions(**{**shared, **fields})
    return await JournalEngine.open(disk, clock=clock or VirtualClock(), options=options)


class HeldRunner:
    """Starts flushes and ends them on demand: until then they stay in flight."""

    def __init__(self) -> None:
        self.waiting: list = []

    def submit(self, work, done, *, small) -> None:
        self.waiting.append((work, done))

    def land(self) -> None:
        for work, done in self.waiting[:]:
            self.waiting.remove((work, done))
            InlineRunner().submit(work, done)

    def close(self) -> None:
        pass


async def held_engine(disk: SimDisk) -> tuple[JournalEngine, HeldRunner]:
    engine = await opened(disk)
    while engine.commit._in_flight or engine._writer.needs_spare:
        engine._writer.prepare()
    runner = HeldRunner()
    engine.commit._runner = runner
    return engine, runner


async def turn() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_close_without_an_event_loop_begins_nothing():
    engine = asyncio.run(opened(SimDisk()))
    closing = engine.close()
    with pytest.raises(RuntimeError, match="no running event loop"):
        closing.send(None)  # nor is anything left behind that was never awaited


# --- no answer rests on undurable state ------------------------------------------------------


async def test_the_second_caller_of_a_unique_key_is_not_answered_before_the_first_is_durable():
    """Two callers and a crash: 'it exists already' must not be said of what then is lost."""

    disk = SimDisk()
    engine, runner = await held_engine(disk)
    first = asyncio.create_task(engine.enqueue([job("a", unique="k")]))
    await turn()
    second = asyncio.create_task(engine.enqueue([job("b", unique="k")]))
    await turn()
    assert not first.done()
    assert not second.done(), "its answer rests on the first one"
    lost = disk.crash(seed=1)
    runner.land()
    receipts = await second
    assert [(r.id, r.admission) for r in receipts] == [("a", Admission.EXISTING)]
    await first
    again = await opened(lost)
    assert await again.counts() == {}, "nothing had been acknowledged"


@pytest.mark.parametrize(
    "ask",
    [
        lambda engine: engine.get(["a"]),
        lambda engine: engine.counts(),
        lambda engine: engine.validate(),
        lambda engine: engine.enqueue([job("a")]),
        lambda engine: engine.claim(queues=["default"], worker="w"),
        lambda engine: engine.reclaim(),
        lambda engine: engine.settle([]),
    ],
    ids=["get", "counts", "validate", "refusal", "claim", "reclaim", "settle"],
)
async def test_every_answer_waits_for_what_it_rests_on(ask):
    disk = SimDisk()
    engine, runner = await held_engine(disk)
    enqueued = asyncio.create_task(engine.enqueue([job("a")]))
    await turn()
    asked = asyncio.create_task(ask(engine))
    await turn()
    assert not asked.done()
    disk.faults = {disk.calls + 1: Fault.EIO}
    runner.land()
    for task in (enqueued, asked):
        with pytest.raises(DurabilityLost):
            await task


@pytest.mark.parametrize(
    "ask",
    [
        lambda engine: engine.find(),
        lambda engine: engine.groups(),
        lambda engine: engine.history(["b"]),
    ],
    ids=["find", "groups", "history"],
)
async def test_what_arrives_while_history_is_read_is_waited_for_too(ask, monkeypatch):
    engine, runner = await held_engine(SimDisk())
    enqueued: list[asyncio.Task[object]] = []
    flush = engine._core.history.flush

    async def meanwhile() -> None:
        enqueued.append(asyncio.create_task(engine.enqueue([job("b")])))
        await turn()
        await flush()

    monkeypatch.setattr(engine._core.history, "flush", meanwhile)
    asked = asyncio.create_task(ask(engine))
    while not enqueued:
        await turn()
    for _ in range(20):
        await turn()
    assert not asked.done(), "it has seen b, which is not durable"
    runner.land()
    await asyncio.gather(asked, *enqueued)


async def test_what_arrives_during_a_flush_is_the_next_batch_and_shares_one_sync():
    disk = SimDisk()
    engine, runner = await held_engine(disk)
    first = asyncio.create_task(engine.enqueue([job("first")]))
    await turn()
    rest = [asyncio.create_task(engine.enqueue([job(f"j{n}")])) for n in range(50)]
    await turn()
    assert len(runner.waiting) == 1, "one flush in the air at a time"
    syncs = engine._writer.syncs
    runner.land()
    await first
    runner.land()
    await asyncio.gather(*rest)
    assert engine._writer.syncs == syncs + 2


async def test_a_claim_cancelled_before_it_is_durable_hands_its_jobs_back():
    disk = SimDisk()
    engine, runner = await held_engine(disk)
    enqueued = asyncio.create_task(engine.enqueue([job("a")]))
    await turn()
    runner.land()
    await enqueued
    claim = asyncio.create_task(engine.claim(queues=["default"], worker="w"))
    await turn()
    claim.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claim
    runner.land()
    await turn()
    runner.land()
    asked = asyncio.create_task(engine.get(["a"]))
    await turn()
    runner.land()
    [found] = await asked
    assert found is not None
    assert (found.state, found.attempt) == (State.PENDING, 0)


async def test_one_cancelled_caller_does_not_cancel_the_others():
    engine, runner = await held_engine(SimDisk())
    one = asyncio.create_task(engine.enqueue([job("one")]))
    two = asyncio.create_task(engine.enqueue([job("two")]))
    await turn()
    one.cancel()
    await turn()
    runner.land()
    assert [receipt.id for receipt in await two] == ["two"]


# --- ownership -------------------------------------------------------------------------------


async def test_a_directory_has_one_owner(tmp_path):
    engine = await JournalEngine.open(tmp_path)
    with pytest.raises(DirectoryInUse, match=str(os.getpid())):
        await JournalEngine.open(tmp_path)
    await engine.enqueue([job("a")])
    await engine.close()
    again = await JournalEngine.open(tmp_path)
    assert (await again.counts())["default"].pending == 1
    await again.close()


def test_another_process_cannot_own_it_either(tmp_path):
    script = (
        "import asyncio, sys\n"
        "from holdfast.engines.journal.engine import JournalEngine\n"
        "async def run():\n"
        "    await JournalEngine.open(sys.argv[1])\n"
        "asyncio.run(run())\n"
    )

    async def run() -> None:
        engine = await JournalEngine.open(tmp_path)
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", script, str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode != 0
        assert f"DirectoryInUse: {tmp_path} is owned by process {os.getpid()}" in done.stderr
        await engine.close()

    asyncio.run(run())


async def test_a_directory_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("not a directory")

    with pytest.raises(StorageError, match="file"):
        await JournalEngine.open(tmp_path / "file" / "data")


async def test_after_a_crash_the_owners_own_slots_lose_their_leases_and_remote_workers_keep_theirs():  # noqa: E501
    disk, clock = SimDisk(), VirtualClock()
    engine = await opened(disk, clock)
    await engine.enqueue([job("mine"), job("theirs")])
    await engine.claim(queues=["default"], worker="own/1")
    [remote] = (await engine.claim(queues=["default"], worker="remote")).jobs
    engine = await opened(disk.crash(), clock)
    mine, theirs = await engine.get(["mine", "theirs"])
    assert mine is not None
    assert (mine.state, mine.losses, mine.attempt) == (State.PENDING, 1, 1)
    assert mine.failure is not None
    assert mine.failure.error_reason == "worker_lost"
    assert theirs is not None
    assert theirs.state is State.IN_FLIGHT
    assert engine.recovery.leases_ended == 1
    assert await engine.settle([completed(remote)]) == [None], "its token is still good"


async def test_after_an_orderly_close_the_owners_own_slots_are_released_without_a_loss():
    disk, clock = SimDisk(), VirtualClock()
    engine = await opened(disk, clock)
    await engine.enqueue([job("mine")])
    await engine.claim(queues=["default"], worker="own/1")
    await engine.close()
    engine = await opened(disk, clock)
    [mine] = await engine.get(["mine"])
    assert mine is not None
    assert (mine.state, mine.losses, mine.attempt) == (State.PENDING, 0, 0)
    assert engine.recovery.closed_in_order


# --- limits ----------------------------------------------------------------------------------


async def test_a_call_that_does_not_fit_into_a_frame_is_refused_whole():
    engine = await opened(SimDisk())
    many = [job(f"j{n}", payload={"x": "y" * 200}) for n in range(100)]
    with pytest.raises(TooLarge, match="several calls") as refused:
        await engine.enqueue(many)
    assert refused.value.field == "jobs"
    assert await engine.counts() == {}
    await engine.enqueue(many[:40])
    assert (await engine.counts())["default"].pending == 40


@pytest.mark.parametrize(
    ("fields", "field"),
    [({"sync": "sometimes"}, "sync"), ({"segment_bytes": 100}, "segment_bytes")],
)
def test_bad_options_are_refused_by_name(fields, field):
    with pytest.raises(InvalidInput) as refused:
        JournalOptions(**fields)
    assert refused.value.field == field


def test_sync_may_be_given_as_a_word():
    assert JournalOptions(sync="always").sync is SyncMode.ALWAYS  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", list(SyncMode))
async def test_every_sync_mode_survives_a_kill(mode):
    disk, clock = SimDisk(), VirtualClock()
    engine = await opened(disk, clock, sync=mode, sync_interval_seconds=0.01)
    await engine.enqueue([job("a")])
    again = await opened(disk.crash(), clock)
    assert (await again.counts())["default"].pending == 1


async def test_sync_interval_syncs_within_the_interval():
    disk = SimDisk()
    engine = await opened(disk, sync=SyncMode.INTERVAL, sync_interval_seconds=0.001)
    before = engine._writer.syncs
    await engine.enqueue([job("a")])
    assert engine._writer.syncs == before
    synced = asyncio.Event()
    real = engine._writer.sync

    def note() -> None:
        real()
        synced.set()

    engine._writer.sync = note
    await asyncio.wait_for(synced.wait(), 10)
    again = await opened(disk.crash(seed=3))
    assert (await again.counts())["default"].pending == 1


async def test_a_full_queue_of_waiting_batches_is_split_into_frames_at_calls():
    disk = SimDisk()
    engine, runner = await held_engine(disk)
    calls = [
        asyncio.create_task(
            engine.enqueue([job(f"{n}-{k}", payload={"x": "y" * 400}) for k in range(20)])
        )
        for n in range(6)
    ]
    await turn()
    while runner.waiting:
        runner.land()
        await turn()
    await asyncio.gather(*calls)
    again = await opened(disk.crash())
    assert (await again.counts())["default"].pending == 120


async def test_control_answers_before_durability_fail_the_unique_test(monkeypatch):
    monkeypatch.setattr(GroupCommit, "durable_future", lambda self, callers=1: None)
    with pytest.raises(AssertionError):
        await test_the_second_caller_of_a_unique_key_is_not_answered_before_the_first_is_durable()
