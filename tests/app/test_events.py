"""Appending events from an application: on every store, in tests, in your own transaction."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
import pytest

from holdfast import EventConflict, EventInvalid, Holdfast
from holdfast.model.event import Event

from .stores import KINDS, Stores

EVENT_ID = "0192f3a4-0000-7000-8000-000000000001"


@dataclass
class BookOpened:
    """A reader opened a book."""

    book_id: str
    page: int


def declare(app: Holdfast) -> None:
    """Declare the event type."""
    app.event("book.opened", entity="book", text="{actor} opened {entity}")(BookOpened)


async def stored(app: Holdfast) -> list[Event]:
    """Return the events of the application's store."""
    return (await app._binding.call(lambda engine: engine.find_events(limit=100))).events


@pytest.fixture
def stores(tmp_path, request, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Stores(tmp_path, request)


@pytest.mark.parametrize("kind", KINDS)
async def test_events_are_appended_on_every_store(stores, kind):
    async with stores.running(kind, declare) as app:
        with app.acting_as("user", "42", "Ann", tenant="t", scope="library:1"):
            first = await app.append(BookOpened("b1", 3), event_id=EVENT_ID, reason="why")
            again = await app.append(BookOpened("b1", 3), event_id=EVENT_ID, reason="why")
            with pytest.raises(EventConflict):
                await app.append(BookOpened("b1", 4), event_id=EVENT_ID, reason="why")
            with pytest.raises(EventInvalid):
                await app.append_many([BookOpened("b2", 1), BookOpened("b2", "x")])  # type: ignore[arg-type]
            await app.append_many([BookOpened("b2", page) for page in range(3)])
        assert (first.created, again.created, again.position) == (True, False, first.position)
        events = await stored(app)
        assert [app.catalog.value_of(event) for event in events] == [
            BookOpened("b1", 3),
            *(BookOpened("b2", page) for page in range(3)),
        ]
        assert {(one.actor_name, one.tenant, one.scope) for one in events} == {
            ("Ann", "t", "library:1")
        }
        assert app.catalog.text_of(events[0]) == "Ann opened book b1"


def test_a_testing_app_takes_events():
    app = Holdfast()
    declare(app)

    @app.task
    async def read(book: str) -> int:
        with app.acting_as("service", "reader"):
            return (await app.append(BookOpened(book, 1))).position

    with app.testing() as rehearsal:
        read.enqueue_sync("b7")
        rehearsal.drain()
        rehearsal.assert_completed(read, times=1)
        app.append_sync(BookOpened("b8", 2), actor="42")
        page = rehearsal.call(rehearsal.engine.find_events())
    assert [(one.entity_id, one.actor_id) for one in page.events] == [
        ("b7", "reader"),
        ("b8", "42"),
    ]


async def test_events_come_with_the_transaction_of_the_caller(stores):
    with stores.url("postgres") as url:
        app = Holdfast(url)
        declare(app)
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await app.append(BookOpened("b1", 1), actor="42", connection=connection)
            assert await stored(app) == []
            await connection.commit()
            assert [one.entity_id for one in await stored(app)] == ["b1"]
            await app.append(BookOpened("b2", 1), actor="42", connection=connection)
            await connection.rollback()
            with pytest.raises(EventInvalid):
                await app.append(
                    BookOpened("b3", None),  # type: ignore[arg-type]
                    actor="42",
                    connection=connection,
                )
            many = [BookOpened("b4", page) for page in range(1_001)]
            receipts = await app.append_many(many, actor="42", atomic=False, connection=connection)
            assert len(receipts) == 1_001
            await connection.rollback()
            assert [one.entity_id for one in await stored(app)] == ["b1"]
        await app.close()


def test_events_come_with_a_synchronous_transaction(stores):
    with stores.url("postgres") as url:
        app = Holdfast(url)
        declare(app)
        with psycopg.connect(url) as connection:
            app.append_sync(BookOpened("b1", 1), actor="42", connection=connection)
            app.append_many_sync([BookOpened("b2", 1)], actor="42", connection=connection)
            connection.rollback()
            assert app._binding.call_sync(lambda engine: engine.count_events()) == 0
            app.append_sync(BookOpened("b1", 1), actor="42", connection=connection)
            connection.commit()
            assert app._binding.call_sync(lambda engine: engine.count_events()) == 1
        app.close_sync()
