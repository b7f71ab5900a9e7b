"""The catalog: declared once, checked at the door, old versions read as the current one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Holdfast, rule
from holdfast.model.catalog import Catalog
from holdfast.model.errors import EventInvalid, InvalidInput, UnknownEventType
from holdfast.model.event import Event, NewEvent, accept_event
from holdfast.model.event_schema import EventSchema
from holdfast.model.event_type import EventType

BY = {"actor_type": "user", "actor_id": "42", "actor_name": "Ann"}
NEW_ID = "0192f3a4-0000-7000-8000-000000000001"


@dataclass
class Title:
    title: str


@dataclass
class Renamed:
    """A book has another title."""

    book_id: str
    before: Title
    after: Title
    lang: Annotated[str, msgspec.Meta(max_length=5)] = "en"
    email: str = ""


def declared(kind: type = Renamed, name: str = "book.renamed", **options: object) -> Catalog:
    """Return a catalog with this class as an event type."""
    make: Callable[..., EventType] = EventType
    return Catalog([make(name, EventSchema(kind, name), **{"entity": "book", **options})])


def envelope(**fields: object) -> NewEvent:
    """Return an event in JSON, as a file has it."""
    make: Callable[..., NewEvent] = NewEvent
    return make(
        **{
            "event_type": "book.renamed",
            "entity_type": "",
            "entity_id": "",
            "actor_id": "42",
            "payload": {"book_id": "b1"},
            "before": {"title": "A"},
            "after": {"title": "B"},
            **fields,
        }
    )


def stored(new: NewEvent) -> Event:
    """Return the event as an engine stores it."""
    return accept_event(new, NEW_ID, 1_000_000, 7, 0)


GOOD = Renamed("b1", Title("A"), Title("B"))
WRONG: Any = 3
BYTES: Any = b"b1"
NOTHING: Any = None


# --- what an event becomes ----------------------------------------------------------------------


def test_fields_named_before_and_after_are_stored_beside_the_payload():
    new = declared().new_event(GOOD, BY)
    assert (new.event_type, new.version, new.entity_type, new.entity_id) == (
        "book.renamed",
        1,
        "book",
        "b1",
    )
    assert isinstance(new.payload, bytes)
    assert msgspec.json.decode(new.payload) == {"book_id": "b1", "lang": "en", "email": ""}
    assert (new.before, new.after, new.diff) == ({"title": "A"}, {"title": "B"}, None)
    assert (new.actor_type, new.actor_id, new.actor_name) == ("user", "42", "Ann")


def test_an_event_comes_back_as_the_object_that_was_appended():
    catalog = declared()
    assert catalog.value_of(stored(catalog.new_event(GOOD, BY))) == GOOD


class Struct(msgspec.Struct):
    book_id: int
    at: datetime


class Model(pydantic.BaseModel):
    book_id: str
    pages: int = pydantic.Field(gt=0)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Struct, Struct(7, datetime(2027, 1, 1, tzinfo=UTC))),
        (Model, Model(book_id="7", pages=3)),
    ],
)
def test_structs_and_pydantic_models_are_event_classes(kind, value):
    catalog = declared(kind, "book.read")
    new = catalog.new_event(value, BY)
    assert new.entity_id == "7"
    assert catalog.value_of(stored(new)) == value


def test_without_a_field_for_it_the_entity_comes_with_the_event():
    @dataclass
    class Opened:
        page: int

    catalog = declared(Opened, "book.opened")
    assert catalog.new_event(Opened(3), {**BY, "entity_id": "b9"}).entity_id == "b9"
    with pytest.raises(EventInvalid, match="entity_id: which book is it about"):
        catalog.new_event(Opened(3), BY)


def test_the_key_of_the_type_is_made_from_its_fields():
    @dataclass
    class Moved:
        book_id: str
        library: int

    new = declared(Moved, "book.moved", key="library:{library}").new_event(Moved("b", 42), BY)
    assert new.key == "library:42"


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "field", "words"),
    [
        (Renamed("b1", Title("A"), Title("B"), "english"), "lang", "at most 5 characters"),
        (Renamed("b1", Title(WRONG), Title("B")), "before.title", "Expected `str`, got `int`"),
        (Renamed(BYTES, Title("A"), Title("B")), "book_id", "is bytes, not str"),
        (Renamed(NOTHING, Title("A"), Title("B")), "book_id", "Expected `str`, got `null`"),
    ],
)
def test_a_wrong_object_is_refused_with_its_field_named(value, field, words):
    with pytest.raises(EventInvalid) as caught:
        declared().new_event(value, BY)
    assert caught.value.field == field
    assert words in caught.value.problem
    assert "(event type book.renamed)" in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"payload": {}}, "book_id", "is required"),
        ({"payload": {"book_id": "b", "titel": 1}}, "titel", "there are book_id, before"),
        ({"payload": {"book_id": "b", "before": {}}}, "payload.before", "beside the payload"),
        ({"payload": b"[]"}, "payload", "not a JSON object"),
        ({"before": None}, "before", "is required"),
        ({"after": {}}, "after.title", "is required"),
        ({"version": 2}, "version", "version 2 is not known here; known: 1"),
        ({"version": 0}, "version", "is not known"),
        ({"entity_type": "shelf"}, "entity_type", "is not the 'book'"),
        ({"entity_id": "b2"}, "entity_id", "differs from book_id, which is 'b1'"),
    ],
)
def test_a_wrong_envelope_is_refused_with_its_field_named(fields, field, words):
    with pytest.raises(EventInvalid) as caught:
        declared().check(envelope(**fields))
    assert caught.value.field == field
    assert words in caught.value.problem


def test_an_unknown_type_is_refused_and_the_nearest_named():
    with pytest.raises(UnknownEventType, match=r"did you mean 'book\.renamed'\?"):
        declared().check(envelope(event_type="book.renamd"))
    with pytest.raises(UnknownEventType, match="it is empty: set HOLDFAST_CATALOG"):
        Catalog().check(envelope())
    with pytest.raises(UnknownEventType):
        declared().new_event(Title("A"), BY)


@pytest.mark.parametrize(
    ("change", "given", "missing"),
    [
        ("before_and_after", {"after": {}}, "before"),
        ("after", {"before": {}}, "after"),
        ("diff", {"before": {}, "after": {}}, "diff"),
        ("any", {}, "before"),
    ],
)
def test_what_the_type_says_about_the_change_is_required(change, given, missing):
    @dataclass
    class Edited:
        book_id: str

    catalog = declared(Edited, "book.edited", change=change)
    with pytest.raises(EventInvalid) as caught:
        catalog.new_event(Edited("b"), {**BY, **given})
    assert caught.value.field == missing
    complete: dict[str, object] = {"before": {}, "after": {}, "diff": []}
    assert catalog.new_event(Edited("b"), {**BY, **complete}).diff == []


def test_a_change_is_a_field_or_an_argument_and_not_both():
    with pytest.raises(EventInvalid, match="a field of the event, and an argument too"):
        declared().new_event(GOOD, {**BY, "before": {}})


# --- rules --------------------------------------------------------------------------------------


def test_rules_are_methods_and_functions():
    app = Holdfast()

    def not_empty(event: Borrowed) -> bool:
        """The reader is named."""
        return bool(event.reader)

    @app.event("book.borrowed", entity="book", rules=[not_empty])
    @dataclass
    class Borrowed:
        book_id: str
        days: int
        most: int
        reader: str = "r1"

        @rule
        def within_limit(self) -> None:
            """It is due within the limit."""
            if self.days > self.most:
                raise InvalidInput("days", f"at most {self.most}")

        @rule
        def positive(self) -> None:
            if self.days < 0:
                raise ValueError("days below 0")

    catalog = app.registry.catalog
    catalog.new_event(Borrowed("b", 3, 7), BY)
    for value, named, words in (
        (Borrowed("b", 8, 7), "days", "at most 7"),
        (Borrowed("b", -1, 7), "positive", "days below 0"),
        (Borrowed("b", 1, 7, ""), "not_empty", "The reader is named"),
    ):
        with pytest.raises(EventInvalid) as caught:
            catalog.new_event(value, BY)
        assert (caught.value.field, words in caught.value.problem) == (named, True)
    texts = [one.text for one in catalog.types["book.borrowed"].rules]
    assert texts == ["It is due within the limit.", "positive", "The reader is named."]


# --- versions -----------------------------------------------------------------------------------


@dataclass
class First:
    book: str


def versioned() -> Holdfast:
    """Return an application whose type is at version 3."""
    app = Holdfast()
    app.event("book.renamed", version=3, entity="book", text="{actor}: {after.title}")(Renamed)

    @app.upcast(Renamed, from_version=1, schema=First)
    def book_id(data: dict[str, object]) -> dict[str, object]:
        return {**data, "book_id": data.pop("book")} | {}

    @app.upcast(Renamed, from_version=2)
    def lang(data: dict[str, object]) -> dict[str, object]:
        data.pop("book", None)
        return {"lang": "de", **data}

    return app


def test_an_old_version_is_stored_as_it_is_and_read_as_the_current_one():
    catalog = versioned().registry.catalog
    new = catalog.check(envelope(version=1, payload={"book": "b1"}))
    assert (new.version, new.payload, new.entity_id) == (1, {"book": "b1"}, "b1")
    old = stored(new)
    now = catalog.upcast(old)
    assert (now.version, msgspec.json.decode(now.payload)) == (3, {"lang": "de", "book_id": "b1"})
    assert catalog.value_of(old) == Renamed("b1", Title("A"), Title("B"), "de")
    assert catalog.text_of(old) == "42: B"
    assert (now.id, now.position) == (old.id, old.position)


def test_an_old_version_must_fit_its_own_schema():
    with pytest.raises(EventInvalid) as caught:
        versioned().registry.catalog.check(envelope(version=1, payload={"book": 3}))
    assert (caught.value.field, "Expected `str`" in caught.value.problem) == ("book", True)


def test_a_version_without_its_upcaster_is_refused():
    app = Holdfast()
    app.event("book.renamed", version=3, entity="book")(Renamed)
    app.upcast(Renamed, from_version=2)(lambda data: data)
    with pytest.raises(EventInvalid, match="version 1 is not known here; known: 2, 3"):
        app.registry.catalog.check(envelope(version=1))
    assert "version 1 cannot be read: it has no upcaster" in str(app.registry.catalog.doubts())


def test_an_upcaster_that_fails_is_said_with_its_version():
    app = Holdfast()
    app.event("book.renamed", version=2, entity="book")(Renamed)
    app.upcast(Renamed, from_version=1)(lambda data: {"book_id": data["nothing"]})
    with pytest.raises(EventInvalid, match="the upcaster from version 1 failed: KeyError"):
        app.registry.catalog.check(envelope(version=1))


def test_a_stored_event_of_an_unknown_type_is_returned_as_it_is():
    event = stored(envelope(entity_type="book", entity_id="b1"))
    assert Catalog().upcast(event) is event
    assert Catalog().text_of(event) == "book.renamed book b1"


@pytest.mark.parametrize("version", [0, 2, 3, True, "1"])
def test_an_upcaster_is_from_a_version_below(version):
    app = Holdfast()
    app.event("book.renamed", version=2, entity="book")(Renamed)
    with pytest.raises(InvalidInput, match="from_version"):
        app.upcast(Renamed, from_version=version)(lambda data: data)


def test_there_is_one_upcaster_from_a_version():
    app = versioned()
    with pytest.raises(InvalidInput, match="two upcasters from version 1"):
        app.upcast(Renamed, from_version=1)(lambda data: data)


# --- declarations -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"text": "{actor} renamed {after.name}"}, r"\{after\.name\} is not a field"),
        ({"text": "{nothing}"}, r"\{nothing\} is not a field; there are book_id"),
        ({"text": "{book_id!r}"}, "is not the name of a field"),
        ({"text": "{book_id.__class__}"}, r"\{book_id\.__class__\} is not a field"),
        ({"text": "{book_id"}, "has no counterpart"),
        ({"text": ""}, "give a text"),
        ({"text": "{email}", "sensitive": ("email",)}, "is sensitive"),
        ({"key": "{reason}"}, r"\{reason\} is not a field"),
        ({"sensitive": ("phone",)}, "there is no field 'phone'"),
        ({"entity_id": "isbn"}, "there is no field 'isbn'"),
        ({"change": "both"}, "is not one of optional, before"),
        ({"version": 0}, "not a whole number"),
        ({"entity": ""}, "entity"),
    ],
)
def test_a_wrong_declaration_is_refused(options, words):
    with pytest.raises(InvalidInput, match=words):
        declared(Renamed, **options)


def test_of_a_text_a_free_form_change_is_not_checked():
    @dataclass
    class Edited:
        book_id: str
        notes: dict[str, str] = field(default_factory=dict)

    declared(Edited, "book.edited", text="{before.any.thing} {notes.one}")


@pytest.mark.parametrize("kind", [int, dict, type("Plain", (), {})])
def test_what_is_not_an_event_class_is_refused(kind):
    with pytest.raises(InvalidInput, match=r"is not a dataclass, a msgspec\.Struct or a pydantic"):
        declared(kind)


def test_a_field_that_json_cannot_carry_is_refused():
    @dataclass
    class Wrong:
        lock: Catalog

    with pytest.raises(InvalidInput, match=r"Wrong\.lock is holdfast\.model\.catalog\.Catalog"):
        declared(Wrong)


def test_two_types_of_one_name_are_refused_and_a_reload_is_not():
    app = Holdfast()
    app.event("book.renamed", entity="book")(Renamed)
    app.event("book.renamed", entity="book")(Renamed)
    with pytest.raises(InvalidInput, match=r"declared twice: in .*Renamed and in .*Title"):
        app.event("book.renamed", entity="book")(Title)


def test_the_docstring_is_the_description_and_that_of_a_dataclass_is_not():
    app = Holdfast()
    app.event("book.renamed", entity="book")(Renamed)
    app.event("book.titled", entity="book")(Title)
    types = app.registry.catalog.types
    assert types["book.renamed"].description == "A book has another title."
    assert types["book.titled"].description == ""


def test_sensitive_values_are_hidden_also_in_the_change():
    @dataclass
    class Signed:
        user_id: str
        email: str

    catalog = declared(Signed, "user.signed", entity="user", sensitive=("email",))
    new = catalog.new_event(Signed("u", "a@b"), {**BY, "after": {"email": "a@b", "name": "Ann"}})
    data = catalog.masked(stored(new))
    assert data == {"user_id": "u", "email": "***", "after": {"email": "***", "name": "Ann"}}


# --- properties ---------------------------------------------------------------------------------

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["book_id", "lang", "email", "x"]), _JSON), _JSON, _JSON)
def test_any_json_is_taken_whole_or_refused_with_a_field(payload, before, after):
    """What is accepted comes back as an object of the class; all else is an ``InvalidInput``."""
    catalog = declared()
    try:
        new = catalog.check(envelope(payload=payload, before=before, after=after))
        event = stored(new)
    except InvalidInput:
        return
    value = catalog.value_of(event)
    assert isinstance(value, Renamed)
    assert value.book_id == payload["book_id"] == event.entity_id


@given(st.text(max_size=20))
def test_any_text_is_a_template_or_refused(text):
    try:
        catalog = declared(text=text)
    except InvalidInput:
        return
    catalog.text_of(stored(catalog.new_event(GOOD, BY)))
