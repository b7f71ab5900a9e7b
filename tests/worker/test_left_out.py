"""Ticks that operators want left out, and schedules that are known to the store."""

import asyncio

from holdfast.engines.memory.engine import MemoryEngine
from holdfast.model.audit import Attribution
from holdfast.model.effects import ScheduleState
from holdfast.testing import VirtualClock
from holdfast.worker.schedules import Schedule, ScheduleLoop, store_schedules

MINUTE_US = 60_000_000
WHO = Attribution("ann", "a holiday")
EACH_MINUTE = Schedule(name="s", expression="* * * * *", task="t", overlap="allow")


class World:
    def __init__(self, *, heeds: bool = True) -> None:
        self.clock = VirtualClock()
        self.engine = MemoryEngine(clock=self.clock)
        self.loop = ScheduleLoop(
            [EACH_MINUTE],
            lambda jobs, on_duplicate: self.engine.enqueue(jobs, on_duplicate=on_duplicate),
            remember_seconds=3_600,
            states=self.engine.schedules if heeds else None,
        )

    async def change(self, **fields: object) -> None:
        states = await self.engine.schedules()
        state = states["s"]
        kept = {field: getattr(state, field) for field in ScheduleState.__struct_fields__}
        await self.engine.set_schedule("s", ScheduleState(**{**kept, **fields}), WHO)  # type: ignore[arg-type]

    async def pass_minutes(self, minutes: int) -> int:
        """Return how many jobs were made in so many minutes."""
        before = await self.pending()
        for _ in range(minutes):
            self.clock.advance(60)
            await self.loop.step(self.clock.now_us())
        return await self.pending() - before

    async def pending(self) -> int:
        counts = await self.engine.counts()
        return counts["default"].pending if counts else 0


def test_a_tick_is_skipped_once_and_the_next_one_runs():
    async def scenario(heeds: bool) -> tuple[int, int]:
        world = World(heeds=heeds)
        await store_schedules(world.engine, [EACH_MINUTE], world.clock.now_us())
        await world.loop.step(world.clock.now_us())
        tick_us = EACH_MINUTE.next_us(world.clock.now_us())
        await world.change(skip_until_us=tick_us)
        return await world.pass_minutes(1), await world.pass_minutes(2)

    assert asyncio.run(scenario(heeds=True)) == (0, 2)
    assert asyncio.run(scenario(heeds=False)) == (1, 2)  # the control: nobody asks


async def test_a_schedule_that_is_paused_makes_nothing_and_catches_up_on_nothing():
    world = World()
    await store_schedules(world.engine, [EACH_MINUTE], world.clock.now_us())
    await world.loop.step(world.clock.now_us())
    await world.change(paused=True)
    assert await world.pass_minutes(5) == 0
    await world.change(paused=False)
    assert await world.pass_minutes(2) == 2


async def test_what_the_application_declares_is_known_and_what_people_decided_stays():
    world = World()
    await store_schedules(world.engine, [EACH_MINUTE], world.clock.now_us())
    await world.change(paused=True, skip_until_us=7)
    moved = Schedule(name="s", expression="0 3 * * *", task="other", queue="q")
    await store_schedules(world.engine, [moved], world.clock.now_us())
    assert (await world.engine.schedules())["s"] == ScheduleState(
        "0 3 * * *", "UTC", "other", "q", paused=True, skip_until_us=7
    )
    before = await world.engine.audited()
    await store_schedules(world.engine, [moved], world.clock.now_us())
    assert await world.engine.audited() == before


def test_what_came_before_a_schedule_was_known_was_not_missed():
    async def scenario(known: bool) -> int:
        world = World()
        if known:
            await store_schedules(world.engine, [EACH_MINUTE], world.clock.now_us())
        world.clock.advance(90)  # nobody runs it meanwhile
        await store_schedules(world.engine, [EACH_MINUTE], world.clock.now_us())
        await world.loop.step(world.clock.now_us())
        return await world.pending()

    assert asyncio.run(scenario(known=False)) == 0
    assert asyncio.run(scenario(known=True)) == 1
