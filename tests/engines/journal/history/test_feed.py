"""The history feed: when it feeds, what it waits for, and how it handles a failing disk."""

import asyncio
import logging
import threading
from itertools import pairwise

import pytest

from holdfast.engines.journal import background_feed as feed_module
from holdfast.engines.journal.history.feed import HistoryFeed
from holdfast.engines.journal.history.store import SqliteHistory
from holdfast.model.access import SYSTEM
from holdfast.model.errors import DurabilityLost, StorageError, StorageFull
from holdfast.model.job import State
from holdfast.model.search import EVERYTHING, Order
from holdfast.testing import Fault, SimDisk, VirtualClock, VirtualLoop

from .world import World


class Owner:
    """Owns a history as an engine does: it says what is durable, and hears what was fed."""

    def __init__(self, disk=None, *, inline=True, world=None, **settings):
        self.world = world or World()
        self.disk = disk or SimDisk()
        self.durable_asked = 0
        self.fed: list[int] = []
        self.behind = 0
        self.history = HistoryFeed(
            SqliteHistory.open(self.disk.database()),
            durable_seq=self.durable_seq,
            fed=self.fed.append,
            inline=inline,
            **settings,
        )
        self._recorded = 0

    async def durable_seq(self) -> int:
        self.durable_asked += 1
        return self.world.seq - self.behind

    def record(self) -> None:
        """Tell the history everything that happened since the last time."""
        for applied in self.world.recorded[self._recorded :]:
            self.history.record(applied)
        self._recorded = len(self.world.recorded)

    async def found(self):
        jobs = await self.history.find(EVERYTHING, SYSTEM, None, 99, Order.CREATED)
        return [job.id for job in jobs]


def virtually(work):
    """Run in virtual time: what waits for nothing else is over at once."""
    loop = VirtualLoop(VirtualClock())
    try:
        return loop.run_until_complete(asyncio.wait_for(work(), 1_000))
    finally:
        loop.close()


@pytest.mark.parametrize("inline", [True, False])
async def test_after_a_flush_everything_recorded_is_found(disk, inline):
    owner = Owner(SimDisk() if inline else disk, inline=inline)
    dead, done = owner.world.dead("a"), owner.world.done("b")
    owner.record()
    await owner.history.flush()
    assert await owner.found() == ["a", "b"]
    assert owner.history.get("default", "a") == dead
    assert owner.history.get("default", "b") == done
    assert (await owner.history.history(dead))[0] == owner.world.attempts["default", "a"]
    assert (await owner.history.groups(EVERYTHING, SYSTEM, owner.world.now_us))[0].count == 1
    assert owner.fed == [owner.world.seq]
    await owner.history.close()


def test_what_leaves_no_trace_is_not_even_kept_in_mind():
    async def work():
        owner = Owner()
        owner.world.claim(owner.world.enqueue("a"))
        owner.record()
        assert owner.history.unfed == 0
        await owner.history.flush()
        assert owner.fed == []
        assert await owner.history.cover() == 2
        assert owner.fed == [2]
        await owner.history.close()

    virtually(work)


def test_it_feeds_by_itself_a_quarter_of_a_second_after_the_first_thing():
    async def work():
        owner = Owner()
        owner.world.done("a")
        owner.record()
        await asyncio.sleep(0.2)
        owner.world.done("b")
        owner.record()
        assert owner.fed == []
        await asyncio.sleep(0.06)
        assert owner.fed == [owner.world.seq]
        assert await owner.found() == ["a", "b"]
        await asyncio.sleep(10)
        assert owner.durable_asked == 1, "it rests when there is nothing to do"
        await owner.history.close()

    virtually(work)


def test_it_feeds_at_once_when_there_is_much(monkeypatch):
    monkeypatch.setattr(feed_module, "FEED_FROM", 10)
    monkeypatch.setattr(feed_module, "FEED_MOST", 4)

    async def work():
        owner = Owner()
        for number in range(10):
            owner.world.done(str(number))
        owner.record()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert owner.history.unfed == 0
        assert owner.fed == [12, 24, 30]
        await owner.history.close()

    virtually(work)


