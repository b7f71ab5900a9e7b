"""The door to events: what it stamps, stores, refuses and reads, on the memory engine."""

from __future__ import annotations

import asyncio
import io
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
import pytest

from holdfast import Actor, Holdfast
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.model.access import Caller
from holdfast.model.audit import WHOLE_AUDIT
from holdfast.model.catalog import Catalog
from holdfast.model.errors import (
    AccessDenied,
    EventConflict,
    EventInvalid,
    EventNotFound,
    InvalidInput,
    UnknownEventType,
)
from holdfast.model.event import MAX_APPEND, NewEvent
from holdfast.model.payload_paths import Assignment
from holdfast.operations import event_inputs, events
from holdfast.operations.attribution import Author
from holdfast.operations.event_inputs import EventFile, PlacedEvent
from holdfast.operations.events import EventOperations, new_event

ANN = Author("ann", "it was a typo")
NOON = datetime(2027, 1, 15, 12, 0, tzinfo=UTC)


def application() -> Holdfast:
    """Return an application with two event types and a store in memory."""
    app = Holdfast("memory:", own=True)

    @app.event(
        "book.renamed",
        entity="book",
        change="after",
        sensitive=("email",),
        text="{actor} renamed {entity} to {after.title}",
    )
    @dataclass
    class BookRenamed:
        """A book has another title."""

        book_id: str
        email: str = ""

    @app.event("book.opened", entity="book")
    @dataclass
    class BookOpened:
        book_id: str
        page: int = 1

    app.renamed, app.opened = BookRenamed, BookOpened  # type: ignore[attr-defined]
    return app


@pytest.fixture
def app(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return application()


def opened(app: Holdfast, book: str = "b1", page: int = 1) -> object:
    """Return an event object."""
    return app.opened(book, page)  # type: ignore[attr-defined]


async def everything(app: Holdfast) -> list[dict[str, object]]:
    """Return the events of the application's store."""
    page = await app._binding.call(lambda engine: engine.find_events(limit=1_000))
    return [msgspec.to_builtins(msgspec.structs.asdict(event)) for event in page.events]


# --- stamps -------------------------------------------------------------------------------------


async def test_the_envelope_comes_from_the_call_and_its_context(app):
    with app.acting_as("user", "42", "Ann", request_id="r1", tenant="t", scope="library:1"):
        await app.append(opened(app), reason="why", occurred_at=NOON)
        with app.acting_as("service", "importer"):
            await app.append(opened(app), request_id="r2")
        await app.append(opened(app), actor=Actor("7", "bot"), tenant="other")
    found = await everything(app)
    names = ("actor_type", "actor_id", "actor_name", "request_id", "tenant", "scope", "reason")
    assert [[one[name] for name in names] for one in found] == [
        ["user", "42", "Ann", "r1", "t", "library:1", "why"],
        ["service", "importer", "", "r2", "t", "library:1", ""],
        ["bot", "7", "", "r1", "other", "library:1", ""],
    ]
    assert found[0]["occurred_at_us"] == int(NOON.timestamp()) * 1_000_000


async def test_without_an_actor_nothing_is_stored(app):
    with pytest.raises(InvalidInput, match="actor: who acts"):
        await app.append(opened(app))
    assert await everything(app) == []


async def test_concurrent_requests_keep_their_actors(app):
    async def request(number: int) -> None:
        with app.acting_as("user", str(number)):
            await asyncio.sleep(0)
            await app.append(opened(app, f"b{number}"))

    await asyncio.gather(*(request(number) for number in range(20)))
    assert all(one["entity_id"] == f"b{one['actor_id']}" for one in await everything(app))


@pytest.mark.parametrize("field", ["actor_id", "actor_user_id", "tenant", "scope", "request_id"])
async def test_data_does_not_say_who_acts_and_where(app, field):
    given = {"event_type": "book.opened", "payload": {"book_id": "b"}, field: "x"}
    with pytest.raises(EventInvalid, match="comes from the caller, not from the data") as caught:
        await app.append(given, actor="42")
    assert caught.value.field == field
    del given[field]
    await app.append(given, actor="42")
    assert [one["actor_id"] for one in await everything(app)] == ["42"]


async def test_control_without_the_refusal_data_would_be_overruled_silently(app, monkeypatch):
    monkeypatch.setattr(events, "STAMPED", ())
    given = {"event_type": "book.opened", "payload": {"book_id": "b"}, "tenant": "x"}
    await app.append(given, actor="42")
    assert len(await everything(app)) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"actor": ""}, "actor"),
        ({"actor": Actor("1", "")}, "actor_type"),
        ({"occurred_at": datetime(2027, 1, 1)}, "is not a datetime with a time zone"),  # noqa: DTZ001
        ({"actor": 42}, "is not an Actor or the id of a user"),
        ({"event_id": "7"}, "is not a UUID"),
        ({"nothing": 1}, "nothing: is not an option"),
        ({"scope": "/"}, "scope"),
        ({"entity_id": "b2"}, "differs from book_id"),
    ],
)
async def test_a_wrong_option_is_refused_and_nothing_stored(app, options, words):
    with pytest.raises(InvalidInput, match=words):
        await app.append(opened(app), **{"actor": "42", **options})
    assert await everything(app) == []


