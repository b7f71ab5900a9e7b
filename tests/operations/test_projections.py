"""Projections for people: lag, rebuilds, the outbox, removal, and the auditor of their jobs."""

import msgspec
import pytest

from holdfast.engines.memory.engine import MemoryEngine
from holdfast.model.actions import PurgeJobs
from holdfast.model.audit import Attribution
from holdfast.model.catalog import Catalog
from holdfast.model.errors import InvalidInput, RebuildRunning, UnknownProjection
from holdfast.model.event import NewEvent
from holdfast.model.failure import Failure
from holdfast.model.outcome import completed, dead
from holdfast.model.projection import RebuildMode
from holdfast.model.read_model import ColumnType, ReadModel
from holdfast.model.search import Filter
from holdfast.operations.attribution import Author
from holdfast.operations.projections import ProjectionOperations
from holdfast.projections.declaration import Projection
from holdfast.projections.generations import Generations
from holdfast.projections.registry import declared, event_reader
from holdfast.settings import Settings
from holdfast.testing import VirtualClock
from holdfast.worker.registry import Registry

WHO = Author("ops", "a test")
TABLE = ReadModel(name="titles", columns={"book": ColumnType.TEXT}, key=("book",))


def write(events, rows):
    for event in events:
        if event.data.get("bad"):
            raise ValueError("no title")
        rows.upsert({"book": event.entity_id})


PROJECTION = Projection(name="titles", table=TABLE, apply=write, lag_slo_seconds=60.0)


class World:
    def __init__(self, projection=PROJECTION):
        self.clock = VirtualClock()
        self.engine = MemoryEngine(clock=self.clock)
        self.projection = projection
        known = {projection.name: projection}
        self.projections = ProjectionOperations(self.engine, known, event_reader(Catalog()))

    async def append(self, *books, bad=()):
        await Generations(self.engine).ensure(self.projection)
        return await self.engine.append(
            [
                NewEvent(
                    event_type="book.renamed",
                    entity_type="book",
                    entity_id=book,
                    actor_id="anna",
                    payload={"bad": book in bad},
                )
                for book in books
            ]
        )

    async def take(self, count, *, fail=False):
        """Let a worker settle some jobs, without applying them."""
        for _job in range(count):
            [job] = (await self.engine.claim(queues=["titles"], worker="w", limit=1)).jobs
            failure = Failure.of("mapping_error", "no title")
            await self.engine.settle([dead(job, failure) if fail else completed(job)])


@pytest.fixture
def world():
    return World()


async def test_a_new_projection_is_listed_before_any_worker_has_run(world):
    [view] = await world.projections.listed()
    assert (view.name, view.state, view.generation, view.lag_events) == ("titles", "new", 1, 0)
    with pytest.raises(UnknownProjection, match="known: titles"):
        await world.projections.show("nothing")


async def test_lag_is_in_events_and_seconds_without_what_a_failure_holds(world):
    await world.append("1", "1", "1")
    await world.take(1, fail=True)
    world.clock.advance(100)
    await world.append("2")
    world.clock.advance(30)
    view = await world.projections.show("titles")
    assert (view.lag_events, view.lag_seconds, view.slo_met) == (1, 30.0, True)
    assert (view.failed, view.held, view.held_keys) == (1, 2, 1)
    world.clock.advance(31)
    view = await world.projections.show("titles")
    assert (view.lag_seconds, view.slo_met) == (61.0, False)


async def test_the_outbox_has_the_columns_and_words_of_the_view(world):
    await world.append("1", "2", "3", "4")
    await world.take(1)
    await world.take(1, fail=True)
    await world.engine.claim(queues=["titles"], worker="east", limit=1)
    page = await world.projections.outbox("titles")
    assert [row.status for row in page.rows] == ["done", "failed", "processing", "pending"]
    assert list(msgspec.to_builtins(page.rows[0])) == [
        *("id", "status", "attempts", "next_retry_at", "error_reason", "last_error", "owner"),
        *("lease_until", "processing_started_at", "created_at", "processed_at", "replay_count"),
        *("last_replayed_at", "last_replayed_by", "last_replayed_reason"),
    ]
    assert page.rows[1].error_reason == "mapping_error"
    assert page.rows[2].owner == "east"
    [failed] = (await world.projections.outbox("titles", ["failed"])).rows
    assert failed == page.rows[1]
    counts = await world.projections.outbox_counts("titles")
    assert counts == {"pending": 1, "processing": 1, "done": 1, "failed": 1}
    with pytest.raises(InvalidInput, match="pending, processing, done, failed"):
        await world.projections.outbox("titles", ["dead"])


