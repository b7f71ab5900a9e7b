"""Ways in which this engine was once broken, each tried again."""

import asyncio
import errno
import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.engines.contract import Counts
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.engines.journal.snapshots.snapshot import snapshot_names
from holdfast.engines.journal.state.state import JournalState
from holdfast.engines.journal.wal.group_commit import ALONE_IN_A_ROW, SyncMode
from holdfast.engines.journal.wal.recovery import recover
from holdfast.model.errors import (
    DirectoryInUse,
    DurabilityLost,
    InvalidInput,
    LeaseLost,
    StorageFull,
)
from holdfast.model.failure import Failure, FailureClass
from holdfast.model.job import NewJob
from holdfast.model.outcome import Outcome, OutcomeKind, completed, retry
from holdfast.testing import SimDisk, VirtualClock

from .test_engine import job, opened, turn

# For what the types would not let pass.
AnyOutcome: Any = Outcome
AnyFailure: Any = Failure
AnyJob: Any = NewJob


async def test_an_interrupt_between_log_and_state_stops_the_engine(monkeypatch):
    """The log has what the state has not: nothing more may be acknowledged on top of it."""

    disk = SimDisk()
    engine = await opened(disk)
    for number in range(ALONE_IN_A_ROW):  # so that it decides in the caller's own task
        await engine.enqueue([job(f"before-{number}")])
    fold = JournalState.fold

    def interrupted(self, effect, seq):
        if effect.job.id == "second":
            raise KeyboardInterrupt
        return fold(self, effect, seq)

    monkeypatch.setattr(JournalState, "fold", interrupted)
    with pytest.raises(DurabilityLost):
        await engine.enqueue([job("first"), job("second")])
    monkeypatch.undo()
    for call in (engine.enqueue([job("after")]), engine.counts()):
        with pytest.raises(DurabilityLost):
            await call
    again = await opened(disk.crash())
    assert (await again.get(["before-0"]))[0] is not None


async def test_every_failure_is_an_exception_of_its_own():
    engine = await opened(SimDisk())
    engine.commit.stop(OSError("gone"))
    seen = []
    for _ in range(3):
        with pytest.raises(DurabilityLost) as lost:
            await engine.counts()
        seen.append(lost.value)
    assert len({id(error) for error in seen}) == 3, "a shared one would hoard tracebacks"


async def test_work_that_arrives_while_a_claim_waits_for_the_disk_wakes_it():
    engine = await opened(SimDisk())
    other = asyncio.create_task(engine.enqueue([job("elsewhere", queue="other")]))
    claim = asyncio.create_task(engine.claim(queues=["default"], worker="w", wait_seconds=60))
    mine = asyncio.create_task(engine.enqueue([job("a")]))
    await asyncio.gather(other, mine)
    assert [one.id for one in (await claim).jobs] == ["a"]


async def test_time_goes_on_when_the_clock_is_behind_the_log():
    disk, ahead = SimDisk(), VirtualClock()
    engine = await opened(disk, ahead)
    ahead.advance(3_600)
    await engine.enqueue([job("held"), job("later", delay_seconds=60)])
    await engine.claim(queues=["default"], worker="w")
    await engine.close()
    behind = VirtualClock()
    engine = await opened(disk, behind)
    waiting = asyncio.create_task(engine.claim(queues=["default"], worker="w", wait_seconds=90))
    await turn()
    behind.advance(60)
    assert [one.id for one in (await waiting).jobs] == ["later"]
    assert [one.id for one in (await engine.reclaim()).lost] == ["held"]


@pytest.mark.parametrize("compacted", [False, True])
async def test_a_job_is_listed_after_the_batch_before_a_restart_when_the_clock_is_behind(compacted):
    disk, clock = SimDisk(), VirtualClock()
    engine = await opened(disk, clock)
    ids = [f"b{number}" for number in range(20, 0, -1)]
    await engine.enqueue([job(job_id) for job_id in ids])
    done = await engine.claim(queues=["default"], worker="w", limit=len(ids))
    await engine.settle([completed(one) for one in done.jobs])
    if compacted:
        assert await engine.compact() is not None  # its snapshot has none of them
    await engine.close()
    engine = await opened(disk, VirtualClock())
    await engine.enqueue([job("a")])
    assert [one.id for one in (await engine.find(limit=100)).jobs] == [*ids, "a"]
    await engine.close()


