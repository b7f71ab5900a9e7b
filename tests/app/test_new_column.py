"""A column is added to a projection: rebuilt beside the old table, switched and rolled back."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from holdfast import Holdfast
from holdfast.engines.contract import Engine
from holdfast.model.projection import RebuildMode
from holdfast.model.read_model import Row
from holdfast.operations.attribution import Author
from holdfast.operations.projections import ProjectionOperations
from holdfast.projections import ColumnType, ProjectedEvent, Projection, ReadModel, RowWriter
from holdfast.projections.registry import declared, reader

from .stores import Stores

NARROW = ReadModel(
    name="shelf", columns={"book": ColumnType.TEXT, "title": ColumnType.TEXT}, key=("book",)
)
WIDE = ReadModel(
    name="shelf", columns={**NARROW.columns, "length": ColumnType.INTEGER}, key=("book",)
)
EVENT = {"event_type": "book.named", "entity_id": "b1", "payload": {"title": "Emma"}}
CATALOG = """
events:
  book.named: {entity: book, fields: {title: string}, text: '{entity} is called {title}'}
"""
WHO = Author("ops", "a longer card")
BEFORE: Row = {"book": "b1", "title": "Emma"}
AFTER: Row = {"book": "b1", "title": "Emma", "length": 4}


def narrow(events: Sequence[ProjectedEvent], rows: RowWriter) -> None:
    for event in events:
        rows.upsert({"book": event.entity_id, "title": str(event.data["title"])})


def wide(events: Sequence[ProjectedEvent], rows: RowWriter) -> None:
    for event in events:
        title = str(event.data["title"])
        rows.upsert({"book": event.entity_id, "title": title, "length": len(title)})


OLD = Projection(name="shelf", table=NARROW, apply=narrow, event_types=("book.named",))


@pytest.fixture
def stores(tmp_path, request, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "catalog.yaml").write_text(CATALOG)
    return Stores(tmp_path, request)


def first_version(store: object) -> Holdfast:
    app = Holdfast(str(store))
    app.projection("shelf", table=NARROW, events=["book.named"])(narrow)
    return app


def second_version(store: object, previous: Projection | None, *, own: bool = False) -> Holdfast:
    app = Holdfast(str(store), own=own)
    app.projection("shelf", table=WIDE, events=["book.named"], version=2, previous=previous)(wide)
    return app


async def rebuild(app: Holdfast) -> None:
    async def work(engine: Engine) -> None:
        operations = operations_of(app, engine)
        started = await operations.start("shelf", RebuildMode.GENERATION, WHO)
        ended = await operations.drive("shelf", started.id)
        assert (ended.phase, ended.rows, ended.live_rows) == ("done", 1, 1)

    await app._binding.call(work)


async def roll_back(app: Holdfast) -> None:
    await app._binding.call(lambda engine: operations_of(app, engine).roll_back("shelf", WHO))


def operations_of(app: Holdfast, engine: Engine) -> ProjectionOperations:
    known, read = declared(app.registry, app.settings), reader(app.registry, app.settings)
    return ProjectionOperations(engine, known, read)


@pytest.mark.parametrize("kind", ["journal", "postgres"])
@pytest.mark.parametrize("previous", [OLD, None], ids=["previous", "alone"])
async def test_with_a_worker_of_the_new_version(stores, kind, previous):
    """By ``previous`` the old table is kept as it was; alone it gets the column, still empty."""
    with stores.url(kind) as store:
        first = first_version(store)
        async with first.running(poll_interval_seconds=0.05):
            event = await first.append(EVENT, actor="ann")
            await event.wait("shelf", timeout="30s")
        app = second_version(store, previous)
        async with app.running(poll_interval_seconds=0.05):
            again = await app.append(EVENT, actor="ann")
            await again.wait("shelf", timeout="30s")  # dual write begins: the live table goes on
            kept = BEFORE if previous else AFTER
            assert await app.rows("shelf") == [kept]
            await rebuild(app)
            assert await app.rows("shelf") == [AFTER]
            await roll_back(app)
            assert await app.rows("shelf") == [kept]


@pytest.mark.parametrize("kind", ["journal", "postgres"])
@pytest.mark.parametrize("previous", [OLD, None], ids=["previous", "alone"])
async def test_before_a_worker_of_the_new_version_has_run(stores, kind, previous):
    with stores.url(kind) as store:
        first = first_version(store)
        async with first.running(poll_interval_seconds=0.05):
            event = await first.append(EVENT, actor="ann")
            await event.wait("shelf", timeout="30s")
        app = second_version(store, previous, own=True)
        try:
            await rebuild(app)
            assert await app.rows("shelf") == [AFTER]
            await roll_back(app)
            assert await app.rows("shelf") == [BEFORE if previous else {**BEFORE, "length": None}]
        finally:
            await app.close()


@pytest.mark.parametrize("kind", ["journal", "postgres"])
async def test_control_one_table_for_all_generations_is_noticed(stores, kind, monkeypatch):
    monkeypatch.setattr(Projection, "table_of", lambda self, _state, _generation: self.table)
    with pytest.raises(AssertionError):
        await test_before_a_worker_of_the_new_version_has_run(stores, kind, OLD)
