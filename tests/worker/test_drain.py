"""A worker that claims no more, and claims again."""

import asyncio

from .world import World


def test_a_drained_worker_finishes_what_runs_and_claims_no_more_until_it_resumes():
    world = World(slots=2)

    @world.task()
    async def work() -> None:
        await world.busy(2)

    async def scenario(world: World) -> None:
        worker = world.start()
        await world.enqueue("work", 6)
        await world.until(lambda: world.running == 2)
        worker.drain()
        assert worker.draining
        await world.until_state(completed=2, pending=4)
        await asyncio.sleep(60)
        assert await world.states() == {"completed": 2, "pending": 4}
        worker.resume()
        assert not worker.draining
        await world.until_state(completed=6)
        await world.stop()

    world.run(scenario)


def test_what_a_claim_under_way_brings_is_handed_back_without_charging_an_attempt():
    world = World(slots=2)

    @world.task()
    async def work() -> None:
        await world.busy(1)

    async def scenario(world: World) -> None:
        worker = world.start()
        await asyncio.sleep(0.5)  # its claim waits for work
        worker.drain()
        (job_id,) = await world.enqueue("work")
        await asyncio.sleep(30)
        job = await world.job(job_id)
        assert (job.state, job.attempt, world.most_running) == ("pending", 0, 0)
        worker.resume()
        await world.until_state(completed=1)
        await world.stop()

    world.run(scenario)


def test_leases_of_what_runs_are_renewed_while_it_drains():
    world = World(slots=1, lease_seconds=3.0, task_timeout_seconds=100.0)

    @world.task()
    async def work() -> None:
        await world.busy(30)

    async def scenario(world: World) -> None:
        worker = world.start()
        await world.enqueue("work")
        await world.until(lambda: world.running == 1)
        worker.drain()
        await world.until_state(completed=1)
        await world.stop()

    world.run(scenario)
    assert world.most_running == 1