# --- appending ----------------------------------------------------------------------------------


async def test_an_event_id_makes_a_repetition_harmless(app):
    event_id = "0192f3a4-0000-7000-8000-000000000001"
    first = await app.append(opened(app), actor="42", event_id=event_id)
    again = await app.append(opened(app), actor="42", event_id=event_id)
    assert (first.created, again.created, first.id) == (True, False, again.id)
    with pytest.raises(EventConflict):
        await app.append(opened(app, page=2), actor="42", event_id=event_id)
    assert len(await everything(app)) == 1


async def test_many_are_one_commit_and_one_wrong_refuses_all(app):
    good, bad = opened(app), opened(app, page="one")  # type: ignore[arg-type]
    with pytest.raises(EventInvalid, match=r"event 3: page: Expected `int`") as caught:
        await app.append_many([good, good, bad], actor="42")
    assert caught.value.field == "event 3: page"
    with pytest.raises(UnknownEventType, match=r"event 2: event_type: 'str' is not in the catalog"):
        await app.append_many([good, "text"], actor="42")
    assert await everything(app) == []
    special = app.new_event(good, actor="7", reason="because")
    receipts = await app.append_many([good, special], actor="42")
    assert [one.created for one in receipts] == [True, True]
    assert [(one["actor_id"], one["reason"]) for one in await everything(app)] == [
        ("42", ""),
        ("7", "because"),
    ]


async def test_more_than_a_thousand_are_refused_unless_they_need_not_be_atomic(app):
    many = [opened(app)] * (MAX_APPEND + 1)
    with pytest.raises(InvalidInput, match=r"1,001 events.*atomic=False"):
        await app.append_many(many, actor="42")
    assert await everything(app) == []
    receipts = await app.append_many(many, actor="42", atomic=False)
    assert len({one.id for one in receipts}) == MAX_APPEND + 1


async def test_all_are_checked_before_the_first_of_several_commits(app):
    many = [opened(app)] * MAX_APPEND + [opened(app, page="x")]  # type: ignore[arg-type]
    with pytest.raises(EventInvalid, match=r"event 1001: page"):
        await app.append_many(many, actor="42", atomic=False)
    assert await everything(app) == []


def test_synchronous_code_appends_too(app):
    with app.acting_as("user", "42"):
        assert app.append_sync(opened(app)).created
        assert len(app.append_many_sync([opened(app), opened(app)])) == 2
    app.close_sync()


async def test_a_type_of_a_file_is_appended_as_a_mapping(app, tmp_path):
    (tmp_path / "catalog.yaml").write_text(
        "events: {shelf.built: {entity: shelf, fields: {shelf_id: string}}}"
    )
    given = {"event_type": "shelf.built", "payload": {"shelf_id": "s"}, "reason": "new"}
    await app.append(given, actor="42")
    assert sorted(app.catalog.types) == ["book.opened", "book.renamed", "shelf.built"]
    [found] = await everything(app)
    assert (found["event_type"], found["entity_id"], found["reason"]) == ("shelf.built", "s", "new")


async def test_a_connection_is_for_a_server(app):
    with pytest.raises(InvalidInput, match="only a PostgreSQL store can join a transaction"):
        await app.append(opened(app), actor="42", connection=object())


async def test_control_without_the_catalog_a_wrong_event_is_stored(app, monkeypatch):
    monkeypatch.setattr(Catalog, "check", lambda self, new: new)
    wrong = NewEvent(event_type="no.such", entity_type="x", entity_id="1", actor_id="42")
    await app.append(wrong)
    assert len(await everything(app)) == 1  # which is why engines are not called directly


async def test_a_new_event_is_checked_too(app):
    wrong = NewEvent(event_type="no.such", entity_type="x", entity_id="1", actor_id="42")
    with pytest.raises(UnknownEventType):
        await app.append(wrong)
    assert await everything(app) == []


# --- reading and correcting ---------------------------------------------------------------------


@pytest.fixture
def engine():
    return MemoryEngine()


def door(app: Holdfast, engine: MemoryEngine) -> EventOperations:
    """Return the operations on events of this engine."""
    return EventOperations(engine, app.catalog)


