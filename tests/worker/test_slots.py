"""How many slots a worker has, and which queues they serve."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.errors import InvalidInput
from holdfast.worker.attempt import current

from .world import World

# --- sizes -------------------------------------------------------------------------------------


def test_a_worker_grows_while_it_runs():
    world = World(slots=1)

    @world.task()
    async def work() -> None:
        await world.busy(1)

    async def scenario(world: World) -> None:
        worker = world.start()
        await world.enqueue("work", 40)
        await asyncio.sleep(2.5)
        assert world.most_running == 1
        worker.resize(6)
        await asyncio.sleep(0)
        await asyncio.sleep(1.5)
        assert world.running == 6
        await world.until_state(completed=40)
        await world.stop()

    world.run(scenario)
    assert world.most_running == 6


def test_a_worker_shrinks_as_its_slots_become_free():
    world = World(slots=6)

    @world.task()
    async def work() -> None:
        await world.busy(2)

    async def scenario(world: World) -> None:
        worker = world.start()
        await world.enqueue("work", 20)
        await asyncio.sleep(1)
        assert world.running == 6
        worker.resize(2)
        assert worker.slots == {"": 2}
        await asyncio.sleep(0.5)
        assert world.running == 6  # what runs is not disturbed
        await asyncio.sleep(1)
        world.most_running = 0
        await world.until_state(completed=20)
        await world.stop()

    world.run(scenario)
    assert world.most_running == 2


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 8), st.floats(0, 3)), min_size=1, max_size=10))
def test_a_worker_that_is_resized_all_the_time_runs_everything_once(sizes):
    world = World(slots=2)

    @world.task()
    async def work(number: int) -> None:
        world.seen.append(number)
        await world.busy((number % 5) / 4)

    async def scenario(world: World) -> None:
        worker = world.start()
        for number in range(40):
            await world.enqueue("work", payload={"number": number})
        for size, seconds in sizes:
            worker.resize(size)
            await asyncio.sleep(seconds)
        await world.until_state(completed=40)
        await asyncio.sleep(5)
        world.most_running = 0
        await world.enqueue("work", 40, payload={"number": 4})
        await world.until_state(completed=80)
        await world.stop()

    world.run(scenario)
    assert sorted(set(world.seen)) == list(range(40))
    assert len(world.seen) == 80
    assert world.most_running == sizes[-1][0]


@pytest.mark.parametrize("slots", [0, -1, 10_001, True, 1.5, "8"])
def test_a_size_that_makes_no_sense_is_refused(slots):
    world = World(slots=2)

    async def scenario(world: World) -> None:
        worker = world.start()
        with pytest.raises(InvalidInput, match="workers"):
            worker.resize(slots)
        with pytest.raises(InvalidInput, match="no slots are reserved for 'mail'"):
            worker.resize(3, "mail")
        assert worker.slots == {"": 2}
        await world.stop()

    world.run(scenario)


# --- queues ------------------------------------------------------------------------------------


def test_queues_with_slots_of_their_own_do_not_hold_each_other_up():
    world = World(queue_slots={"mail": 3, "slow": 1})
    most: dict[str, int] = {}
    now: dict[str, int] = {}

    @world.task()
    async def work() -> None:
        queue = current().job.queue
        now[queue] = now.get(queue, 0) + 1
        most[queue] = max(most.get(queue, 0), now[queue])
        await asyncio.sleep(1)
        now[queue] -= 1

    async def scenario(world: World) -> None:
        for queue in ("slow", "mail", "other"):
            await world.enqueue("work", 6, queue=queue)
        worker = world.start()
        assert worker.slots == {"mail": 3, "slow": 1}
        await asyncio.sleep(2.5)
        counts = await world.engine.counts()
        assert counts["mail"].completed == 6
        assert counts["slow"].completed == 2
        worker.resize(4, "slow")
        await asyncio.sleep(2.6)
        counts = await world.engine.counts()
        assert counts["slow"].completed == 6
        assert counts["other"].pending == 6
        await world.stop()

    world.run(scenario)
    assert most == {"mail": 3, "slow": 4}


def test_only_the_queues_that_are_asked_for_are_served():
    world = World(queues=["mail"])

    @world.task()
    async def work() -> None: ...

    async def scenario(world: World) -> None:
        await world.enqueue("work", 2, queue="mail")
        await world.enqueue("work", 2, queue="other")
        world.start()
        await asyncio.sleep(30)
        assert await world.states() == {"completed": 2, "pending": 2}
        await world.stop()

    world.run(scenario)


def test_queues_that_no_task_names_are_served_when_they_turn_up():
    world = World()

    @world.task(queue="mail")
    async def work() -> None: ...

    async def scenario(world: World) -> None:
        world.start()
        await asyncio.sleep(5)
        await world.enqueue("work", 2, queue="new-one")
        await world.until_state(completed=2, seconds=5)
        await world.stop()

    world.run(scenario)


def test_what_runs_is_shown_with_its_progress():
    world = World()

    @world.task(timeout_seconds=100.0, queue="mail")
    async def work() -> None:
        current().progress(0.25, "reading")
        await asyncio.sleep(50)

    async def scenario(world: World) -> None:
        await world.enqueue("work", id="j", queue="mail")
        worker = world.start()
        await asyncio.sleep(10)
        (run,) = worker.running()
        assert (run.job_id, run.task, run.queue, run.attempt) == ("j", "work", "mail", 1)
        assert (run.progress_share, run.progress_note) == (0.25, "reading")
        assert run.seconds == pytest.approx(10, abs=0.1)
        await world.stop(0)

    world.run(scenario)
