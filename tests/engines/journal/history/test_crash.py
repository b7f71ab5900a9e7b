"""Feeding, ended at any call to the disk: all of a feed is there afterwards, or nothing of it."""

import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.engines.journal.history import database as database_module
from holdfast.engines.journal.history import store as store_module
from holdfast.engines.journal.history.check import verify
from holdfast.engines.journal.history.store import SqliteHistory
from holdfast.engines.journal.wal.disk import LocalDisk
from holdfast.model.access import SYSTEM
from holdfast.model.errors import HoldfastError, StorageError, StorageFull
from holdfast.model.search import EVERYTHING, Order
from holdfast.testing import Fault, SimDisk

from .test_groups import check
from .world import World, forget_all

CYCLES = int(os.environ.get("HOLDFAST_TEST_KILLS", "5"))
VICTIM = Path(__file__).with_name("victim.py")


def lives() -> tuple[World, list[int]]:
    """Return a world, and the seqs at which its parts were fed."""
    world = World()
    ends = []
    for part in range(4):
        jobs = [world.dead(f"d{part}-{number}") for number in range(3)]
        world.done(f"c{part}")
        world.replay(jobs[0])
        world.archive(jobs[1])
        world.audit()
        ends.append(world.seq)
    return world, ends


def feed_in_parts(disk: SimDisk) -> None:
    """Open the store and feed the world, part by part, until the disk is in the way."""
    world, ends = lives()
    try:
        store = SqliteHistory.open(disk.database())
        for end in ends:
            store.feed([one for one in world.recorded if one.seq <= end], end)
        forget_all(store, 1)
    except StorageError:
        pass


def calls_of_a_clean_run() -> int:
    disk = SimDisk()
    feed_in_parts(disk)
    return disk.calls


CALLS = calls_of_a_clean_run()


def world_up_to(seq: int) -> World:
    """Return the world as it was after this effect."""
    whole, _ends = lives()
    world = World()
    for one in whole.recorded:
        if one.seq <= seq:
            if hasattr(one.effect, "record"):
                world.seq += 1
                world.recorded.append(one)
            else:
                world.happen(one.effect)
    return world


def kill_at(call: int, *, cut: int | None = None) -> None:
    disk = SimDisk(faults={call: Fault.KILL})
    feed_in_parts(disk)
    store = SqliteHistory.open(disk.crash(cut).database())
    world, ends = lives()
    assert store.checkpoint in (0, *ends)
    check(world_up_to(store.checkpoint), store)
    # The next life feeds the log again, from somewhere before the checkpoint.
    store.feed(world.recorded, world.seq)
    check(world, store)


@pytest.mark.parametrize("cut", [None, 1])
def test_killed_before_or_after_any_commit_nothing_is_there_by_half(cut):
    for call in range(1, CALLS + 1):
        kill_at(call, cut=cut)


def test_a_commit_that_was_killed_is_there_only_afterwards():
    seen = []
    for call in range(1, CALLS + 1):
        disk = SimDisk(faults={call: Fault.KILL})
        feed_in_parts(disk)
        store = SqliteHistory.open(disk.crash().database())
        seen.append((disk.call_names[-1], store.checkpoint))
    _world, ends = lives()
    before = [checkpoint for name, checkpoint in seen if name == "before_commit"]
    after = [checkpoint for name, checkpoint in seen if name == "after_commit"]
    assert before == [0, 0, *ends[:-1]]
    assert after == [0, *ends]


def test_control_a_checkpoint_outside_the_transaction_makes_the_kill_test_fail(monkeypatch):
    def apart(connection, checkpoint):
        """Write the checkpoint after the rows, in a transaction of its own."""
        if connection.in_transaction and checkpoint.seq:
            connection.execute("COMMIT")
            disk = disks[-1]
            disk._database.images["cold.sqlite"] = connection.serialize()
            connection.execute("BEGIN IMMEDIATE")
        database_module.write_checkpoint(connection, checkpoint)

    disks: list[SimDisk] = []
    real = SimDisk.__init__

    def remember(self, **settings):
        real(self, **settings)
        disks.append(self)

    monkeypatch.setattr(SimDisk, "__init__", remember)
    monkeypatch.setattr(store_module, "write_checkpoint", apart)
    failures = 0
    for call in range(1, CALLS + 1):
        try:
            kill_at(call)
        except (AssertionError, HoldfastError):
            failures += 1
    assert failures > 0


@pytest.mark.parametrize("fault", [Fault.EIO, Fault.ENOSPC])
def test_a_failed_feed_changes_nothing_and_can_be_tried_again(fault):
    for call in range(3, CALLS + 1):
        disk = SimDisk(faults={call: fault})
        world, ends = lives()
        store = SqliteHistory.open(disk.database())
        for number, end in enumerate(ends):
            if call in (3 + 2 * number, 4 + 2 * number):  # before this commit, or after it
                with pytest.raises(StorageFull if fault is Fault.ENOSPC else StorageError):
                    store.feed(world.recorded, end)
            store.feed(world.recorded, end)
            assert store.checkpoint == end
        check(world, store)


def test_a_real_process_killed_at_random_moments_leaves_a_store_that_is_whole(tmp_path):
    seed = int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    rng = random.Random(seed)
    recorded = 0
    for _cycle in range(CYCLES):
        recorded = max(recorded, live_and_die(tmp_path / "data", rng.uniform(0.0, 0.2)))
        disk = LocalDisk(tmp_path / "data")
        disk.lock()
        store = SqliteHistory.open(disk.database(), expected_seq=recorded)
        assert store.checkpoint >= recorded, "what was said to be fed is fed"
        assert verify(store) == []
        finished = sum(store.tallies().values())
        # Three effects to a job: enqueued, claimed, finished.
        assert finished == store.checkpoint // 3
        assert len(store.find(EVERYTHING, SYSTEM, None, 1_000, Order.NEWEST)) == min(
            1_000, finished
        )
        store.close()
        disk.unlock()
    assert recorded > 0, "the victims really worked"


def live_and_die(directory: Path, seconds: float) -> int:
    """Let a process feed, kill it some time after its first feed; return the last that it told."""
    process = subprocess.Popen(
        [sys.executable, str(VICTIM), str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=Path(__file__).parents[4],
    )
    assert process.stdout is not None
    assert process.stderr is not None
    first = process.stdout.readline()
    assert first, process.stderr.read().decode()
    deadline = time.monotonic() + seconds
    output = first
    while (wait := deadline - time.monotonic()) > 0:
        if select.select([process.stdout], [], [], wait)[0]:
            output += os.read(process.stdout.fileno(), 1 << 16)
    process.send_signal(signal.SIGKILL)
    output += process.stdout.read()
    process.wait()
    process.stdout.close()
    process.stderr.close()
    return int([line for line in output.split(b"\n")[:-1] if line][-1])


def test_a_process_may_end_while_it_makes_the_file(disk):
    database = disk.database()
    connection = database_module.connect(database, writes=True)
    connection.close()
    store = SqliteHistory.open(database)
    assert store.checkpoint == 0
    store.close()