def renamed(app: Holdfast, title: str = "Ulises", **fields: object) -> NewEvent:
    """Return an event with a title that may be wrong."""
    given = {
        "event_type": "book.renamed",
        "payload": {"book_id": "b1", "email": "a@b"},
        "after": {"title": title},
        **fields,
    }
    return new_event(
        app.catalog, given, lambda: {"actor_type": "user", "actor_id": "42", "actor_name": ""}
    )


async def test_events_are_read_with_their_text_and_sensitive_values_hidden(app, engine):
    [receipt] = await door(app, engine).append([renamed(app)])
    view = await door(app, engine).show(receipt.id)
    assert view.text == "42 renamed book b1 to Ulises"
    assert view.payload == {"book_id": "b1", "email": "***"}
    assert view.actor_user_id == "42"
    assert (await door(app, engine).show(receipt.id, reveal=True)).payload["email"] == "a@b"
    [listed] = (await door(app, engine).page()).events
    assert listed == view


async def test_an_event_that_cannot_be_read_is_shown_as_it_is(app, engine):
    [receipt] = await door(app, engine).append([renamed(app)])
    view = await EventOperations(engine, Catalog()).show(receipt.id)
    assert "is not in the catalog" in view.problem
    assert view.after == {"title": "Ulises"}


async def test_a_correction_is_a_new_event_that_supersedes_the_old_one(app, engine):
    log = door(app, engine)
    [receipt] = await log.append([renamed(app, occurred_at=NOON)])
    before = await engine.get_events([receipt.id])
    corrected = await log.correct(receipt.id, (Assignment("after.title", b'"Ulysses"'),), ANN)
    assert await engine.get_events([receipt.id]) == before
    view = await log.show(corrected.id, reveal=True)
    assert (view.after, view.payload) == ({"title": "Ulysses"}, {"book_id": "b1", "email": "a@b"})
    assert (view.supersedes, view.actor_id, view.reason) == (receipt.id, "ann", "it was a typo")
    assert (view.occurred_at, view.entity_id) == (NOON, "b1")
    [record] = await engine.audited(WHOLE_AUDIT)
    entry = record.entry
    assert (entry.action, entry.resource_id, entry.user_id, entry.reason) == (
        "event.correct",
        receipt.id,
        "ann",
        "it was a typo",
    )
    assert msgspec.json.decode(entry.changes) == {
        "correction": corrected.id,
        "fields": ["after.title"],
    }


async def test_a_correction_again_is_recognised_and_another_one_refused(app, engine):
    log = door(app, engine)
    [receipt] = await log.append([renamed(app)])
    first = await log.correct(receipt.id, (Assignment("after.title", b'"A"'),), ANN)
    again = await log.correct(receipt.id, (Assignment("after.title", b'"A"'),), ANN)
    assert (again.id, again.created) == (first.id, False)
    with pytest.raises(InvalidInput, match=f"was corrected by {first.id}: correct that one"):
        await log.correct(receipt.id, (Assignment("after.title", b'"B"'),), ANN)
    second = await log.correct(first.id, (Assignment("after.title", b'"B"'),), ANN)
    assert (await log.show(second.id)).supersedes == first.id
    assert await engine.count_events() == 3


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("payload.book_id", b"3", "book_id: Expected `str`"),
        ("payload.book_id", b'"b2"', "entity_id: 'b1' differs from book_id"),
        ("payload.nothing", b"1", "nothing: there is no such field"),
        ("after", None, "after: is required"),
        ("after.title", b'"Ulises"', "this is what the event says already"),
        ("title", b"1", "is not a path"),
    ],
)
async def test_a_wrong_correction_changes_nothing(app, engine, path, value, words):
    log = door(app, engine)
    [receipt] = await log.append([renamed(app)])
    with pytest.raises(InvalidInput, match=words):
        await log.correct(receipt.id, (Assignment(path, value),), ANN)
    assert await engine.count_events() == 1
    assert await engine.audited(WHOLE_AUDIT) == []


async def test_a_caller_reaches_its_own_tenant_and_scope_alone(app, engine):
    [receipt] = await door(app, engine).append([renamed(app)])
    for caller in (Caller("other"), Caller("default", ("library:1",))):
        foreign = EventOperations(engine, app.catalog, caller)
        assert (await foreign.page()).events == []
        with pytest.raises(EventNotFound):
            await foreign.show(receipt.id)
        with pytest.raises(EventNotFound):
            await foreign.correct(receipt.id, (Assignment("after.title", b'"A"'),), ANN)
        with pytest.raises(AccessDenied):
            await foreign.append([renamed(app)])
    assert await engine.count_events() == 1


async def test_an_unknown_event_is_not_corrected(app, engine):
    with pytest.raises(EventNotFound):
        await door(app, engine).correct("0192f3a4-0000-7000-8000-000000000001", (), ANN)
    with pytest.raises(InvalidInput, match="is not a UUID"):
        await door(app, engine).show("7")


