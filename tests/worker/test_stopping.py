"""Stopping a worker, and outcomes that the engine will not take together or at all."""

import asyncio
import logging
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.errors import EngineClosed, InvalidInput, TooLarge
from holdfast.model.job import MICROSECONDS
from holdfast.worker.loops import Supervisor

from .test_leases import AWAY, forever
from .world import World

# --- stopping ----------------------------------------------------------------------------------


def test_a_stop_waits_for_what_runs_and_claims_no_more():
    world = World(slots=2)

    @world.task(timeout_seconds=100.0)
    async def work() -> None:
        await world.busy(20)

    async def scenario(world: World) -> None:
        await world.enqueue("work", 5)
        world.start()
        await asyncio.sleep(5)
        await world.stop(drain_seconds=30)
        assert asyncio.get_running_loop().time() == pytest.approx(20, abs=0.1)
        assert await world.states() == {"completed": 2, "pending": 3}

    world.run(scenario)


def test_what_does_not_end_in_time_is_handed_back_without_charging_an_attempt():
    world = World(slots=2)
    forever(world)

    async def scenario(world: World) -> None:
        jobs = await world.enqueue("work", 3)
        world.start()
        await asyncio.sleep(5)
        await world.stop(drain_seconds=10)
        assert asyncio.get_running_loop().time() == pytest.approx(15, abs=0.2)
        assert await world.states() == {"pending": 3}
        for job in jobs:
            found = await world.job(job)
            assert (found.attempt, found.losses, found.failure) == (0, 0, None)

    world.run(scenario)
    assert len(world.seen) == 2


def test_a_task_that_will_not_even_be_cancelled_is_handed_back_over_its_head():
    world = World(slots=1)
    release = asyncio.Event()

    @world.task(timeout_seconds=1_000.0)
    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                world.seen.append("no")

    async def scenario(world: World) -> None:
        (job,) = await world.enqueue("stubborn")
        world.start()
        await asyncio.sleep(5)
        await world.stop(drain_seconds=1)
        assert (await world.job(job)).state == "pending"
        release.set()
        await asyncio.sleep(1)
        assert (await world.job(job)).attempt == 0  # nothing more came from it
        assert world.worker.late_outcomes == 0

    world.run(scenario)
    assert world.seen


def test_a_task_that_does_not_heed_its_time_out_loses_its_slot_to_another(caplog):
    world = World(slots=1, task_timeout_seconds=3.0)
    release = asyncio.Event()

    @world.task()
    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                world.seen.append("no")

    @world.task()
    async def work() -> None: ...

    async def scenario(world: World) -> None:
        (job,) = await world.enqueue("stubborn", max_attempts=1)
        await world.enqueue("work", 3)
        world.start()
        await world.until_state(dead=1, completed=3, seconds=30)
        failure = (await world.job(job)).failure
        assert failure is not None
        assert failure.error_reason == "timeout"
        release.set()
        await asyncio.sleep(1)
        await world.enqueue("work", 3)
        await world.until_state(dead=1, completed=6, seconds=30)
        await world.stop()

    world.run(scenario)
    assert "worker.task_abandoned" in caplog.text


def test_heartbeats_go_on_while_a_stop_waits():
    world = World(slots=1, lease_seconds=10.0)

    @world.task(timeout_seconds=100.0)
    async def work() -> None:
        await asyncio.sleep(60)

    async def scenario(world: World) -> None:
        (job,) = await world.enqueue("work")
        world.start()
        await asyncio.sleep(1)
        await world.stop(drain_seconds=100)
        found = await world.job(job)
        assert (found.state, found.losses) == ("completed", 0)

    world.run(scenario)


def test_a_stop_of_an_idle_worker_is_done_at_once():
    world = World()

    async def scenario(world: World) -> None:
        world.start()
        await asyncio.sleep(0.3)
        await world.stop()
        assert asyncio.get_running_loop().time() == pytest.approx(0.3)

    world.run(scenario)


def test_outcomes_that_come_during_a_stop_are_settled_even_after_a_short_absence():
    world = World(slots=2)

    @world.task(timeout_seconds=100.0)
    async def work() -> None:
        await asyncio.sleep(5)

    async def scenario(world: World) -> None:
        await world.enqueue("work", 2)
        world.start()
        await asyncio.sleep(1)
        stopping = asyncio.ensure_future(world.stop(drain_seconds=20))
        await asyncio.sleep(3)
        world.engine.away = lambda _verb: AWAY
        await asyncio.sleep(2)  # they are done meanwhile
        world.engine.away = lambda _verb: None
        await stopping
        assert await world.states() == {"completed": 2}

    world.run(scenario)


