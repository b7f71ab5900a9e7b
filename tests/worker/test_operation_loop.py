"""The loop that carries out stored operations: how far, how fast, and past errors."""

from __future__ import annotations

import pytest

from holdfast.engines.forwarding import ForwardingEngine
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.model import outcome as outcomes
from holdfast.model.actions import ReplayJobs
from holdfast.model.audit import Attribution
from holdfast.model.errors import EngineClosed
from holdfast.model.failure import Failure
from holdfast.model.job import MICROSECONDS, NewJob
from holdfast.model.operation import NewOperation, OperationStep, Phase
from holdfast.model.policy import Rate
from holdfast.model.search import Filter
from holdfast.telemetry.counters import Metrics
from holdfast.telemetry.instrumented import InstrumentedEngine
from holdfast.testing import VirtualClock
from holdfast.worker.operation_loop import OperationLoop

WHY = Attribution("ann", "the server is back")


class World:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.engine = MemoryEngine(clock=self.clock)

    async def put_dead(self, *ids: str) -> None:
        await self.engine.enqueue([NewJob(task="t", id=one) for one in ids])
        taken = (await self.engine.claim(queues=["default"], worker="w", limit=len(ids))).jobs
        failure = Failure.of("upstream_5xx", "no")
        await self.engine.settle([outcomes.dead(job, failure) for job in taken])

    async def start(self, name: str, *ids: str, rate: Rate | None = None) -> None:
        new = NewOperation(id=name, action=ReplayJobs(), wanted=Filter(ids=ids), rate=rate)
        await self.engine.start_operation(new, WHY)
        self.clock.advance(0.001)

    async def acted(self, name: str) -> int:
        return (await self.engine.operation(name)).acted


@pytest.fixture
def world() -> World:
    return World()


async def test_a_step_carries_out_what_is_due(world):
    await world.put_dead(*(f"j{number:02}" for number in range(30)))
    await world.start("all")
    now_us = world.clock.now_us()
    next_us = await OperationLoop(world.engine).step(now_us)
    assert (await world.engine.operation("all")).phase is Phase.COMPLETED
    assert now_us < next_us <= now_us + MICROSECONDS, "another one may have started"


async def test_without_operations_it_looks_every_two_seconds(world):
    now_us = world.clock.now_us()
    assert await OperationLoop(world.engine).step(now_us) == now_us + 2 * MICROSECONDS


async def test_it_comes_back_when_the_rate_allows_more_and_at_the_latest_after_a_second(world):
    await world.put_dead("a", "b", "c")
    await world.start("slow", rate=Rate(4, 1.0))
    await world.start("slower", "c", rate=Rate(1, 60.0))
    loop = OperationLoop(world.engine)
    for _turn in range(40):
        now_us = world.clock.now_us()
        next_us = await loop.step(now_us)
        assert now_us < next_us <= now_us + MICROSECONDS + 100_000
        world.clock.advance((next_us - now_us) / MICROSECONDS)
    assert await world.acted("slow") == 3


async def test_an_error_of_one_operation_does_not_stop_the_others(world, caplog):
    class Broken(ForwardingEngine):
        async def advance_operation(self, operation_id: str) -> OperationStep:
            if operation_id == "bad":
                raise RuntimeError("no such luck")
            return await self.engine.advance_operation(operation_id)

    await world.put_dead("a", "b")
    await world.start("bad", "a")
    await world.start("good", "b")
    now_us = world.clock.now_us()
    assert await OperationLoop(Broken(world.engine)).step(now_us) <= now_us + MICROSECONDS + 100_000
    assert (await world.acted("bad"), await world.acted("good")) == (0, 1)
    assert "operation.step_failed" in caplog.text


async def test_a_closed_engine_ends_the_loop(world):
    await world.put_dead("a")
    await world.start("one")
    await world.engine.close()
    with pytest.raises(EngineClosed):
        await OperationLoop(world.engine).step(world.clock.now_us())


async def test_start_and_end_are_logged_and_counted_once(world, caplog):
    caplog.set_level("INFO")
    metrics = Metrics()
    engine = InstrumentedEngine(world.engine, metrics)
    await world.put_dead("a", "b")
    new = NewOperation(id="op", action=ReplayJobs(), wanted=Filter(), matched=2)
    await engine.start_operation(new, WHY)
    loop = OperationLoop(engine)
    assert metrics.operations_running() == 1
    for _turn in range(3):
        await loop.step(world.clock.now_us())
        await engine.advance_operation("op")
    for event in ("operation.started", "operation.completed"):
        assert [record.getMessage().split()[0] for record in caplog.records].count(event) == 1
    assert metrics.operation_members == {"replay": 2}
    assert metrics.operations_running() == 0
