"""Who shares a flush with whom, and that others get their turn on the event loop."""

import asyncio
from collections.abc import Coroutine

import pytest

from holdfast.engines.embedded import admission
from holdfast.engines.journal.wal.group_commit import ALONE_IN_A_ROW
from holdfast.model.errors import DurabilityLost, EngineClosed
from holdfast.testing import SimDisk

from .test_engine import held_engine, job, opened, turn


async def turns_beside(call: Coroutine[object, object, object]) -> int:
    """Return how many turns of the event loop others get while this is done."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    meanwhile = asyncio.create_task(others())
    await call
    meanwhile.cancel()
    return turns


async def test_who_calls_again_and_again_does_not_have_the_event_loop_to_himself():
    engine = await opened(SimDisk())  # flushes on the loop, as it is with a quick disk

    async def calls() -> None:
        for number in range(200):
            await engine.enqueue([job(f"j{number}")])
            await engine.get([f"j{number}"])

    assert await turns_beside(calls()) >= 200
    assert not engine.commit.many_callers, "nor is he taken for several"


async def test_who_looks_for_many_jobs_does_not_either():
    engine = await opened(SimDisk())
    await engine.enqueue([job(f"j{number}") for number in range(100)])
    assert await turns_beside(engine.get([f"j{number}" for number in range(100)])) >= 20


async def test_callers_are_seen_to_be_several_after_a_long_time_with_one():
    engine = await opened(SimDisk())
    for number in range(2 * ALONE_IN_A_ROW):
        await engine.enqueue([job(f"alone-{number}")])
    assert not engine.commit.many_callers

    async def caller(name: str) -> None:
        for number in range(10):
            await engine.enqueue([job(f"{name}-{number}")])

    before = engine.commit.batches
    await asyncio.gather(*(caller(f"c{number}") for number in range(8)))
    assert engine.commit.batches - before <= 20, "80 calls share flushes"


async def test_who_is_at_the_door_already_shares_the_flush(monkeypatch):
    monkeypatch.setattr(admission, "MAX_WAIT_SECONDS", 3_600.0)

    engine, runner = await held_engine(SimDisk())
    calls = []
    for number in range(5):
        calls.append(asyncio.create_task(engine.enqueue([job(f"j{number}")])))
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # the next one comes a little later
    await turn()
    [_flush] = runner.waiting
    runner.land()
    assert runner.waiting == []
    await asyncio.gather(*calls)


@pytest.mark.parametrize("enough", [True, False])
async def test_who_keeps_coming_does_not_keep_the_others_waiting(monkeypatch, enough):
    if enough:
        monkeypatch.setattr(admission, "MAX_WAIT_SECONDS", 3_600.0)
    else:
        monkeypatch.setattr(admission, "MAX_REQUESTS", 1_000_000)
    engine, runner = await held_engine(SimDisk())
    calls: list[asyncio.Task] = []
    while not runner.waiting:
        calls.append(asyncio.create_task(engine.enqueue([job(f"j{len(calls)}")])))
        await asyncio.sleep(0)
        assert len(calls) < 100_000
    while not all(call.done() for call in calls):
        runner.land()
        await asyncio.sleep(0)


async def test_to_ask_for_nothing_asks_whether_the_store_can_commit():
    """What a probe of readiness relies on."""

    engine, runner = await held_engine(SimDisk())
    enqueued = asyncio.create_task(engine.enqueue([job("a")]))
    await turn()
    asked = asyncio.create_task(engine.get([]))
    await turn()
    assert not asked.done(), "it waits for the flush that is in the air"
    runner.land()
    await asyncio.gather(enqueued, asked)
    engine.commit.stop(OSError("gone"))
    with pytest.raises(DurabilityLost):
        await engine.get([])
    closed = await opened(SimDisk())
    await closed.close()
    with pytest.raises(EngineClosed):
        await closed.get([])


async def test_to_look_for_many_waits_for_one_flush():
    engine, runner = await held_engine(SimDisk())
    enqueued = asyncio.create_task(engine.enqueue([job(f"j{n}") for n in range(100)]))
    await turn()
    asked = asyncio.create_task(engine.get([f"j{n}" for n in range(100)]))
    for _ in range(100):
        await asyncio.sleep(0)
    runner.land()
    await enqueued
    found = await asked
    assert all(found)
