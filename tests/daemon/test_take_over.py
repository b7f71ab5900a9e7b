"""Entering the registry at the start: one live process per name; the leases of an earlier life."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.daemon import take_over
from holdfast.daemon.announcer import TTL_SECONDS, this_process
from holdfast.daemon.take_over import enter_registry
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.model.errors import WorkerIdInUse
from holdfast.model.fleet import WorkerProcess
from holdfast.model.job import Job, NewJob, State
from holdfast.model.search import Filter
from holdfast.testing import VirtualClock

BEAT_SECONDS = 0.05


class Place:
    """A store, and who is in its registry."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.engine = MemoryEngine(clock=self.clock)
        self.said: list[str] = []

    async def enter(self, process: WorkerProcess, **options: Any) -> None:
        await enter_registry(self.engine, process, self.held_by, self.said.append, **options)

    async def held_by(self, worker: str) -> list[Job]:
        page = await self.engine.find(Filter(states=(State.IN_FLIGHT,)))
        return [job for job in page.jobs if job.worker == worker]

    async def earlier(self, *workers: str, **fields: Any) -> WorkerProcess:
        """Enter a process that was killed while each of its workers held a job."""
        names = list(workers or ("a",))
        process = this_process("a", names, 0)
        gone = dict.fromkeys(names, (process.pid, process.started_ticks - 1))
        made = {"started_ticks": process.started_ticks - 1, "pids": gone, **fields}
        process = replace(process, **made)
        await self.engine.announce(process, ttl_seconds=TTL_SECONDS)
        for name in names:
            await self.engine.enqueue([NewJob(task="t", payload={}, id=f"of {name}")])
            await self.engine.claim(queues=["default"], worker=name)
        return process

    async def states(self) -> dict[str, State]:
        return {job.id: job.state for job in (await self.engine.find()).jobs}

    async def while_time_passes(self, work: Awaitable[None]) -> None:
        """Do something while the clock of the store goes on."""

        async def pass_time() -> None:
            while True:
                await asyncio.sleep(0.01)
                self.clock.advance(0.5)

        passing = asyncio.ensure_future(pass_time())
        try:
            await asyncio.wait_for(work, 10)
        finally:
            passing.cancel()


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(take_over, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(take_over, "_CHILDREN_SECONDS", 0.1)


def on_place(scenario: Callable[[Place], Awaitable[None]]) -> Callable[[], None]:
    async def run() -> None:
        await scenario(Place())

    def test() -> None:
        asyncio.run(run())

    test.__doc__ = scenario.__doc__
    return test


@on_place
async def test_the_leases_of_an_earlier_life_that_is_gone_end_at_once(place):
    await place.earlier("a", "a-2")
    now = this_process("a", ["a", "a-2"], 0)
    await place.enter(now)
    assert await place.states() == {"of a": State.PENDING, "of a-2": State.PENDING}
    [entry] = await place.engine.workers(gone=True)
    assert entry.process.id == now.id
    [job] = await place.engine.get(["of a"])
    assert (job.attempt, job.losses, job.failure.error_reason) == (1, 1, "worker_lost")
    assert place.said == []


@on_place
async def test_they_end_at_once_after_a_longer_break_too(place):
    await place.earlier()
    place.clock.advance(2 * TTL_SECONDS)  # its entry is not live any more
    await place.enter(this_process("a", ["a"], 0))
    assert await place.states() == {"of a": State.PENDING}


@on_place
async def test_without_proof_the_leases_run_out_by_themselves(place):
    await place.earlier(machine="another kernel")
    await place.while_time_passes(place.enter(this_process("a", ["a"], 0)))
    assert await place.states() == {"of a": State.IN_FLIGHT}
    assert "waiting up to 4s for a sign of life: worker_id 'a' is in use" in place.said[0]


@on_place
async def test_a_worker_process_that_still_runs_keeps_its_leases(place):
    earlier = await place.earlier("a", "a-2")
    living = earlier.pid, earlier.started_ticks + 1
    pids = {**earlier.pids, "a-2": living}
    await place.engine.announce(replace(earlier, pids=pids), ttl_seconds=TTL_SECONDS)
    await place.enter(this_process("a", ["a", "a-2"], 0))
    assert await place.states() == {"of a": State.PENDING, "of a-2": State.IN_FLIGHT}


@on_place
async def test_one_that_goes_on_announcing_itself_is_alive(place):
    live = await place.earlier(machine="another kernel", host="east")

    async def announce() -> None:
        while True:
            await place.engine.announce(live, ttl_seconds=TTL_SECONDS)
            await asyncio.sleep(BEAT_SECONDS)

    beating = asyncio.ensure_future(announce())
    with pytest.raises(WorkerIdInUse, match=f"process {live.pid} on east"):
        await place.while_time_passes(place.enter(this_process("a", ["a"], 0)))
    beating.cancel()
    assert await place.states() == {"of a": State.IN_FLIGHT}
    assert [entry.process for entry in await place.engine.workers()] == [live]


async def meanwhile_another_starts(place: Place) -> None:
    """Have another process enter, and claim the job, before the next one reads the leases."""
    await place.earlier()
    read = place.held_by

    async def held_by(worker: str) -> list[Job]:
        place.held_by = read  # type: ignore[method-assign]
        await place.enter(this_process("a", ["a"], 0))
        await place.engine.claim(queues=["default"], worker=worker)
        return await read(worker)

    place.held_by = held_by  # type: ignore[method-assign]


@on_place
async def test_who_is_refused_the_name_ends_no_leases(place):
    await meanwhile_another_starts(place)
    with pytest.raises(WorkerIdInUse):
        await place.enter(this_process("a", ["a"], 0), patient=False)
    assert await place.states() == {"of a": State.IN_FLIGHT}


@on_place
async def test_nor_does_one_that_had_to_wait_for_the_name(place):
    """The other one is silent, and may run the job all the same."""
    await meanwhile_another_starts(place)
    await place.while_time_passes(place.enter(this_process("a", ["a"], 0)))
    assert await place.states() == {"of a": State.IN_FLIGHT}


@on_place
async def test_one_without_a_name_of_its_own_does_not_wait(place):
    await place.earlier(machine="another kernel")
    for _time in range(2):
        with pytest.raises(WorkerIdInUse):
            await place.enter(this_process("a", ["a"], 0), patient=False)
        place.clock.advance(TTL_SECONDS)  # silent now, but it may come back


@on_place
async def test_a_process_that_was_replaced_by_an_exec_is_an_earlier_life(place):
    """As by the watchdog: pid and start time stay."""
    same = this_process("a", ["a"], 0)
    await place.earlier(started_ticks=same.started_ticks, pids=same.pids)
    await place.enter(this_process("a", ["a"], 0))
    assert await place.states() == {"of a": State.PENDING}


@on_place
async def test_control_a_live_one_in_this_very_process_is_not(place):
    await place.enter(this_process("a", ["a"], 0))
    with pytest.raises(WorkerIdInUse):
        await place.enter(this_process("a", ["a"], 0), patient=False)