@pytest.mark.parametrize("mode", [SyncMode.INTERVAL, SyncMode.OFF])
def test_a_power_cut_in_a_relaxed_mode_costs_the_tail_and_never_a_token(mode):
    """Several frames may be torn at once; a token that was lost with them is not issued again."""

    async def live() -> tuple[SimDisk, int]:
        disk = SimDisk()
        engine = await opened(disk, sync=mode, sync_interval_seconds=60)
        await engine.enqueue([job("a", payload={"x": "y" * 900})])
        await engine.commit.run(engine._writer.sync)
        [held] = (await engine.claim(queues=["default"], worker="zombie")).jobs
        for number in range(12):
            await engine.enqueue([job(f"j{number}", payload={"x": "y" * 900})])
        return disk, held

    async def after(disk: SimDisk, zombie) -> None:
        engine = await opened(disk)
        assert await engine.validate() == []
        assert (await engine.get(["a"]))[0] is not None, "it had been synced"
        await engine.reclaim(forced=[zombie])
        jobs = (await engine.claim(queues=["default"], worker="w", limit=50)).jobs
        assert all(one.token > zombie.token for one in jobs)
        assert isinstance((await engine.settle([completed(zombie)]))[0], LeaseLost)

    disk, zombie = asyncio.run(live())
    for seed in range(60):
        asyncio.run(after(disk.crash(seed), zombie))


async def test_a_full_disk_heals_once_its_work_is_done():
    disk, clock = SimDisk(capacity_bytes=10 * 4096), VirtualClock()
    engine = await opened(disk, clock, segment_bytes=4096, remember_seconds=1.0)

    async def fill() -> None:
        for number in itertools.count():
            await engine.enqueue([job(f"j{number}", payload={"x": "y" * 150})])
            claim = await engine.claim(queues=["default"], worker="w")
            await engine.settle([completed(one) for one in claim.jobs])

    with pytest.raises(StorageFull):
        await fill()
    clock.advance(60)
    assert await engine.compact() is not None
    await engine.enqueue([job("again")])
    assert await engine.validate() == []
    again = await opened(disk.crash(), clock, segment_bytes=4096)
    assert (await again.counts())["default"].pending >= 1


async def test_without_descriptors_new_work_is_refused_and_old_work_goes_on(monkeypatch):
    disk, clock = SimDisk(), VirtualClock()
    engine = await opened(disk, clock, segment_bytes=4096)
    await engine.enqueue([job("first")])
    claim = await engine.claim(queues=["default"], worker="w")
    create = SimDisk.create

    def no_descriptor(_disk, _name):
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(SimDisk, "create", no_descriptor)

    async def fill() -> None:
        for number in range(100):
            await engine.enqueue([job(f"j{number}", payload={"x": "y" * 150})])

    with pytest.raises(StorageFull, match="too many files open: raise the limit"):
        await fill()
    assert await engine.settle([completed(one) for one in claim.jobs]) == [None]
    assert engine.failure is None
    monkeypatch.setattr(SimDisk, "create", create)
    await engine.enqueue([job("again")])
    assert await engine.validate() == []


async def test_sealing_never_takes_room_that_was_promised():
    disk = SimDisk(capacity_bytes=3 * 64 * 1024)
    engine = await opened(disk)
    calls = [
        engine.enqueue([job(f"{n}-{k}", payload={"x": "y" * 500}) for k in range(20)])
        for n in range(14)
    ]
    answers = await asyncio.gather(engine.compact(), *calls, return_exceptions=True)
    assert engine.failure is None
    assert {type(answer) for answer in answers[1:]} <= {list, StorageFull}


async def test_a_chore_that_finds_no_room_is_nobody_elses_trouble():
    disk = SimDisk()
    engine = await opened(disk)
    await engine.enqueue([job("a")])
    engine._writer._spares.clear()
    disk.capacity_bytes = 0
    answers = await asyncio.gather(engine.compact(), engine.counts(), return_exceptions=True)
    assert isinstance(answers[0], StorageFull)
    assert answers[1] == {"default": Counts(pending=1)}


async def test_opening_and_closing_leaves_nothing_behind_and_ends_in_order():
    disk = SimDisk()
    for life in range(3):
        engine = await opened(disk)
        assert engine.recovery.closed_in_order == (life > 0)
        await engine.close()
        assert not disk._open
    assert all(len(disk.content(name)) < 500 for name in disk.names("log"))