def test_large_payloads_and_results_count_more_against_the_backlog():
    async def work():
        owner = Owner(max_backlog=100)
        for number in range(3):
            owner.world.done(f"large-{number}", payload=b'{"x":"' + b"y" * 100_000 + b'"}')
        owner.record()
        assert owner.history.behind, "150 times two KiB"
        await owner.history.flush()
        assert not owner.history.behind
        for number in range(90):
            owner.world.done(f"small-{number}")
        owner.record()
        assert not owner.history.behind, "and nothing is left of the large ones"
        await owner.history.close()

    virtually(work)


def test_it_rests_while_there_is_room_and_not_when_there_is_little(monkeypatch):
    monkeypatch.setattr(feed_module, "FEED_FROM", 10)

    async def work():
        owner = Owner(max_backlog=100)
        slow, durable_seq = asyncio.Event(), owner.durable_seq

        async def durable_after_a_second() -> int:
            seq = await durable_seq()
            await asyncio.sleep(1)
            slow.set()
            return seq

        owner.history._durable_seq = durable_after_a_second  # so long it takes to feed
        many(owner, 10)
        await asyncio.sleep(0.5)
        many(owner, 20)  # meanwhile
        await slow.wait()
        await asyncio.sleep(2.9)
        assert owner.history.unfed == 20, "it took a second, so it rests for three"
        await asyncio.sleep(1.2)
        assert owner.history.unfed == 0
        slow.clear()
        many(owner, 10)
        await asyncio.sleep(0)
        assert owner.durable_asked == 3, "rested and done, it begins at once again"
        await asyncio.sleep(0.5)
        many(owner, 20)
        await slow.wait()
        many(owner, 29)
        assert owner.durable_asked == 3
        many(owner, 1)  # half of the room is taken
        await asyncio.sleep(0)
        assert owner.durable_asked == 4
        await owner.history.flush()
        await owner.history.close()

    virtually(work)


def many(owner: Owner, count: int) -> None:
    for _ in range(count):
        owner.world.done(f"j{owner.world.seq}")
    owner.record()


def test_only_what_is_durable_is_fed():
    async def work():
        owner = Owner()
        owner.world.done("a")
        owner.world.done("b")
        owner.record()
        owner.behind = 2
        await asyncio.sleep(0.3)
        assert (await owner.found(), owner.history.checkpoint, owner.history.unfed) == (["a"], 4, 1)
        owner.behind = 0
        await owner.history.flush()
        assert (await owner.found(), owner.history.checkpoint) == (["a", "b"], 6)
        await owner.history.close()

    virtually(work)


def test_nothing_is_fed_when_the_log_cannot_be_made_durable():
    async def work():
        owner = Owner()
        owner.world.done("a")
        owner.record()

        async def lost() -> int:
            raise DurabilityLost("the log could not be written")

        owner.history._durable_seq = lost
        with pytest.raises(DurabilityLost):
            await owner.history.flush()
        assert isinstance(owner.history.failure, DurabilityLost)
        assert owner.history.checkpoint == 0
        with pytest.raises(DurabilityLost):
            await owner.history.close()

    virtually(work)


def test_what_is_pinned_is_not_said_to_be_fed_until_it_is_let_go():
    async def work():
        owner = Owner()
        owner.world.done("a")
        owner.record()
        with owner.history.pinned():
            with owner.history.pinned():
                await owner.history.flush()
            assert (owner.fed, await owner.found()) == ([], ["a"])
        assert owner.fed == [3]
        await owner.history.close()

    virtually(work)


async def test_room_waits_until_enough_is_fed(disk, monkeypatch):
    gate, begun = threading.Event(), threading.Event()
    owner = Owner(disk, inline=False, max_backlog=5)
    real = owner.history.store.feed

    def held(*arguments):
        begun.set()
        assert gate.wait(30)
        real(*arguments)

    monkeypatch.setattr(owner.history.store, "feed", held)
    for number in range(6):
        owner.world.done(str(number))
        owner.record()
        if number < 5:
            await owner.history.room()
    waiting = asyncio.create_task(owner.history.room())
    await asyncio.to_thread(begun.wait, 30)
    assert not waiting.done()
    gate.set()
    await waiting
    assert owner.history.unfed == 0
    await owner.history.close()