@settings(max_examples=30, deadline=None)
@given(when=st.floats(0, 4), drain=st.sampled_from([0.0, 0.5, 10.0]), slots=st.integers(1, 4))
def test_whenever_a_worker_stops_nothing_stays_claimed_and_no_attempt_is_charged(
    when, drain, slots
):
    world = World(slots=slots)

    @world.task()
    async def work() -> None:
        await asyncio.sleep(random.Random(len(world.seen)).choice([0, 0.2, 0.7, 1.3]))
        world.seen.append(1)

    async def scenario(world: World) -> None:
        jobs = await world.enqueue("work", 12)
        world.start()
        await asyncio.sleep(when)
        await world.stop(drain)
        states = await world.states()
        assert set(states) <= {"completed", "pending"}
        for job in [await world.job(job) for job in jobs]:
            assert job.attempt == (job.state == "completed")

    world.run(scenario)


def test_a_loop_that_is_torn_down_without_a_stop_does_not_hang():
    world = World(slots=2)
    forever(world)

    async def scenario(world: World) -> None:
        await world.enqueue("work", 2)
        world.start()
        await asyncio.sleep(1)
        # And that is all: the runner cancels what is left.

    world.run(scenario)
    assert len(world.seen) == 2


# --- the supervisor ----------------------------------------------------------------------------


class Stepping:
    def __init__(self, *steps: object) -> None:
        self.steps = list(steps)
        self.times: list[float] = []

    async def step(self, now_us: int) -> int | None:
        self.times.append(asyncio.get_running_loop().time())
        step = self.steps.pop(0)
        if isinstance(step, BaseException):
            raise step
        assert step is None or isinstance(step, float)
        return None if step is None else now_us + int(step * MICROSECONDS)


def test_loops_are_stepped_when_they_ask_for_it_and_one_that_fails_is_tried_again(caplog):
    world = World()
    failing = Stepping(2.0, ValueError("odd"), AWAY, 5.0, EngineClosed("closed"))
    ending = Stepping(1.0, None)

    async def scenario(world: World) -> None:
        supervisor = Supervisor([failing, ending], world.clock)
        supervisor.start()
        await asyncio.sleep(60)
        await supervisor.stop()

    with caplog.at_level(logging.WARNING):
        world.run(scenario)
    assert failing.times == [0, 2, 3, 4, 9]
    assert ending.times == [0, 1]
    assert "loop.step_failed loop=Stepping" in caplog.text


# --- outcomes that are refused -----------------------------------------------------------------


def short_tasks(world: World) -> None:
    @world.task(name="work")
    async def work() -> None:
        await asyncio.sleep(0.5)


@pytest.mark.parametrize("most", [1, 3])
def test_outcomes_that_are_too_large_together_are_settled_in_parts(most):
    world = World(slots=16)
    short_tasks(world)
    world.engine.refuse = lambda outcomes: (
        TooLarge("settle", 9, 8, "send fewer") if len(outcomes) > most else None
    )

    async def scenario(world: World) -> None:
        await world.enqueue("work", 50)
        worker = world.start()
        await world.until_state(completed=50, seconds=60)
        assert worker.late_outcomes == 0
        await world.stop()

    world.run(scenario)


def test_an_outcome_that_cannot_be_recorded_does_not_take_the_others_with_it(caplog):
    world = World(slots=4, lease_seconds=10.0)
    short_tasks(world)
    poison = {"bad"}
    world.engine.refuse = lambda outcomes: (
        InvalidInput("result", "odd") if poison & {outcome.id for outcome in outcomes} else None
    )

    async def scenario(world: World) -> None:
        await world.enqueue("work", id="bad", max_attempts=2)
        await world.enqueue("work", 20)
        world.start()
        # Its lease runs out, as often as it takes.
        await world.until_state(completed=20, dead=1, seconds=100)
        failure = (await world.job("bad")).failure
        assert failure is not None
        assert failure.error_reason == "worker_lost"
        await world.stop()

    world.run(scenario)
    assert "job=bad" in caplog.text


def test_a_bug_in_the_engine_does_not_stop_the_worker_for_good(caplog):
    world = World(slots=2)
    short_tasks(world)

    async def scenario(world: World) -> None:
        await world.enqueue("work", 6)
        world.start()
        await asyncio.sleep(0.2)
        world.engine.away = ZeroDivisionError
        await asyncio.sleep(5)
        world.engine.away = lambda _verb: None
        await world.until_state(completed=6, seconds=20)
        await world.stop()

    world.run(scenario)
    assert "ZeroDivisionError" in caplog.text