async def test_a_cancelled_close_closes_all_the_same(tmp_path):
    engine = await JournalEngine.open(tmp_path, options=JournalOptions(segment_bytes=65536))
    pending = asyncio.create_task(engine.enqueue([job("a")]))
    await asyncio.sleep(0)
    closing = asyncio.create_task(engine.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert [receipt.id for receipt in await pending] == ["a"]
    again = await JournalEngine.open(tmp_path)
    assert again.recovery.closed_in_order
    await again.close()


async def test_closing_again_does_not_give_up_somebody_elses_lock():
    disk = SimDisk()
    first = await opened(disk)
    await first.close()
    second = await opened(disk)
    await first.close()
    with pytest.raises(DirectoryInUse):
        await opened(disk)
    await second.close()


def test_a_forked_child_does_not_keep_the_directory(tmp_path):
    # The child ends its parent, once it runs: then the fork is over on both sides.
    script = (
        "import asyncio, multiprocessing, os, signal, sys, time\n"
        "from holdfast.engines.journal.engine import JournalEngine\n"
        "def child():\n"
        "    print(os.getpid(), flush=True)\n"
        "    os.kill(os.getppid(), signal.SIGKILL)\n"
        "    time.sleep(60)\n"
        "async def run():\n"
        "    await JournalEngine.open(sys.argv[1])\n"
        "    multiprocessing.get_context('fork').Process(target=child).start()\n"
        "    time.sleep(60)\n"
        "asyncio.run(run())\n"
    )
    # Its output is not read to the end: the child keeps it open.
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script, str(tmp_path)], stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        child = int(owner.stdout.readline())
        assert owner.wait() == -signal.SIGKILL

        async def run() -> None:
            engine = await JournalEngine.open(tmp_path)
            await engine.close()

        try:
            os.kill(child, 0)
            asyncio.run(run())
        finally:
            os.kill(child, signal.SIGKILL)


async def test_a_relative_directory_stays_where_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    engine = await JournalEngine.open("data", options=JournalOptions(segment_bytes=65536))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    await engine.enqueue([job("a")])
    assert await engine.compact() is not None
    await engine.close()
    assert list((tmp_path / "data" / "snapshots").glob("*.snap"))


async def test_more_own_leases_than_fit_into_one_frame_are_ended_in_steps():
    disk, clock = SimDisk(), VirtualClock()
    engine = await opened(disk, clock)
    for chunk in range(10):
        await engine.enqueue([job(f"{chunk}-{n}") for n in range(50)])
        await engine.claim(queues=["default"], worker="own/1", limit=50)
    again = await opened(disk.crash(), clock)
    assert again.recovery.leases_ended == 500
    assert (await again.counts())["default"].pending == 500


async def test_a_reclaim_that_does_not_fit_takes_what_does():
    clock = VirtualClock()
    engine = await opened(SimDisk(), clock, segment_bytes=16 * 1024)
    for chunk in range(10):
        await engine.enqueue([job(f"{chunk}-{n}") for n in range(20)])
        await engine.claim(queues=["default"], worker="w", limit=20)
    clock.advance(60)
    found = 0
    while lost := (await engine.reclaim()).lost:
        found += len(lost)
    assert found == 200


def test_a_damaged_snapshot_never_pushes_out_a_whole_one():
    async def run(damage: int) -> None:
        disk = SimDisk()
        engine = await opened(disk)
        for number in range(2):
            await engine.enqueue([job(f"j{number}")])
            await engine.compact()
        await engine.close()
        older = snapshot_names(disk)[1]
        disk.flip_bit(snapshot_names(disk)[0], damage)
        engine = await opened(disk)
        await engine.enqueue([job("more")])
        assert await engine.compact() is not None
        assert older in snapshot_names(disk)
        disk.flip_bit(snapshot_names(disk)[0], 700)
        assert len(recover(disk).state) == 3

    for bit in (100, 900):
        asyncio.run(run(bit))


async def test_compaction_goes_on_when_the_only_snapshot_is_damaged():
    disk = SimDisk()
    engine = await opened(disk)
    await engine.enqueue([job("a")])
    await engine.compact()
    await engine.close()
    disk.flip_bit(snapshot_names(disk)[0], 700)
    engine = await opened(disk)
    await engine.enqueue([job("b")])
    assert await engine.compact() is not None
    assert len(recover(disk).state) == 2


async def test_nothing_is_kept_of_tenants_and_queues_without_jobs():
    clock = VirtualClock()
    engine = await opened(SimDisk(), clock, remember_seconds=1.0)
    for number in range(50):
        tenant, queue = f"t{number}", f"q{number}"
        await engine.enqueue([job("a", tenant=tenant, queue=queue)])
        claim = await engine.claim(queues=[queue], worker="w")
        await engine.settle([completed(one) for one in claim.jobs])
    clock.advance(60)
    assert await engine.counts() == {}
    state = engine._state
    assert not state._tenants
    assert not state._ready


