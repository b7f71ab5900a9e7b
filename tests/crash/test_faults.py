"""Every call to the disk, killed or failed, one at a time."""

from copy import deepcopy

import pytest

from holdfast.engines.journal import engine as engine_module
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.snapshots.compaction import adopt
from holdfast.engines.journal.wal.group_commit import GroupCommit
from holdfast.engines.journal.wal.log_reader import segment_numbers
from holdfast.engines.journal.wal.segments import SegmentWriter, segment_name
from holdfast.model.errors import DurabilityLost, HoldfastError
from holdfast.model.job import NewJob
from holdfast.model.outcome import completed
from holdfast.testing import Fault, SimDisk, VirtualClock

from .sweep import swept
from .workload import OPTIONS, Ledger, check_after, drain, run_until_fault


def calls_of_a_clean_run() -> int:
    disk = SimDisk()
    assert run_until_fault(disk, Ledger(), VirtualClock())
    return disk.calls


CALLS = calls_of_a_clean_run()
SHARES = 4


def kill_at(call: int, *cuts: int | None, ignore_syncs: bool = False) -> None:
    """Kill at this call, find the disk as after a kill and power cuts, and check the promise."""
    disk = SimDisk(faults={call: Fault.KILL}, ignore_syncs=ignore_syncs)
    ledger, clock = Ledger(), VirtualClock()
    run_until_fault(disk, ledger, clock)
    for cut in cuts:
        found = disk.crash(None if cut is None else call * 1_000 + cut)
        try:
            check_after(found, deepcopy(ledger), deepcopy(clock))
        except AssertionError as error:
            raise AssertionError(f"killed at call {call}, cut {cut}: {error}") from error


def test_the_workload_reaches_every_kind_of_call():
    disk = SimDisk()
    run_until_fault(disk, Ledger(), VirtualClock())
    kinds = {name.split()[0] for name in disk.call_names}
    assert kinds == {
        "create",
        "allocate",
        "write",
        "sync",
        "rename",
        "remove",
        "sync_directory",
        "truncate",
        "before_commit",
        "after_commit",
    }
    assert CALLS >= 150


@pytest.mark.parametrize("share", range(SHARES))
def test_killed_at_every_call_nothing_acknowledged_is_lost(share):
    for call in swept(range(1 + share, CALLS + 1, SHARES), 2):
        kill_at(call, None, 0, 1, 2)


@pytest.mark.parametrize("cut", [None, 0], ids=["kill", "cut"])
def test_killed_while_callers_are_served_together_nothing_acknowledged_is_lost(cut, monkeypatch):
    monkeypatch.setattr(GroupCommit, "many_callers", True)
    for call in swept(range(1, CALLS + 1), 4):
        kill_at(call, cut)


def test_control_a_crowd_answered_before_durability_makes_the_kill_test_fail(monkeypatch):
    monkeypatch.setattr(GroupCommit, "many_callers", True)
    monkeypatch.setattr(GroupCommit, "durable_future", lambda self, callers=1: self._check())
    failures = 0
    for call in range(1, CALLS + 1, 2):
        try:
            kill_at(call, None)
        except AssertionError:
            failures += 1
            if failures > 5:
                break
    assert failures > 5


def test_killed_at_every_call_of_the_recovery_from_a_kill():
    for first in range(20, CALLS, 37):
        disk = SimDisk(faults={first: Fault.KILL})
        ledger, clock = Ledger(), VirtualClock()
        run_until_fault(disk, ledger, clock)
        left = disk.crash(first)
        for call in range(1, 40):
            again = left.crash()
            again.faults = {call: Fault.KILL}
            both = deepcopy(ledger)
            if run_until_fault(again, both, VirtualClock(clock.now_us()), seed=2):
                break
            check_after(again.crash(call), both, VirtualClock(clock.now_us() + 10**9))
        check_after(left.crash(), ledger, clock)


def test_killed_at_every_call_then_used_again_then_the_power_goes():
    """What a kill left in the page cache is made safe before anybody builds on it."""
    for call in swept(range(1, CALLS + 1), 5):
        disk = SimDisk(faults={call: Fault.KILL})
        ledger, clock = Ledger(), VirtualClock()
        run_until_fault(disk, ledger, clock)
        second = disk.crash()
        second.faults = {9 + call % 40: Fault.KILL}
        run_until_fault(second, ledger, clock, seed=2)
        for cut in range(2):
            check_after(second.crash(call * 10 + cut), deepcopy(ledger), deepcopy(clock))


@pytest.mark.parametrize("then", [Fault.KILL, Fault.EIO, Fault.ENOSPC])
def test_a_write_cut_short_and_then_failed_is_a_torn_end(then):
    for call in swept(range(1, CALLS + 1), 3):
        disk = SimDisk(faults={call: Fault.SHORT, call + 1: then})
        ledger, clock = Ledger(), VirtualClock()
        run_until_fault(disk, ledger, clock)
        try:
            check_after(disk.crash(), ledger, clock)
        except HoldfastError as error:
            raise AssertionError(f"{then} after a short write at call {call}: {error}") from error


