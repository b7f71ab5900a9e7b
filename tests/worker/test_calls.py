"""Two calls in the air, as with a server: it is at work while jobs run, and while others settle."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.engines.clock import Clock
from holdfast.worker.loops import Supervisor
from holdfast.worker.outcome_buffer import OutcomeBuffer
from holdfast.worker.slot_pool import SlotPool

from .world import BusyEngine, World


class Server(BusyEngine):
    """Takes two calls at once, says in what order they come, and settles when it is let."""

    def __init__(self, clock: Clock, calls_at_once: int) -> None:
        super().__init__(clock)
        self.capabilities = replace(self.capabilities, calls_at_once=calls_at_once)
        self.order: list[str] = []
        self.settles = asyncio.Event()
        self.settles.set()
        self.in_the_air = 0
        self.most_in_the_air = 0

    async def claim(self, **asked: Any) -> Any:
        await asyncio.sleep(0)  # to send it is left to a task of its own
        self.order.append("claim")
        with self:
            return await super().claim(**asked)

    async def settle(self, *args: Any, **asked: Any) -> Any:
        self.order.append("settle")
        with self:
            await self.settles.wait()
            return await super().settle(*args, **asked)

    def __enter__(self) -> None:
        self.in_the_air += 1
        self.most_in_the_air = max(self.most_in_the_air, self.in_the_air)

    def __exit__(self, *_error: object) -> None:
        self.in_the_air -= 1


def world_with(calls_at_once: int, slots: int = 8, **options: Any) -> tuple[World, Server]:
    world = World(slots=slots, **options)
    engine = world.engine = Server(world.clock, calls_at_once)

    @world.task()
    async def work(seconds: float = 0.0) -> None:
        engine.order.append("run")
        await world.busy(seconds)

    return world, engine


def ran(engine: Server, number: int) -> bool:
    return engine.order.count("run") == number


def order_with(calls_at_once: int) -> list[str]:
    """Return the order of claims and runs where there is more than there are slots."""
    world, engine = world_with(calls_at_once)

    async def scenario(world: World) -> None:
        await world.enqueue("work", 12)
        world.start(leases=None)
        await world.until_state(completed=12)
        await world.stop()

    world.run(scenario)
    return [what for what in engine.order if what != "settle"]


def test_the_next_claim_is_on_its_way_before_what_came_is_run():
    assert order_with(2)[:3] == ["claim", "claim", "run"]
    assert order_with(1)[:2] == ["claim", "run"], "an engine in this process could do nothing yet"


def test_control_a_crew_that_runs_first_what_came(monkeypatch):
    usual = SlotPool._demand
    monkeypatch.setattr(SlotPool, "_demand", lambda crew: 0 if crew._ready else usual(crew))
    assert order_with(2)[:3] != ["claim", "claim", "run"]


def test_what_came_is_run_at_once_when_there_is_no_more():
    world, engine = world_with(2)

    async def scenario(world: World) -> None:
        await world.enqueue("work", 1)
        world.start(leases=None)
        await world.until_state(completed=1)
        await world.stop()

    world.run(scenario)
    assert engine.order[:2] == ["claim", "run"]


@pytest.mark.parametrize(("calls_at_once", "done"), [(2, 8), (1, 4)])
def test_a_claim_does_not_wait_for_others_to_be_settled(calls_at_once, done):
    world, engine = world_with(calls_at_once, slots=8)

    async def scenario(world: World) -> None:
        await world.enqueue("work", 4, payload={"seconds": 0.1})
        world.start(leases=None)
        await asyncio.sleep(0.05)  # a claim waits for work for the other slots
        engine.settles.clear()
        await world.until(lambda: "settle" in engine.order)
        await world.enqueue("work", 4)
        await asyncio.sleep(5.0)
        assert engine.order.count("run") == 8
        await world.enqueue("work", 4)
        await asyncio.sleep(5.0)
        assert engine.order.count("run") == 4 + done
        engine.settles.set()
        await world.until_state(completed=12)
        await world.stop()

    world.run(scenario)


def serve_one_by_one(calls_at_once: int, slots: int) -> None:
    """Have an idle worker given one job after another, none of which may wait."""
    world, engine = world_with(calls_at_once, slots)

    async def scenario(world: World) -> None:
        world.start(leases=None)
        for number in range(1, 20):
            await world.enqueue("work")
            await world.until(partial(ran, engine, number), 5.0)
            await asyncio.sleep(0.1 * (number % 3))
        await world.stop()

    world.run(scenario)


@pytest.mark.parametrize("calls_at_once", [1, 2])
@pytest.mark.parametrize("slots", [1, 2, 8])
def test_who_was_idle_takes_what_comes_time_and_again(calls_at_once, slots):
    serve_one_by_one(calls_at_once, slots)


def test_control_a_claim_that_got_less_than_it_asked_for_and_tells_nobody(monkeypatch):
    class Deaf(asyncio.Event):
        def set(self) -> None:
            if sys._getframe(1).f_code.co_name != "_claim":
                super().set()

    monkeypatch.setattr(asyncio, "Event", Deaf)
    with pytest.raises(AssertionError, match="the condition did not become true"):
        serve_one_by_one(2, slots=1)


@pytest.mark.parametrize("calls_at_once", [1, 2])
def test_a_slot_that_is_free_takes_what_comes_while_others_are_busy_for_long(calls_at_once):
    world, engine = world_with(calls_at_once, slots=4)

    async def scenario(world: World) -> None:
        world.start(leases=None)
        await world.enqueue("work", 3, payload={"seconds": 2.9})
        for number in range(4, 24):
            await world.enqueue("work")
            await world.until(partial(ran, engine, number), 1.0)
            await asyncio.sleep(0.01)
        assert world.running == 3
        await world.stop()

    world.run(scenario)


def states_after_stopping(calls_at_once: int) -> Mapping[str, int]:
    """Stop while an outcome is on its way, which takes 3 s."""
    world, engine = world_with(calls_at_once, slots=2)

    async def scenario(world: World) -> Mapping[str, int]:
        engine.settles.clear()
        world.start(leases=None)
        await world.enqueue("work", payload={"seconds": 0.1})
        await world.until(lambda: "settle" in engine.order)
        asyncio.get_running_loop().call_later(3.0, engine.settles.set)
        await world.stop(5.0)
        return await world.states()

    return world.run(scenario)


@pytest.mark.parametrize("calls_at_once", [1, 2])
def test_stopping_waits_for_what_is_being_settled(calls_at_once):
    assert states_after_stopping(calls_at_once) == {"completed": 1}


def test_control_who_stops_without_it_leaves_what_is_done_in_flight(monkeypatch):
    monkeypatch.setattr(OutcomeBuffer, "flush_until", lambda buffer, _give_up: buffer.try_flush())
    assert states_after_stopping(2) == {"in_flight": 1}


def test_stopping_does_not_wait_for_ever_for_what_is_being_settled():
    world, engine = world_with(2, slots=2)

    async def scenario(world: World) -> None:
        engine.settles.clear()
        world.start(leases=None)
        await world.enqueue("work", payload={"seconds": 0.1})
        await world.until(lambda: "settle" in engine.order)
        async with asyncio.timeout(10.0):
            await world.stop(5.0)

    world.run(scenario)


@settings(max_examples=20, deadline=None)
@given(
    slots=st.integers(1, 6),
    lasts=st.lists(st.sampled_from([0.0, 0.1, 0.5, 2.0]), min_size=1, max_size=30),
)
def test_every_job_runs_once_and_never_too_many_at_once_nor_too_many_calls(slots, lasts):
    world, engine = world_with(2, slots)

    async def scenario(world: World) -> None:
        for seconds in lasts:
            await world.enqueue("work", payload={"seconds": seconds})
        world.start()
        await world.until_state(completed=len(lasts))
        await world.stop()

    world.run(scenario)
    assert engine.order.count("run") == len(lasts)
    assert world.most_running <= slots
    assert engine.most_in_the_air <= 3


ACTIONS = st.one_of(
    st.tuples(st.just("enqueue"), st.integers(1, 9)),
    st.tuples(st.just("long"), st.integers(1, 3)),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.01, 0.2, 1.5])),
    st.tuples(st.just("resize"), st.integers(1, 6)),
    st.tuples(st.sampled_from(["drain", "resume", "stall", "go on"]), st.just(0)),
)


@settings(max_examples=60, deadline=None)
@given(
    calls_at_once=st.integers(1, 2),
    slots=st.integers(1, 6),
    batch_size=st.none() | st.integers(1, 4),
    actions=st.lists(ACTIONS, max_size=25),
)
def test_whatever_happens_to_a_worker_no_job_waits_for_ever(
    calls_at_once, slots, batch_size, actions
):
    world, engine = world_with(calls_at_once, slots, batch_size=batch_size)

    async def scenario(world: World) -> None:
        worker = world.start()
        does: dict[str, Any] = {
            "enqueue": lambda count: world.enqueue("work", count),
            "long": lambda count: world.enqueue("work", count, payload={"seconds": 2.0}),
            "wait": asyncio.sleep,
        }
        decides: dict[str, Any] = {
            "resize": worker.resize,
            "drain": lambda _nothing: worker.drain(),
            "resume": lambda _nothing: worker.resume(),
            "stall": lambda _nothing: engine.settles.clear(),
            "go on": lambda _nothing: engine.settles.set(),
        }
        for what, how in actions:
            if what in does:
                await does[what](how)
            else:
                decides[what](how)
        engine.settles.set()
        worker.resume()
        counts = await engine.counts()
        count = sum(one.completed + one.pending + one.in_flight for one in counts.values())
        await world.until_state(300.0, **({"completed": count} if count else {}))
        await world.stop()

    world.run(scenario)
    assert engine.most_in_the_air <= 3


def test_a_task_that_cancels_itself_while_the_worker_stops_is_recorded():
    world, _engine = world_with(2, slots=4)

    @world.task(name="gives_up")
    async def gives_up() -> None:
        await asyncio.sleep(1.0)
        raise asyncio.CancelledError

    async def scenario(world: World) -> float:
        await world.enqueue("gives_up", max_attempts=1)
        world.start(leases=None)
        await asyncio.sleep(0.5)
        began = asyncio.get_running_loop().time()
        await world.stop(30.0)
        assert await world.states() == {"dead": 1}
        return asyncio.get_running_loop().time() - began

    assert world.run(scenario) < 2.0


def test_a_loop_that_swallows_its_cancellation_ends_when_it_is_stopped():
    class Swallowing:
        async def step(self, now_us: int) -> int:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(600)
            return now_us + 600_000_000

    world = World()

    async def scenario(world: World) -> None:
        supervisor = Supervisor([Swallowing()], world.clock)
        supervisor.start()
        await asyncio.sleep(0.1)
        async with asyncio.timeout(5.0):
            await supervisor.stop()

    world.run(scenario)