async def test_while_one_feed_is_under_way_the_next_is_gathered(disk, monkeypatch):
    owner = Owner(disk, inline=False)
    gate, begun = threading.Event(), threading.Event()
    real, batches = owner.history.store.feed, []

    def held(batch, checkpoint):
        begun.set()
        assert gate.wait(30)
        batches.append(len(batch))
        real(batch, checkpoint)

    monkeypatch.setattr(owner.history.store, "feed", held)
    owner.world.done("a")
    owner.record()
    first = asyncio.create_task(owner.history.flush())
    await asyncio.to_thread(begun.wait, 30)
    for number in range(7):
        owner.world.done(f"b{number}")
    owner.record()
    second = asyncio.create_task(owner.history.flush())
    gate.set()
    await asyncio.gather(first, second)
    assert batches == [1, 7]
    await owner.history.close()


async def test_a_caller_who_gives_up_does_not_stop_the_feed(disk, monkeypatch):
    owner = Owner(disk, inline=False)
    gate, begun = threading.Event(), threading.Event()
    real = owner.history.store.feed

    def held(*arguments):
        begun.set()
        assert gate.wait(30)
        real(*arguments)

    monkeypatch.setattr(owner.history.store, "feed", held)
    owner.world.done("a")
    owner.record()
    flush = asyncio.create_task(owner.history.flush())
    await asyncio.to_thread(begun.wait, 30)
    flush.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flush
    gate.set()
    await owner.history.flush()
    assert await owner.found() == ["a"]
    await owner.history.close()


@pytest.mark.parametrize(
    ("fault", "error"), [(Fault.EIO, StorageError), (Fault.ENOSPC, StorageFull)]
)
def test_a_failing_disk_is_logged_once_and_retried_until_it_is_repaired(caplog, fault, error):
    caplog.set_level(logging.INFO, "holdfast.journal")

    async def work():
        disk = SimDisk()
        owner = Owner(disk)
        opened = disk.calls
        disk.faults = dict.fromkeys(range(opened + 1, opened + 1_000), fault)
        owner.world.dead("a")
        owner.record()
        with pytest.raises(error):
            await owner.history.flush()
        failed_at = []
        loop = asyncio.get_running_loop()
        while loop.time() < 60:
            before = disk.calls
            await asyncio.sleep(0.05)
            if disk.calls > before:
                failed_at.append(loop.time())
        gaps = [later - sooner for sooner, later in pairwise(failed_at)]
        assert max(gaps) == pytest.approx(10, abs=0.2)
        assert all(b > a - 0.2 for a, b in pairwise(gaps)), "pauses grow"
        assert isinstance(owner.history.failure, error)
        owner.world.done("b")
        owner.record()
        assert (owner.fed, owner.history.unfed, owner.history.checkpoint) == ([], 2, 0)
        with pytest.raises(error):
            await owner.history.flush()
        disk.faults = {}
        await asyncio.sleep(11)
        assert owner.history.failure is None
        assert await owner.found() == ["a", "b"]
        assert owner.fed == [owner.world.seq]
        await owner.history.close()

    virtually(work)
    said = [record.getMessage().split()[0] for record in caplog.records]
    assert said == ["history.failed", "history.recovered"]


def test_a_flush_after_the_disk_is_mended_does_not_wait_for_the_pause():
    async def work():
        disk = SimDisk()
        owner = Owner(disk)
        disk.faults = {disk.calls + 1: Fault.EIO}
        owner.world.done("a")
        owner.record()
        with pytest.raises(StorageError):
            await owner.history.flush()
        await owner.history.flush()
        assert (await owner.found(), owner.history.failure) == (["a"], None)
        await owner.history.close()

    virtually(work)


