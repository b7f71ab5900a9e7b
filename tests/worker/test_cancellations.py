"""A running attempt hears within two seconds that its cancellation was requested."""

import asyncio
from typing import Any

import pytest

from holdfast.model.actions import CancelJobs
from holdfast.model.audit import Attribution
from holdfast.model.errors import Unavailable
from holdfast.model.search import Filter
from holdfast.worker import loops
from holdfast.worker.loops import CancellationLoop, Supervisor

from .world import World

LIMIT_SECONDS = 2.0


async def cancel_while_it_runs(world: World) -> float:
    """Cancel the only job as soon as it runs; return how long it went on."""
    world.start(leases=1.0)
    supervisor = Supervisor([CancellationLoop(world.worker)], world.clock)
    supervisor.start()
    [job_id] = await world.enqueue("long")
    await world.until(lambda: world.running)
    await world.engine.operate(CancelJobs(), Filter(ids=(job_id,)), Attribution("ann", "wrong"))
    loop = asyncio.get_running_loop()
    began = loop.time()
    await world.until(lambda: not world.running, 60)
    took = loop.time() - began
    await world.until_state(cancelled=1)
    await supervisor.stop()
    await world.stop()
    return took


def world_with_a_long_task(**options: Any) -> World:
    world = World(task_timeout_seconds=120.0, **options)

    @world.task()
    async def long() -> None:
        await world.busy(100)

    return world


@pytest.mark.parametrize("lease_seconds", [30.0, 300.0])
def test_a_running_job_hears_of_its_cancellation_within_two_seconds(lease_seconds):
    world = world_with_a_long_task(lease_seconds=lease_seconds)
    assert world.run(cancel_while_it_runs) <= LIMIT_SECONDS


def test_control_heartbeats_alone_take_longer(monkeypatch):
    async def look_at_nothing(_loop: CancellationLoop, now_us: int) -> int:
        return now_us + 1_000_000

    monkeypatch.setattr(loops.CancellationLoop, "step", look_at_nothing)
    assert world_with_a_long_task(lease_seconds=30.0).run(cancel_while_it_runs) > LIMIT_SECONDS


def test_looking_renews_nothing_and_short_jobs_are_not_looked_at():
    world = World()

    @world.task()
    async def short() -> None:
        await world.busy(0.2)

    async def scenario(world: World) -> None:
        async def looked_at(*_args: object, **_options: object) -> None:
            raise AssertionError("it is too short to be looked at")

        world.engine.leases = looked_at  # type: ignore[assignment, method-assign]
        world.start(leases=None)
        await world.enqueue("short", 20)
        while (await world.states())["completed"] < 20:
            await world.worker.look_for_cancellations()
            await asyncio.sleep(0.1)
        await world.stop()

    world.run(scenario)


def test_a_store_that_is_away_stops_nothing():
    world = world_with_a_long_task()

    async def scenario(world: World) -> None:
        async def away(*_args: object, **_options: object) -> None:
            raise Unavailable("away")

        world.engine.leases = away  # type: ignore[assignment, method-assign]
        world.start(leases=1.0)
        await world.enqueue("long")
        await world.until(lambda: world.running)
        await asyncio.sleep(5)
        await world.worker.look_for_cancellations()
        assert world.running == 1
        await world.until_state(completed=1)
        await world.stop()

    world.run(scenario)


def test_an_attempt_whose_lease_is_lost_is_stopped():
    world = world_with_a_long_task(lease_seconds=300.0)

    async def scenario(world: World) -> None:
        world.start(leases=None)
        await world.enqueue("long", max_attempts=1)
        await world.until(lambda: world.running)
        await asyncio.sleep(2)
        page = await world.engine.find()
        await world.engine.reclaim(forced=page.jobs)
        await world.worker.look_for_cancellations()
        await world.until(lambda: not world.running, 1)
        await world.stop(0)

    world.run(scenario)