FAILURES = [
    AnyFailure("timeout", "transient"),
    AnyFailure("timeout", FailureClass.TRANSIENT, message=None),
    AnyFailure("timeout", FailureClass.TRANSIENT, message="a\0b"),
    AnyFailure("timeout", FailureClass.TRANSIENT, message="\ud800"),
    AnyFailure("timeout", FailureClass.TRANSIENT, message="x" * 5_000),
    AnyFailure("", FailureClass.TRANSIENT),
    AnyFailure("timeout", FailureClass.TRANSIENT, retry_after_seconds=float("nan")),
    "boom",
]


@pytest.mark.parametrize("failure", FAILURES, ids=range(len(FAILURES)))
async def test_a_failure_that_could_not_be_read_again_is_refused(failure):
    engine = await opened(SimDisk())
    await engine.enqueue([job("a")])
    [held] = (await engine.claim(queues=["default"], worker="w")).jobs
    with pytest.raises(InvalidInput):
        await engine.settle([retry(held, failure)])
    assert (await engine.get(["a"]))[0] == held


@pytest.mark.parametrize(
    "call",
    [
        lambda engine: engine.enqueue(None),
        lambda engine: engine.enqueue(["a"]),
        lambda engine: engine.enqueue([AnyJob(task="t")], on_duplicate="Refuse"),
        lambda engine: engine.enqueue([AnyJob(task=["t"])]),
        lambda engine: engine.enqueue([AnyJob(task="t", scope=None)]),
        lambda engine: engine.settle("x"),
        lambda engine: engine.settle([AnyOutcome("completed", "a", 1)]),
        lambda engine: engine.settle([AnyOutcome(OutcomeKind.COMPLETED, "a", [])]),
        lambda engine: engine.settle([AnyOutcome(OutcomeKind.COMPLETED, "a", 1, result={"a": 1})]),
        lambda engine: engine.settle(
            [AnyOutcome(OutcomeKind.COMPLETED, "a", 1, result=b"\0" * 600)]
        ),
        lambda engine: engine.extend([1], lease_seconds=5),
        lambda engine: engine.reclaim(forced=["a"]),
        lambda engine: engine.get("abc"),
        lambda engine: engine.get([7]),
        lambda engine: engine.claim(queues=None, worker="w"),
        lambda engine: engine.claim(queues=[["a"]], worker="w"),
        lambda engine: engine.claim(queues=["a"], worker="w", tasks=7),
        lambda engine: engine.claim(queues=["a"], worker="w", wait_seconds="1"),
    ],
    ids=range(18),
)
async def test_wrong_types_are_refused_by_name(call):
    engine = await opened(SimDisk())
    with pytest.raises(InvalidInput):
        await call(engine)
    assert await engine.counts() == {}


@pytest.mark.parametrize(
    "fields",
    [
        {"remember_seconds": float("inf")},
        {"max_processing_seconds": 0},
        {"max_payload_bytes": 1 << 30},
        {"compact_bytes": None},
        {"keep_log_bytes": -1},
        {"sync_interval_seconds": 0},
    ],
)
def test_senseless_options_are_refused(fields):
    with pytest.raises(InvalidInput) as refused:
        JournalOptions(**fields)
    assert refused.value.field in fields


async def test_a_queue_named_twice_is_one_queue():
    disk = SimDisk()
    engine = await opened(disk)
    await engine.enqueue([job("a", queue="q")])
    claim = await engine.claim(queues=["q", "q"], worker="w", limit=2)
    assert [one.id for one in claim.jobs] == ["a"]
    assert len(recover(disk.crash()).state) == 1


def test_every_directory_that_is_made_is_durable_in_its_parent(tmp_path, monkeypatch):
    synced: set[str] = set()
    real = os.fsync

    def note(fd: int) -> None:
        synced.add(str(Path(f"/proc/self/fd/{fd}").readlink()))
        real(fd)

    monkeypatch.setattr(os, "fsync", note)

    async def run() -> None:
        engine = await JournalEngine.open(tmp_path / "new" / "data")
        await engine.close()

    asyncio.run(run())
    assert {str(tmp_path), str(tmp_path / "new"), str(tmp_path / "new" / "data")} <= synced


async def test_what_the_interpreter_prints_at_its_start_does_not_spoil_a_compaction(
    tmp_path, monkeypatch
):
    (tmp_path / "sitecustomize.py").write_text("print('hello from sitecustomize')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    options = JournalOptions(segment_bytes=65536)
    engine = await JournalEngine.open(tmp_path / "data", options=options)
    await engine.enqueue([job("a")])
    assert await engine.compact() is not None
    await engine.close()