def test_an_error_after_the_commit_is_no_reason_to_keep_it_twice():
    async def work():
        disk = SimDisk()
        owner = Owner(disk)
        disk.faults = {disk.calls + 2: Fault.EIO}
        owner.world.dead("a")
        owner.record()
        with pytest.raises(StorageError):
            await owner.history.flush()
        await owner.history.flush()
        assert owner.history.store.tallies() == {("default", "default", State.DEAD): 1}
        assert owner.history.get("default", "a") is not None
        await owner.history.close()

    virtually(work)


def test_closing_stores_what_was_recorded(disk):
    async def work():
        owner = Owner(disk, inline=False)
        owner.world.done("a")
        owner.record()
        await owner.history.close()
        await owner.history.close()

    asyncio.run(work())
    store = SqliteHistory.open(disk.database(), expected_seq=3)
    assert store.get("default", "a") is not None
    store.close()


def test_closing_on_a_broken_disk_says_so_and_lets_go():
    async def work():
        disk = SimDisk()
        owner = Owner(disk)
        disk.faults = dict.fromkeys(range(disk.calls, 1_000), Fault.EIO)
        owner.world.done("a")
        owner.record()
        with pytest.raises(StorageError):
            await owner.history.close()
        with pytest.raises(StorageError):
            owner.history.store.get("default", "a")

    virtually(work)


@pytest.mark.parametrize("inline", [True, False])
async def test_fresh_ids_are_answered_without_the_store(disk, inline, monkeypatch):
    owner = Owner(SimDisk() if inline else disk, inline=inline)
    dead = owner.world.dead("a")
    owner.record()
    await owner.history.flush()
    if owner.history._filling is not None:
        await owner.history._filling
    asked, real = [], owner.history.store.get

    def counted(*name):
        asked.append(name)
        return real(*name)

    monkeypatch.setattr(owner.history.store, "get", counted)
    assert all(owner.history.get("default", f"fresh-{n}") is None for n in range(1_000))
    assert len(asked) < 10
    assert owner.history.get("default", "a") == dead
    await owner.history.close()


async def test_forgetting_goes_in_steps_and_feeding_goes_on_between(disk, monkeypatch):
    monkeypatch.setattr("holdfast.engines.journal.history.store.FORGET_STEP", 3)

    owner = Owner(disk, inline=False)
    for number in range(10):
        owner.world.done(str(number), queue=f"q{number % 2}")
    kept = owner.world.dead("dead")
    border_us = owner.world.pass_time()
    young = owner.world.done("young")
    owner.record()
    await owner.history.flush()
    steps, real = [], owner.history.store.forget

    def counted(*arguments, **settings):
        went, after = real(*arguments, **settings)
        steps.append(sum(went.values()))
        return went, after

    monkeypatch.setattr(owner.history.store, "forget", counted)
    gone = await owner.history.forget(border_us)
    assert gone == {
        ("default", "q0", State.COMPLETED): 5,
        ("default", "q1", State.COMPLETED): 5,
    }
    assert max(steps) == 3
    assert await owner.found() == [kept.id, young.id]
    taken = len(steps)
    assert await owner.history.forget(border_us) == {}
    assert len(steps) == taken, "nothing to do, nothing done"
    await owner.history.close()


def test_what_is_forgotten_is_not_shown_even_before_it_is_swept(store, world):
    old = world.done("old")
    border_us = world.pass_time()
    world.dead("dead")
    world.feed(store)
    store.hide(border_us)
    assert store.get("default", old.id) is None
    assert [job.id for job in store.find(EVERYTHING, SYSTEM, None, 9, Order.NEWEST)] == ["dead"]
    store.hide(0)
    assert store.get("default", old.id) is None, "the border never goes back"


def test_the_border_survives_with_what_was_swept(disk, world):
    store = SqliteHistory.open(disk.database())
    world.done("a")
    border_us = world.pass_time()
    world.feed(store)
    store.forget(border_us)
    store.close()
    again = SqliteHistory.open(disk.database())
    assert again.forget_before_us == border_us
    again.close()
