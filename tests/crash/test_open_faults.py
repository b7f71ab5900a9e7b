"""Every call that opens or creates something, failed: it is as a full disk is, and no worse."""

import asyncio
import errno
from collections.abc import Iterator, Mapping

import pytest

from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.events import store as events_module
from holdfast.engines.journal.events.store import SqliteEvents
from holdfast.engines.journal.wal import segments
from holdfast.model.errors import DurabilityLost, HoldfastError, StorageError, StorageFull
from holdfast.model.event import NewEvent
from holdfast.model.job import NewJob
from holdfast.model.outcome import completed
from holdfast.testing import Fault, SimDisk, VirtualClock

from .workload import OPTIONS, Ledger, check_after, drain, run_until_fault, work

EVENT = NewEvent(event_type="order.paid", entity_type="order", entity_id="1", actor_id="a")
FAULTS = [Fault.EMFILE, Fault.ENFILE, Fault.EACCES]


class FromNowOn(Mapping[int, Fault]):
    """The fault of every call from this number on."""

    def __init__(self, first: int, fault: Fault) -> None:
        self._first, self._fault = first, fault

    def __getitem__(self, number: int) -> Fault:
        if number < self._first:
            raise KeyError(number)
        return self._fault

    def __iter__(self) -> Iterator[int]:
        return iter(())

    def __len__(self) -> int:
        return 0


async def opened(disk: SimDisk, clock: VirtualClock) -> JournalEngine:
    return await JournalEngine.open(disk, clock=clock, options=OPTIONS)


def fail_once(call: int, fault: Fault) -> int:
    """Fail one opening call after the start; return how many there were."""
    disk, ledger, clock = SimDisk(), Ledger(), VirtualClock()

    async def run() -> int:
        engine = await opened(disk, clock)
        started = disk.opens
        disk.open_faults = {started + call: fault}
        await work(engine, clock, ledger, settles=2, compaction_may_fail=True)
        await ledger.check(engine)
        await engine.close()
        return disk.opens - started

    try:
        count = asyncio.run(run())
        check_after(disk.crash(), ledger, clock)
    except (AssertionError, HoldfastError) as error:
        name = disk.open_names[-1]
        raise AssertionError(f"{fault} at opening call {call} ({name}): {error!r}") from error
    return count


@pytest.mark.parametrize("fault", FAULTS)
def test_one_failed_call_stops_nothing_and_loses_nothing(fault):
    count = fail_once(0, fault)
    assert count >= 40
    for call in range(1, count + 1, 1 if fault is Fault.EMFILE else 3):
        fail_once(call, fault)


def test_the_workload_opens_everything_that_a_journal_opens():
    disk = SimDisk()
    assert run_until_fault(disk, Ledger(), VirtualClock())
    kinds = {tuple(name.split("/")[0].split()) for name in disk.open_names}
    assert kinds >= {
        ("names", "log"),
        ("names", "snapshots"),
        ("create", "log"),
        ("create", "snapshots"),
        ("open", "log"),
        ("open", "snapshots"),
        ("connect", "cold.sqlite"),
    }


@pytest.mark.parametrize("fault", FAULTS)
def test_at_every_call_of_the_start_it_is_typed_and_the_next_start_finds_all(fault):
    disk, ledger, clock = SimDisk(), Ledger(), VirtualClock()
    run_until_fault(disk, ledger, clock)
    for call in range(1, 200):
        found = disk.crash()
        found.open_faults = {call: fault}
        try:
            engine = asyncio.run(opened(found, clock))
        except StorageError:
            found.open_faults = {}
            check_after(found, Ledger(enqueued=set(ledger.enqueued)), VirtualClock(clock.now_us()))
            continue
        del engine
        if found.opens < call:
            break
    else:
        pytest.fail("the start never succeeded")
    assert call > 8


@pytest.mark.parametrize("fault", FAULTS)
async def test_while_no_file_can_be_opened_new_work_is_refused_and_the_rest_goes_on(fault):
    disk, ledger, clock = SimDisk(), Ledger(), VirtualClock()
    engine = await opened(disk, clock)
    disk.open_faults = FromNowOn(disk.opens + 1, fault)
    refused = None
    for number in range(200):
        job = NewJob(task="t", id=f"j{number}", payload={"x": "y" * 100})
        try:
            await engine.enqueue([job])
        except StorageFull as error:
            refused = error
            break
        ledger.enqueued.add(job.id or "")
    assert refused is not None
    assert {
        Fault.EMFILE: "ulimit -n",
        Fault.ENFILE: "fs.file-max",
        Fault.EACCES: "ls -ld",
    }[fault] in str(refused)
    claim = await engine.claim(queues=["default"], worker="w", limit=3)
    assert await engine.settle([completed(done) for done in claim.jobs]) == [None] * 3
    for done in claim.jobs:
        ledger.note_completion(done.id)
    with pytest.raises(StorageError):
        await engine.compact()
    with pytest.raises(StorageError):
        [batch async for batch in engine.dump()]
    disk.open_faults = {}
    await engine.enqueue([NewJob(task="t", id="after")])  # no restart needed
    ledger.enqueued.add("after")
    await ledger.check(engine)
    assert await engine.compact() is not None
    await drain(engine, clock, ledger)
    disk.open_faults = FromNowOn(disk.opens + 1, fault)
    await engine.close()  # in order, although nothing can be opened
    disk.open_faults = {}
    again = await opened(disk, clock)
    assert again.recovery.closed_in_order
    await ledger.check(again)
    await again.close()


@pytest.mark.parametrize("fault", FAULTS)
def test_control_taken_for_a_failed_write_the_tests_above_fail(fault, monkeypatch):
    monkeypatch.setattr(segments, "CANNOT_GROW", frozenset({errno.ENOSPC, errno.EDQUOT}))
    with pytest.raises(DurabilityLost):
        asyncio.run(
            test_while_no_file_can_be_opened_new_work_is_refused_and_the_rest_goes_on(fault)
        )
    failures = 0
    for call in range(1, 40):
        try:
            fail_once(call, fault)
        except AssertionError:
            failures += 1
    assert failures > 0


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("call", [1, 2, 3, 4])
async def test_the_first_events_are_stored_once_their_file_can_be_opened(fault, call):
    disk, clock = SimDisk(), VirtualClock()
    engine = await opened(disk, clock)
    disk.open_faults = {disk.opens + call: fault}
    [receipt] = await engine.append([EVENT])
    for _try in range(2):
        try:
            await engine._event_feed.flush()
        except StorageFull:
            assert _try == 0
    assert [one.id for one in (await engine.find_events()).events] == [receipt.id]
    await engine.close()
    again = await opened(disk, clock)
    assert [one.id for one in (await again.find_events()).events] == [receipt.id]
    await again.close()


async def test_control_without_a_second_look_the_file_of_the_events_stays_closed(monkeypatch):
    monkeypatch.setattr(events_module, "open_intact", lambda *_args, **_more: None)
    assert SqliteEvents is events_module.SqliteEvents
    with pytest.raises((HoldfastError, AssertionError)):
        await test_the_first_events_are_stored_once_their_file_can_be_opened(Fault.EMFILE, 3)
