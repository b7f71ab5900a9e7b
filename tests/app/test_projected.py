"""Waiting until an event is in a read model, on every store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
import pytest

from holdfast import Dead, Holdfast, InvalidInput, JobFailed, ResultTimeout
from holdfast.engines.read_models.query import RowQuery
from holdfast.model.actions import PurgeJobs
from holdfast.model.audit import Attribution
from holdfast.model.errors import EventNotFound, UnknownProjection
from holdfast.model.read_model import Row
from holdfast.model.search import Filter
from holdfast.projections import ColumnType, ProjectedEvent, ReadModel, RowWriter, wait

from .stores import KINDS, Stores

SHELF = ReadModel(
    name="titles", columns={"book": ColumnType.TEXT, "title": ColumnType.TEXT}, key=("book",)
)


@dataclass
class BookNamed:
    """A book has a title."""

    book_id: str
    title: str


@dataclass
class BookLost:
    """A book is not on its shelf; no title changes."""

    book_id: str


def declare(app: Holdfast) -> None:
    """Declare two event types and a projection of one of them, which refuses empty titles."""
    app.event("book.named", entity="book", text="{entity} has a title")(BookNamed)
    app.event("book.lost", entity="book", text="{entity} is lost")(BookLost)

    @app.projection("titles", table=SHELF, events=[BookNamed])
    def titles(events: Sequence[ProjectedEvent], rows: RowWriter) -> None:
        for event in events:
            if not event.data["title"]:
                raise Dead("a book without a title")
            rows.upsert({"book": event.entity_id, "title": str(event.data["title"])})


async def read(app: Holdfast) -> list[Row]:
    """Return the rows that readers see."""
    query = RowQuery(order=("book",), limit=100)
    return await app._binding.call(lambda engine: engine.read_models.select(SHELF, 1, query))


@pytest.fixture
def stores(tmp_path, request, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Stores(tmp_path, request)


@pytest.mark.parametrize("kind", KINDS)
async def test_readers_see_an_event_that_was_waited_for(stores, kind):
    async with stores.running(kind, declare) as app:
        with app.acting_as("user", "42"):
            for title in ("Emma", "Persuasion"):
                event = await app.append(BookNamed("b1", title))
                await event.wait("titles", timeout="30s")
                assert await read(app) == [{"book": "b1", "title": title}]
                await event.wait("chronicle", timeout="30s")
            many = await app.append_many([BookNamed(f"c{n}", "x") for n in range(50)])
            await app.wait_until_projected(many, "titles", timeout="30s")
            assert len(await read(app)) == 51


@pytest.mark.parametrize("kind", KINDS)
async def test_an_event_that_will_not_come_is_said(stores, kind):
    async with stores.running(kind, declare) as app:
        with app.acting_as("user", "42"):
            bad = await app.append(BookNamed("b1", ""))
            with pytest.raises(JobFailed, match="a book without a title"):
                await bad.wait("titles", timeout="30s")
            with pytest.raises(UnknownProjection, match="nowhere"):
                await bad.wait("nowhere", timeout="30s")
            lost = await app.append(BookLost("b1"))
            with pytest.raises(InvalidInput, match=r"does not take events of book\.lost"):
                await lost.wait("titles", timeout="30s")
            held = await app.append(BookNamed("b1", "behind the bad one"))
            with pytest.raises(ResultTimeout, match="1 of 1 events are not in titles"):
                await held.wait("titles", timeout="200ms")


@pytest.mark.parametrize("kind", KINDS)
async def test_an_event_whose_result_is_forgotten_is_projected(stores, kind):
    async with stores.running(kind, declare) as app:
        event = await app.append(BookNamed("b1", "Emma"), actor="42")
        await event.wait("titles", timeout="30s")
        purge = Filter(ids=(f"titles:{event.id}",))
        await app._binding.call(
            lambda engine: engine.operate(PurgeJobs(), purge, Attribution("a", "b"))
        )
        await event.wait("titles", timeout="30s")


async def test_an_event_of_an_open_transaction_is_not_found(stores):
    with stores.url("postgres") as url:
        app = Holdfast(url)
        declare(app)
        async with (
            app.running(poll_interval_seconds=0.05),
            await psycopg.AsyncConnection.connect(str(url)) as connection,
        ):
            event = await app.append(BookNamed("b1", "Emma"), actor="42", connection=connection)
            with pytest.raises(EventNotFound):
                await event.wait("titles", timeout="30s")
            await connection.commit()
            await event.wait("titles", timeout="30s")


def seen_in_a_test() -> list[Row]:
    app = Holdfast()
    declare(app)
    with app.testing() as rehearsal:
        event = app.append_sync(BookNamed("b1", "Emma"), actor="42")
        event.wait_sync("titles", timeout="1m")
        return rehearsal.call(read(app))


def test_a_testing_app_runs_jobs_while_it_waits():
    assert seen_in_a_test() == [{"book": "b1", "title": "Emma"}]


def test_control_not_waiting_for_its_job_shows_no_row(monkeypatch):
    async def nothing(*args: object, **options: object) -> list[str]:
        return []

    monkeypatch.setattr(wait, "_unapplied", nothing)
    assert seen_in_a_test() == []