@pytest.mark.parametrize("fault", [Fault.EIO, Fault.ENOSPC, Fault.SHORT])
def test_a_fault_at_every_call_is_typed_and_loses_nothing(fault):
    for call in swept(range(1, CALLS + 1), 3):
        disk = SimDisk(faults={call: fault})
        ledger, clock = Ledger(), VirtualClock()
        run_until_fault(disk, ledger, clock)
        try:
            check_after(disk.crash(), deepcopy(ledger), clock)
            check_after(disk.crash(call), deepcopy(ledger), clock)
        except AssertionError as error:
            raise AssertionError(f"{fault} at call {call}: {error}") from error


async def test_after_a_failed_sync_nothing_is_answered_and_nothing_retried():
    disk = SimDisk()
    engine = await JournalEngine.open(disk, clock=VirtualClock(), options=OPTIONS)
    await engine.enqueue([NewJob(task="t", id="safe")])
    upcoming = disk.calls + 2  # the write, then the sync
    disk.faults = {upcoming: Fault.EIO}
    with pytest.raises(DurabilityLost) as lost:
        await engine.enqueue([NewJob(task="t", id="doubtful")])
    assert isinstance(lost.value.__cause__, OSError)
    calls = disk.calls
    for call in (
        engine.enqueue([NewJob(task="t")]),
        engine.claim(queues=["default"], worker="w"),
        engine.get(["safe"]),
        engine.counts(),
        engine.reclaim(),
        engine.validate(),
    ):
        with pytest.raises(DurabilityLost):
            await call
    assert engine.failure is not None
    with pytest.raises(DurabilityLost):
        await engine.close()
    assert disk.calls == calls, "not a single call after the failure"


def test_control_without_fsync_the_kill_test_fails(monkeypatch):
    """The tests above bite: a disk that ignores syncs turns them red."""
    failures = 0
    for call in range(1, CALLS + 1, 5):
        try:
            kill_at(call, 0, ignore_syncs=True)
        except (AssertionError, HoldfastError):
            failures += 1
            if failures > 10:
                break
    assert failures > 10


def test_control_answers_before_durability_make_the_kill_test_fail(monkeypatch):
    monkeypatch.setattr(GroupCommit, "durable_future", lambda self, callers=1: self._check())
    failures = 0
    for call in range(1, CALLS + 1, 2):
        try:
            kill_at(call, None)
        except AssertionError:
            failures += 1
            if failures > 5:
                break
    assert failures > 5


def test_control_without_a_directory_sync_the_power_cut_test_fails(monkeypatch):
    monkeypatch.setattr(SimDisk, "sync_directory", lambda self, place: self._call("skipped"))
    failures = 0
    for call in range(1, CALLS + 1, 5):
        try:
            kill_at(call, 0)
        except (AssertionError, HoldfastError):
            failures += 1
            if failures > 5:
                break
    assert failures > 5


def test_control_segments_dropped_before_the_snapshot_is_safe(monkeypatch):
    """Deleting what a snapshot covers before it is renamed into place loses work."""

    def hasty(disk, compacted, keep_segments, **more):
        for number in segment_numbers(disk)[:-1]:
            disk.remove(segment_name(number))
        adopt(disk, compacted, keep_segments, **more)

    monkeypatch.setattr(engine_module, "adopt", hasty)
    failures = 0
    for call in range(1, CALLS + 1):
        try:
            kill_at(call, None)
        except (AssertionError, HoldfastError):
            failures += 1
            if failures > 0:
                break
    assert failures > 0


async def test_disk_full_refuses_new_work_and_lets_work_under_way_go_on():
    clock, ledger = VirtualClock(), Ledger()
    disk = SimDisk(capacity_bytes=3 * 4096)
    engine = await JournalEngine.open(disk, clock=clock, options=OPTIONS)
    refused = None
    for number in range(200):
        job = NewJob(task="t", id=f"j{number}", payload={"x": "y" * 100})
        try:
            await engine.enqueue([job])
        except HoldfastError as error:
            refused = error
            break
        ledger.enqueued.add(job.id or "")
    assert refused is not None
    assert refused.code == "storage_full"
    assert "free some space" in str(refused)
    claim = await engine.claim(queues=["default"], worker="w", limit=3)
    assert await engine.settle([completed(done) for done in claim.jobs]) == [None] * 3
    for done in claim.jobs:
        ledger.note_completion(done.id)
    disk.capacity_bytes = None
    await engine.enqueue([NewJob(task="t", id="after")])  # no restart needed
    ledger.enqueued.add("after")
    await ledger.check(engine)
    await drain(engine, clock, ledger)
    await engine.close()


async def test_a_writer_that_lies_about_room_is_caught(monkeypatch):
    """Control: without admission a full disk stops the engine instead of refusing new work."""
    monkeypatch.setattr(SegmentWriter, "reserve", lambda self, size, *, essential: None)
    with pytest.raises((DurabilityLost, AssertionError)):
        await test_disk_full_refuses_new_work_and_lets_work_under_way_go_on()
