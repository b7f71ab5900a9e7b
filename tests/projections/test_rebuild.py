"""Rebuilds: beside the live generation, in place, and through the queue."""

import contextlib
import inspect

import msgspec
import pytest

from holdfast.engines.contract import Engine
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.engines.read_models.query import RowQuery
from holdfast.model.actions import ArchiveJobs, ReplayJobs, RestoreJobs
from holdfast.model.audit import Attribution
from holdfast.model.errors import RebuildRunning, UnknownProjection
from holdfast.model.event import NewEvent
from holdfast.model.failure import Failure
from holdfast.model.job import State
from holdfast.model.outcome import dead
from holdfast.model.projection import RebuildMode, RebuildPhase, generation_of, queue_of, task_of
from holdfast.model.read_model import ColumnType, ReadModel
from holdfast.model.search import Filter
from holdfast.operations.attribution import Author
from holdfast.projections.apply import apply_jobs
from holdfast.projections.declaration import ProjectedEvent, Projection
from holdfast.projections.generations import Generations
from holdfast.projections.rebuild import Rebuilder

TABLE = ReadModel(
    name="renames",
    columns={"book": ColumnType.TEXT, "count": ColumnType.INTEGER, "title": ColumnType.TEXT},
    key=("book",),
)
WHO = Author("ops", "test")


def count_renames(events, rows):
    """Counts, so that an event that is applied twice or never shows."""
    for event in events:
        if event.data.get("bad"):
            raise ValueError("no title")
        row = rows.get((event.entity_id,)) or {"count": 0}
        rows.upsert(
            {
                "book": event.entity_id,
                "count": row["count"] + 1,
                "title": event.data["title"],
            }
        )


PROJECTION = Projection(name="renames", table=TABLE, apply=count_renames, batch=10)


def read(event):
    return ProjectedEvent(event, msgspec.json.decode(event.payload), lambda _event: "")


class World:
    def __init__(self, engine) -> None:
        self.engine = engine
        self.rebuilder = Rebuilder(self.engine, {"renames": PROJECTION}, read)

    async def append(self, count, *, bad=0, start=0):
        await Generations(self.engine).ensure(PROJECTION)
        events = [
            NewEvent(
                event_type="book.renamed",
                entity_type="book",
                entity_id=f"{number % 7}" if number >= bad else f"bad-{number}",
                actor_id="anna",
                payload={"title": f"title {number}", "bad": number < bad},
            )
            for number in range(start, start + count)
        ]
        await self.engine.append(events)

    async def work(self, *, most=1_000_000):
        """Apply what can be claimed, one job at a time within a key."""
        done = 0
        while done < most:
            queues = [queue_of("renames", number) for number in range(1, 5)]
            claim = await self.engine.claim(
                queues=queues, worker="w", limit=1, tasks=[task_of("renames")]
            )
            if not claim.jobs:
                return
            [job] = claim.jobs
            done += 1
            try:
                await apply_jobs(self.engine, PROJECTION, generation_of(job.queue)[1], [job], read)
            except ValueError as error:
                await self.engine.settle([dead(job, Failure.of("business_error", str(error)))])

    async def finish(self):
        """Take steps until the rebuild has ended, with workers beside it."""
        state = None
        for _step in range(100):
            state, further = await self.rebuilder.step("renames")
            if state.rebuild is None or not state.rebuild.running:
                return state
            if not further:
                await self.work(most=3)
        raise AssertionError(state)

    async def rows(self, generation):
        rows = await self.engine.read_models.select(
            TABLE, generation, RowQuery(order=("book",), limit=1_000)
        )
        return [(row["book"], row["count"], row["title"]) for row in rows]


def in_world(test):
    """Run a test once on each engine, with a world of its own."""

    async def run(request, engine, **others):
        with contextlib.ExitStack() as stack:
            if engine == "memory":
                opened: Engine = MemoryEngine()
            else:
                databases = request.getfixturevalue("server18")
                opened = await PostgresEngine.open(stack.enter_context(databases.fresh()))
            try:
                await test(World(opened), **others)
                assert await opened.validate() == []
            finally:
                await opened.close()

    _world, *others = inspect.signature(test).parameters.values()
    first = inspect.signature(run).parameters
    vars(run)["__signature__"] = inspect.Signature([first["request"], first["engine"], *others])
    run.__name__ = test.__name__
    return pytest.mark.parametrize("engine", ["memory", "postgres"])(run)


@in_world
async def test_live_events_are_applied_once_each(world):
    await world.append(50)
    await world.work()
    assert sum(count for _book, count, _title in await world.rows(1)) == 50


@in_world
async def test_a_new_generation_has_the_same_rows_and_becomes_the_live_one(world):
    await world.append(50)
    await world.work()
    await world.rebuilder.start("renames", RebuildMode.GENERATION, WHO)
    await world.rebuilder.step("renames")  # subscribes it
    await world.append(20, start=50)
    state = await world.finish()
    assert (state.live, state.previous) == (2, 1)
    await world.work()
    assert await world.rows(2) == await world.rows(1)
    assert sum(count for _book, count, _title in await world.rows(2)) == 70
    assert state.past[0].phase is RebuildPhase.DONE
    assert state.past[0].filled == 50


