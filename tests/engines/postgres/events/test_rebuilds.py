"""A rebuild that begins while a transaction with an event is open: the new table has it, once."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import Connection

from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.model.event_search import EventFilter
from holdfast.model.projection import RebuildMode, RebuildPhase
from holdfast.projections import rebuild
from tests.projections.test_rebuild import WHO, World

from .appending import append, new_event

BEFORE, MEANWHILE = 5, 3


def rename(connection: Connection) -> None:
    append(connection, new_event("book:3", entity_id="3", payload={"title": "late"}))


async def rebuilt_beside_an_open_transaction(engine: PostgresEngine, url: str) -> World:
    """Rebuild as far as it comes, end the transaction, and rebuild to the end."""
    world = World(engine)
    await world.append(BEFORE)
    await world.work()
    with psycopg.connect(url) as connection:
        rename(connection)
        await world.rebuilder.start("renames", RebuildMode.GENERATION, WHO)
        await world.rebuilder.step("renames")
        await world.append(MEANWHILE, start=BEFORE)
        for _step in range(10):
            state = (await engine.projections())["renames"]
            if state.rebuild is not None:
                await world.rebuilder.step("renames")
                await world.work()
    if (await engine.projections())["renames"].rebuild is not None:
        await world.finish()
    await world.work()
    return world


async def test_a_rebuild_waits_for_an_open_transaction_and_has_its_event(opened, url):
    async with opened(5_000) as engine:
        world = World(engine)
        await world.append(BEFORE)
        with psycopg.connect(url) as connection:
            rename(connection)
            await world.rebuilder.start("renames", RebuildMode.GENERATION, WHO)
            for _step in range(3):
                state, further = await world.rebuilder.step("renames")
                assert state.rebuild is not None
                assert (state.rebuild.phase, further) == (RebuildPhase.STARTING, False)
        state, further = await world.rebuilder.step("renames")
        assert state.rebuild is not None
        assert (state.rebuild.phase, further) == (RebuildPhase.FILLING, True)


async def test_every_event_is_in_both_generations_once(opened, url):
    async with opened(5_000) as engine:
        world = await rebuilt_beside_an_open_transaction(engine, url)
        assert await world.rows(2) == await world.rows(1)
        counts = [count for _book, count, _title in await world.rows(2)]
        assert sum(counts) == BEFORE + MEANWHILE + 1


async def test_control_a_rebuild_that_does_not_wait_loses_the_event(opened, url, monkeypatch):
    async def settled(self: PostgresEngine, version: int) -> bool:
        return True

    monkeypatch.setattr(PostgresEngine, "fanout_settled", settled)
    with pytest.raises(AssertionError):
        await test_every_event_is_in_both_generations_once(opened, url)


async def test_control_a_fill_without_the_version_applies_events_twice(opened, url, monkeypatch):
    every = lambda projection, _version=None: EventFilter(event_types=projection.event_types)
    monkeypatch.setattr(rebuild, "_source", every)
    with pytest.raises(AssertionError):
        await test_every_event_is_in_both_generations_once(opened, url)
