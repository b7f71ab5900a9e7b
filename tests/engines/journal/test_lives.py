"""One life of the engine after another: what a life issued is never issued again."""

import asyncio

import pytest

from holdfast.engines.journal.inspection import verify
from holdfast.engines.journal.wal.group_commit import SyncMode
from holdfast.model.errors import LeaseLost
from holdfast.model.job import Job
from holdfast.model.outcome import completed
from holdfast.testing import SimDisk

from .test_engine import job, opened


@pytest.mark.parametrize("mode", [SyncMode.INTERVAL, SyncMode.OFF])
def test_a_life_of_which_nothing_is_left_has_used_up_its_tokens_all_the_same(mode):
    """Its segment is there, and blank: the next life must not begin with the same one."""

    async def first() -> SimDisk:
        disk = SimDisk()
        engine = await opened(disk)
        await engine.enqueue([job("a")])
        await engine.close()
        return disk

    async def second(disk: SimDisk) -> Job:
        engine = await opened(disk, sync=mode, sync_interval_seconds=60)
        disk.capacity_bytes = 0  # no room to begin another segment ahead of time
        held: Job = (await engine.claim(queues=["default"], worker="zombie")).jobs[0]
        return held

    async def third(disk: SimDisk, zombie: Job) -> None:
        engine = await opened(disk)
        await engine.reclaim(forced=[zombie])
        [held] = (await engine.claim(queues=["default"], worker="w")).jobs
        assert held.token > zombie.token
        assert isinstance((await engine.settle([completed(zombie)]))[0], LeaseLost)
        await engine.close()
        assert verify(disk).problems == []

    disk = asyncio.run(first())
    zombie = asyncio.run(second(disk))
    disk.capacity_bytes = None
    for seed in range(20):
        asyncio.run(third(disk.crash(seed), zombie))


def test_lives_in_which_nothing_happens_leave_a_whole_log():
    async def life(disk: SimDisk) -> None:
        engine = await opened(disk)
        assert len((await engine.claim(queues=["default"], worker="w")).jobs) <= 1

    async def last(disk: SimDisk) -> None:
        engine = await opened(disk)
        assert (await engine.get(["a"]))[0] is not None
        await engine.close()

    async def first(disk: SimDisk) -> None:
        await (await opened(disk)).enqueue([job("a", delay_seconds=60.0)])

    disk = SimDisk()
    asyncio.run(first(disk))
    for seed in range(5):
        disk = disk.crash(seed)
        asyncio.run(life(disk))
    disk = disk.crash()
    asyncio.run(last(disk))
    assert verify(disk).problems == []