@in_world
async def test_a_process_that_starts_during_a_rebuild_does_not_subscribe_the_new_generation(world):
    """Its queue must be paused first: newer events would be applied before those of the fill."""
    await world.append(20)
    await world.work()
    await world.rebuilder.start("renames", RebuildMode.GENERATION, WHO)
    await Generations(world.engine).ensure(PROJECTION)
    assert list(await world.engine.subscriptions()) == ["renames"]
    await world.append(5, start=20)
    await world.work()
    await world.finish()
    await world.work()
    assert await world.rows(2) == await world.rows(1)


@pytest.mark.parametrize("worked", [0, 10, 50])
@in_world
async def test_a_rebuild_in_place_applies_every_event_once_also_those_that_wait(world, worked):
    await world.append(50)
    await world.work(most=worked)
    await world.rebuilder.start("renames", RebuildMode.TRUNCATE, WHO)
    await world.append(5, start=50)
    state = await world.finish()
    await world.append(5, start=55)
    assert not state.incomplete
    await world.work()
    assert sum(count for _book, count, _title in await world.rows(1)) == 60


@pytest.mark.parametrize("worked", [0, 10, 50])
@in_world
async def test_a_rebuild_through_the_queue_gives_the_same_rows(world, worked):
    await world.append(50)
    await world.work(most=worked)
    await world.rebuilder.start("renames", RebuildMode.EMIT, WHO)
    await world.append(5, start=50)
    await world.finish()
    await world.append(5, start=55)
    await world.work()
    through_the_queue = await world.rows(1)
    assert sum(count for _book, count, _title in through_the_queue) == 60
    await world.rebuilder.start("renames", RebuildMode.TRUNCATE, WHO)
    await world.finish()
    await world.work()
    assert await world.rows(1) == through_the_queue


@pytest.mark.parametrize("mode", [RebuildMode.TRUNCATE, RebuildMode.EMIT])
@in_world
async def test_an_archived_letter_that_returns_after_a_rebuild_is_not_applied_again(world, mode):
    await world.append(20)
    claim = await world.engine.claim(queues=["renames"], worker="w", limit=2)
    await world.engine.settle([dead(job, Failure.of("timeout", "")) for job in claim.jobs])
    why = Attribution("ops", "test")
    letters = Filter(states=(State.DEAD,))
    await world.engine.operate(ArchiveJobs(), letters, why, limit=1)
    await world.rebuilder.start("renames", mode, WHO)
    await world.finish()
    await world.work()
    assert sum(count for _book, count, _title in await world.rows(1)) == 20
    restored = await world.engine.operate(RestoreJobs(), Filter(states=(State.ARCHIVED,)), why)
    replayed = await world.engine.operate(ReplayJobs(), letters, why)
    assert restored.jobs
    assert replayed.jobs
    await world.work()
    assert sum(count for _book, count, _title in await world.rows(1)) == 20


@in_world
async def test_dead_letters_stay_while_their_events_fail(world):
    await world.append(20, bad=3)
    await world.work()
    await world.rebuilder.start("renames", RebuildMode.TRUNCATE, WHO)
    state = await world.finish()
    assert (state.past[0].filled, state.past[0].failed) == (17, 3)
    assert len((await world.engine.find(Filter(states=(State.DEAD,)))).jobs) == 3


@in_world
async def test_a_new_generation_stops_at_an_event_that_fails_and_goes_on_when_told(world):
    await world.append(20, bad=3)
    await world.work()
    await world.rebuilder.start("renames", RebuildMode.GENERATION, WHO)
    state = await world.finish()
    assert state.rebuild.phase is RebuildPhase.FAILED
    assert "no title" in state.rebuild.error
    assert state.live == 1
    await world.rebuilder.resume("renames", WHO, max_errors=3)
    state = await world.finish()
    assert (state.live, state.past[0].failed) == (2, 3)
    await world.work()
    dead_jobs = (await world.engine.find(Filter(states=(State.DEAD,), queues=("renames.g2",)))).jobs
    assert len(dead_jobs) == 3


@in_world
async def test_one_rebuild_at_a_time(world):
    await world.append(1)
    await world.rebuilder.start("renames", RebuildMode.GENERATION, WHO)
    with pytest.raises(RebuildRunning):
        await world.rebuilder.start("renames", RebuildMode.TRUNCATE, WHO)
    with pytest.raises(UnknownProjection):
        await world.rebuilder.start("nothing", RebuildMode.TRUNCATE, WHO)


@in_world
async def test_a_cancelled_generation_is_gone(world):
    await world.append(20)
    await world.rebuilder.start("renames", RebuildMode.GENERATION, WHO)
    await world.rebuilder.step("renames")
    await world.append(5, start=20)
    await world.rebuilder.cancel("renames", WHO)
    assert "renames.g2" not in await world.engine.subscriptions()
    assert await world.engine.read_models.generations(TABLE) == [1]
    await world.work()
    assert sum(count for _book, count, _title in await world.rows(1)) == 25


@in_world
async def test_the_generation_before_can_be_returned_to(world):
    await world.append(20)
    await world.work()
    await world.rebuilder.start("renames", RebuildMode.GENERATION, WHO)
    await world.finish()
    await world.append(5, start=20)
    await world.work()
    state = await world.rebuilder.roll_back("renames", WHO)
    assert (state.live, state.previous) == (1, 2)
    assert await world.rows(1) == await world.rows(2)