@pytest.mark.parametrize("mode", RebuildMode)
async def test_a_rebuild_is_driven_to_its_end_and_remembered(world, mode):
    await world.append("1", "2", "3")
    rebuild = await world.projections.start("titles", mode, WHO)
    with pytest.raises(RebuildRunning):
        await world.projections.start("titles", mode, WHO)
    seen = []
    view = await world.projections.drive(
        "titles", rebuild.id, lambda one: seen.append(one.phase.value)
    )
    assert (view.phase, view.done, view.total, view.error) == ("done", 3, 3, "")
    assert seen[-1] == "done"
    shown = await world.projections.show("titles")
    assert shown.rebuild is None
    assert shown.last_rebuild == view
    assert (shown.last_rebuild.by, shown.last_rebuild.why) == ("ops", "a test")
    assert shown.previous_generation == (1 if mode is RebuildMode.GENERATION else None)


async def test_a_rebuild_stops_at_an_event_that_fails_and_is_resumed_or_cancelled(world):
    await world.append("1", "2", "3", bad=("2",))
    rebuild = None
    for again in ("cancel", "resume"):
        rebuild = await world.projections.start("titles", RebuildMode.GENERATION, WHO)
        view = await world.projections.drive("titles", rebuild.id)
        assert view.phase == "failed"
        assert "no title" in view.error
        assert (await world.projections.show("titles")).state == "rebuild failed"
        if again == "cancel":
            await world.projections.cancel("titles", WHO)
            view = await world.projections.drive("titles", rebuild.id)
            assert view.phase == "cancelled"
            assert list(await world.engine.subscriptions()) == ["titles"]
    assert rebuild is not None
    await world.projections.resume("titles", WHO, max_errors=1)
    view = await world.projections.drive("titles", rebuild.id)
    assert (view.phase, view.failed) == ("done", 1)


async def test_removing_says_what_becomes_of_jobs_that_wait(world):
    await world.append("1", "2")
    with pytest.raises(InvalidInput, match="2 jobs of titles wait"):
        await world.projections.remove("titles", WHO, cancel_pending=None)
    assert "titles" in await world.engine.subscriptions()
    found = await world.projections.remove("titles", WHO, cancel_pending=True)
    assert (found.cancelled, found.kept) == (2, 0)
    assert await world.engine.subscriptions() == {}
    view = await world.projections.show("titles")
    assert (view.state, view.incomplete, view.lag_events) == ("removed", True, 0)
    actions = {record.entry.action for record in await world.engine.audited()}
    assert {"projection.remove", "subscription.remove"} <= actions


async def test_the_auditor_finds_an_event_whose_job_is_gone(world):
    receipts = await world.append("1", "2", "3")
    await world.take(3)
    found = await world.projections.missing_jobs(3_600)
    assert (found.checked, found.missing, found.unknown) == (3, 0, 0)
    lost = f"titles:{receipts[1].id}"
    await world.engine.operate(PurgeJobs(), Filter(ids=(lost,)), Attribution("ann", "lose it"))
    found = await world.projections.missing_jobs(3_600)
    assert (found.missing, found.ids) == (1, [lost])
    world.clock.advance(3_600)  # now its result may be forgotten
    assert (await world.projections.missing_jobs(3_600)).checked == 0


async def test_the_auditor_does_not_ask_for_jobs_from_before_the_subscription(world):
    await world.engine.append(
        [NewEvent(event_type="t", entity_type="book", entity_id="1", actor_id="a")]
    )
    await world.append("2")
    found = await world.projections.missing_jobs(3_600)
    assert (found.checked, found.missing, found.unknown) == (2, 0, 0)


async def test_what_the_auditor_cannot_know_it_does_not_report(world):
    """Results go by size too, the oldest first: nothing older is known then."""
    receipts = await world.append("1", "2")
    await world.take(2)
    oldest = f"titles:{receipts[0].id}"
    await world.engine.operate(PurgeJobs(), Filter(ids=(oldest,)), Attribution("ann", "old"))
    found = await world.projections.missing_jobs(3_600)
    assert (found.missing, found.unknown) == (0, 1)


def test_declared_projections_are_those_of_the_application_of_files_and_the_chronicle(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    registry = Registry()
    registry.add_projection(PROJECTION)
    assert set(declared(registry, Settings())) == {"titles"}
    (tmp_path / "catalog.yaml").write_text("events: {book.read: {entity: book}}")
    assert set(declared(registry, Settings())) == {"titles", "chronicle"}
    (tmp_path / "projections.yaml").write_text(
        "projections: {names: {key: [id], columns: {id: {from: entity_id}}}}"
    )
    assert set(declared(registry, Settings(chronicle=False))) == {"titles", "names"}
    with pytest.raises(InvalidInput, match="two projections are named 'titles'"):
        registry.add_projection(PROJECTION)
    for text, said in (
        ("names: {}", "must have `projections:`"),
        ("projections: {names: {key: [id], columns: {id: {from: wrong}}}}", "'wrong' is not one"),
        ("projections: {names: {keys: [id]}}", "keys"),
    ):
        (tmp_path / "projections.yaml").write_text(text)
        with pytest.raises(InvalidInput, match=said) as refused:
            declared(None, Settings())
        assert "projections.yaml" in refused.value.field
