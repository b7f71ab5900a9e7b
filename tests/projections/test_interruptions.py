"""A rebuild that is killed before or after any call of the store: another process goes on."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.engines.memory.engine import MemoryEngine
from holdfast.engines.read_models.contract import Filled, FillPosition
from holdfast.engines.read_models.query import RowQuery
from holdfast.model.projection import ProjectionState, RebuildMode
from holdfast.projections import rebuild as rebuilding
from holdfast.projections.fill import Fill
from holdfast.projections.generations import Generations
from holdfast.projections.rebuild import Rebuilder

from .test_rebuild import PROJECTION, TABLE, WHO, World, read

FIRST, MEANWHILE, LATER = 40, 6, 5


class Killed(BaseException):
    """The process is gone."""


class Mortal:
    """Forwards the calls of one process, and dies before or after one of them."""

    def __init__(self, inner: Any, life: Life) -> None:
        self._inner = inner
        self._life = life

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name == "read_models":
            return Mortal(found, self._life)
        if not callable(found):
            return found

        async def call(*args: object, **kwargs: object) -> object:
            self._life.spend()
            answer = await found(*args, **kwargs)
            self._life.spend()
            return answer

        return call


class Life:
    def __init__(self, calls: int) -> None:
        self.left = calls

    def spend(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed


async def total(world: World, generation: int) -> int:
    rows = await world.engine.read_models.select(TABLE, generation, RowQuery(limit=1_000))
    return sum(row["count"] for row in rows)


async def readers_see_all(world: World, at_least: int) -> None:
    """The live generation is complete, unless it says that it is not."""
    state: ProjectionState = (await world.engine.projections())["renames"]
    if not state.incomplete:
        await world.work()
        assert await total(world, state.live) >= at_least, state


async def story(mode: RebuildMode, life: Life, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Rebuild with a process that dies; return whether it died."""
    monkeypatch.setattr("holdfast.projections.fill.CHUNK", 15)
    monkeypatch.setattr("holdfast.projections.emit.CHUNK", 15)
    world = World(MemoryEngine())
    await world.append(FIRST)
    await world.work(most=25)
    await world.rebuilder.start("renames", mode, WHO)
    mortal = Mortal(world.engine, life)
    rebuilder = Rebuilder(mortal, {"renames": PROJECTION}, read)  # type: ignore[arg-type]
    died = False
    try:
        for step in range(100):
            state, further = await rebuilder.step("renames")
            if step == 1:
                await world.append(MEANWHILE, start=FIRST)
            if state.rebuild is None:
                break
            if not further:
                await world.work(most=3)
    except Killed:
        died = True
        if mode is RebuildMode.GENERATION:
            await readers_see_all(world, FIRST)
    state = (await world.engine.projections())["renames"]
    if state.rebuild is not None:
        state = await world.finish()
    await world.append(LATER, start=FIRST + MEANWHILE)
    await world.work()
    appended = await world.engine.count_events()
    assert not state.incomplete
    assert await total(world, state.live) == appended
    assert state.past[0].phase.value == "done"
    await world.engine.close()
    return died


@pytest.mark.parametrize("mode", RebuildMode)
async def test_a_rebuild_killed_at_any_call_is_finished_by_another_process(mode, monkeypatch):
    calls = 0
    died = True
    while died:
        calls += 1
        died = await story(mode, Life(calls), monkeypatch)
    assert calls > 20


class Forgetful(Fill):
    """Stores its place in a call of its own, after the rows."""

    async def step(self) -> FillPosition:
        store = self.engine.read_models
        before = await store.position(TABLE, self.generation)
        after = await super().step()
        if before is not None and after.cursor != before.cursor:
            back, again = (lambda _rows: Filled(before)), (lambda _rows: Filled(after))
            await store.fill(TABLE, self.generation, back, expected=after)
            await store.fill(TABLE, self.generation, again, expected=before)
        return after


async def test_control_a_fill_that_stores_its_place_after_its_rows_counts_twice(monkeypatch):
    monkeypatch.setattr(rebuilding, "Fill", Forgetful)

    async def every_story() -> None:
        calls = 1
        while await story(RebuildMode.GENERATION, Life(calls), monkeypatch):
            calls += 1

    with pytest.raises(AssertionError):
        await every_story()


async def test_a_generation_is_made_once_by_two_processes():
    world = World(MemoryEngine())
    await world.append(3)
    for _time in range(2):
        await Generations(world.engine).ensure(PROJECTION)
    assert list(await world.engine.subscriptions()) == ["renames"]