# --- files --------------------------------------------------------------------------------------

LINE = b'{"event_type":"book.opened","actor_user_id":"42","payload":{"book_id":"b%d"}}\n'


def read(app: Holdfast, text: bytes) -> list[PlacedEvent | InvalidInput]:
    """Return what a file with this text says."""
    return list(EventFile(io.BytesIO(text), app.catalog, "ann").events())


def ids(found: list[PlacedEvent | InvalidInput]) -> list[str | None]:
    """Return the ids of good events."""
    return [one.event.id for one in found if isinstance(one, PlacedEvent)]


@pytest.mark.parametrize(
    "text",
    [
        LINE % 1 + LINE % 2,
        b"\xef\xbb\xbf" + LINE % 1 + b"\n\n" + LINE % 2,
        b"[" + LINE % 1 + b"," + LINE % 2 + b"]",
        b"\n  [\n" + LINE % 1 + b",\n" + LINE % 2 + b"]",
    ],
)
def test_a_file_is_lines_or_an_array(app, text):
    found = read(app, text)
    assert [one.event.entity_id for one in found if isinstance(one, PlacedEvent)] == ["b1", "b2"]
    assert ids(found) == ids(read(app, LINE % 1 + LINE % 2))
    assert all(one.event.imported_by == "ann" for one in found if isinstance(one, PlacedEvent))


def test_a_file_is_one_document(app):
    text = (LINE % 1).replace(b",", b",\n")
    assert ids(read(app, text)) == ids(read(app, LINE % 1))


def test_events_that_say_the_same_have_ids_of_their_own_and_the_same_ones_again(app):
    first, second, third = ids(read(app, LINE % 1 + LINE % 1 + LINE % 2))
    assert len({first, second, third}) == 3
    assert ids(read(app, LINE % 2 + LINE % 1 + LINE % 1)) == [third, first, second]


async def test_control_with_random_ids_an_import_again_stores_twice(app, engine, monkeypatch):
    async def run_twice() -> int:
        for _ in range(2):
            found = [one.event for one in read(app, LINE % 1) if isinstance(one, PlacedEvent)]
            await door(app, engine).append(found)
        count: int = await engine.count_events()
        return count

    assert await run_twice() == 1
    monkeypatch.setattr(event_inputs, "derived_id", lambda new, _seen: new)
    assert await run_twice() == 3


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"nonsense", "line 2: event: not an event in JSON"),
        (b"[1]", "line 2: event: not an event in JSON"),
        (b'{"event_type":"no"}', "line 2: event_type: 'no' is not in the catalog"),
        (b'{"event_type":3}', "line 2: event_type: Expected `str`"),
        (b"{}", "line 2: event_type: is required"),
        ((LINE % 1).replace(b"payload", b"pay"), "line 2: pay: is not part of an event"),
        ((LINE % 1).replace(b'"b1"', b"true"), "line 2: book_id: Expected `str`, got `bool`"),
        ((LINE % 1).replace(b"actor_user_id", b"reason"), "line 2: actor_user_id: who did it"),
        ((LINE % 1).replace(b'"42"', b'"42","id":"x"'), "line 2: id: 'x' is not a UUID"),
        ((LINE % 1).replace(b'"42"', b'"42","occurred_at":1e30'), "line 2: occurred_at"),
        ((LINE % 1).replace(b'"42"', b'"42","scope":"//"'), "line 2: scope"),
        ((LINE % 1).replace(b'"42"', b'"42","actor_type":"bot"'), "line 2: actor_user_id: it con"),
    ],
)
def test_a_bad_line_is_named_with_its_field_and_the_rest_read(app, line, words):
    found = read(app, LINE % 1 + line.strip() + b"\n" + LINE % 3)
    assert [type(one) for one in found] == [PlacedEvent, InvalidInput, PlacedEvent]
    assert str(found[1]).startswith(words), found[1]


def test_a_line_that_is_too_long_ends_the_file(app):
    found = read(app, LINE % 1 + b'{"x":"' + b"y" * (1 << 20) + b'"}\n' + LINE % 2)
    assert [type(one) for one in found] == [PlacedEvent, InvalidInput]


def test_a_listed_event_can_be_read_from_a_file_again(app, engine):
    async def there_and_back() -> None:
        log = door(app, engine)
        [receipt] = await log.append([renamed(app, occurred_at=NOON)])
        view = await log.show(receipt.id, reveal=True)
        [found] = read(app, msgspec.json.encode(view))
        assert isinstance(found, PlacedEvent)
        [again] = await log.append([found.event])
        assert (again.id, again.created) == (receipt.id, False)

    asyncio.run(there_and_back())
