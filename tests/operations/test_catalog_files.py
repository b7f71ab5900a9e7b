"""Catalog files: what they declare, what is refused and where, and their limits."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.catalog import Catalog
from holdfast.model.catalog_document import types_of
from holdfast.model.errors import EventInvalid, InvalidInput
from holdfast.model.event import Event, NewEvent, accept_event
from holdfast.operations.catalog_files import MAX_FILE_BYTES, read_catalog
from holdfast.operations.event_views import EventTypeView

CATALOG = """
events:
  book.renamed:
    description: A book has another title.
    entity: book
    version: 3
    fields:
      book_id: string
      language: {type: string, one_of: [en, de], default: en}
      pages: {type: integer, min: 1, max: 10000, required: false}
      tags: {type: array, items: string, required: false}
      isbn: {type: string, pattern: '^[0-9]{13}$', required: false}
      contact:
        fields: {name: string, email: {type: string, sensitive: true}}
        required: false
    state:
      title: {type: string, max_length: 200}
    text: '{actor} renamed {entity} from {before.title} to {after.title}'
    key: 'book:{book_id}'
    change: before_and_after
    retention: 365d
    coalesce: {window: 5m, by: [language]}
    rules:
      - not_equal: [before.title, after.title]
        message: is the same as before
      - required_if: {field: isbn, when: {language: de}}
    versions:
      1:
        fields: {id: string, lang: string}
        upcast:
          - rename: {id: book_id, before.name: before.title, after.name: after.title}
      2:
        upcast:
          - rename: {lang: language}
          - default: {language: en}
          - drop: [cover]
"""


def catalog(text: str = CATALOG) -> Catalog:
    """Return the catalog of this text."""
    from holdfast.settings.yaml_text import parse_yaml  # noqa: PLC0415

    found, problems = types_of(parse_yaml(text), "catalog.yaml")
    for problem in problems:
        raise problem
    return Catalog(found)


def event(**fields: object) -> NewEvent:
    """Return a good event, but for these fields."""
    data = {
        "payload": {"book_id": "b1"},
        "before": {"title": "A"},
        "after": {"title": "B"},
        **fields,
    }
    return msgspec.structs.replace(
        NewEvent(event_type="book.renamed", entity_type="", entity_id="", actor_id="42", version=3),
        **data,
    )


def stored(new: NewEvent) -> Event:
    """Return the event as an engine stores it."""
    return accept_event(new, "0192f3a4-0000-7000-8000-000000000001", 1_000_000, 7, 0)


def test_a_file_declares_what_a_class_does():
    [event_type] = catalog().types.values()
    view = EventTypeView.of(event_type)
    assert (view.version, view.versions, view.entity_id) == (3, [1, 2, 3], "book_id")
    assert (view.retention, view.coalesce) == ("365d", "within 5m, by language")
    assert view.rules == ["is the same as before", "isbn is required if language is de"]
    assert view.sensitive == ["contact.email"]
    by_name = {one.name: one for one in view.fields}
    assert (by_name["pages"].type, by_name["pages"].limits) == (
        "integer or null",
        "at least 1, at most 10000",
    )
    assert by_name["language"].type == "one of de, en"
    assert [name for name, one in by_name.items() if one.required] == ["book_id"]
    new = catalog().check(event())
    assert (new.entity_id, new.key) == ("b1", "book:b1")
    assert catalog().text_of(stored(new)) == "42 renamed book b1 from A to B"


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"payload": {}}, "book_id", "is required"),
        ({"payload": {"book_id": "b", "page": 1}}, "page", "there is no such field"),
        ({"payload": {"book_id": "b", "pages": 0}}, "pages", "at least 1"),
        ({"payload": {"book_id": "b", "pages": "3"}}, "pages", "Expected `int | null`"),
        ({"payload": {"book_id": "b", "language": "fr"}}, "language", "one of de, en"),
        ({"payload": {"book_id": "b", "tags": [1]}}, "tags[0]", "Expected `str`"),
        ({"payload": {"book_id": "b", "isbn": "12"}}, "isbn", "matches ^[0-9]{13}$"),
        ({"payload": {"book_id": "b", "contact": {}}}, "contact.name", "is required"),
        ({"after": {"title": "A"}}, "before.title", "is the same as before"),
        ({"after": {"title": "B", "x": 1}}, "after.x", "no such field"),
        ({"after": None}, "after", "is required"),
        ({"payload": {"book_id": "b", "language": "de"}}, "isbn", "required if language is de"),
    ],
)
def test_what_a_file_forbids_is_refused_with_the_field_named(fields, field, words):
    with pytest.raises(EventInvalid) as caught:
        catalog().check(event(**fields))
    assert caught.value.field == field
    assert words in caught.value.problem


def test_the_steps_of_a_file_read_old_versions():
    old = event(version=1, payload={"id": "b1"}, before={"name": "A"}, after={"name": "B"})
    german = msgspec.structs.replace(old, payload={"id": "b1", "lang": "de"})
    with pytest.raises(EventInvalid, match="isbn: is required if language is de"):
        catalog().check(german)
    checked = catalog().check(
        msgspec.structs.replace(old, payload={"id": "b1", "lang": "en"}),
    )
    assert (checked.version, checked.payload) == (1, {"id": "b1", "lang": "en"})
    now = catalog().upcast(stored(checked))
    assert msgspec.json.decode(now.payload) == {"book_id": "b1", "language": "en"}
    assert msgspec.json.decode(now.after or b"") == {"title": "B"}
    second = catalog().check(event(version=2, payload={"book_id": "b1", "cover": "x"}))
    assert msgspec.json.decode(catalog().upcast(stored(second)).payload) == {
        "book_id": "b1",
        "language": "en",
    }
    with pytest.raises(EventInvalid, match="lang: is required"):
        catalog().check(old)


def rule_of(text: str) -> Catalog:
    """Return a catalog whose type has this rule."""
    fields = "{book_id: string, start: any, end: any, a: any, b: any}"
    return catalog(
        f"events: {{book.lent: {{entity: book, fields: {fields}, rules: [{text}]}}}}".replace(
            ": any", ": {type: any, required: false}"
        )
    )


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        ("{less: [start, end]}", {"start": 1, "end": 2}, {"start": 2, "end": 2}),
        ("{less_or_equal: [start, end]}", {"start": 2, "end": 2}, {"start": 3, "end": 2}),
        (
            "{less: [start, end]}",
            {"start": "2027-01-01T12:00:00+02:00", "end": "2027-01-01T11:00:00Z"},
            {"start": "2027-01-01T10:00:00Z", "end": "2027-01-01T11:00:00+02:00"},
        ),
        ("{equal: [a, b]}", {"a": [1], "b": [1]}, {"a": 1, "b": "1"}),
        ("{not_equal: [a, b]}", {"a": 1}, {"a": 1, "b": 1}),
        ("{required_together: [a, b]}", {}, {"a": 1}),
        ("{any_of: [a, b]}", {"b": 0}, {}),
        ("{required_if: {field: a, when: {b: true}}}", {"b": False}, {"b": True}),
    ],
)
def test_each_condition_takes_the_good_and_refuses_the_bad(rule, good, bad):
    events = rule_of(rule)
    base = event(event_type="book.lent", version=1, before=None, after=None)
    events.check(msgspec.structs.replace(base, payload={"book_id": "b", **good}))
    with pytest.raises(EventInvalid):
        events.check(msgspec.structs.replace(base, payload={"book_id": "b", **bad}))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "a catalog is `events:`"),
        ("events: {}\nother: 1", "and nothing else"),
        ("events: {a: 3}", "give at least `entity:`"),
        ("events: {a: {fields: {}}}", "entity: is required"),
        ("events: {a: {entity: b, colour: red}}", "'colour' is not one of description, entity"),
        ("events: {a: {entity: b, fields: {x: text}}}", "type 'text' is not one of string"),
        ("events: {a: {entity: b, fields: {x y: string}}}", "'x y' is not a name"),
        ("events: {a: {entity: b, fields: {x: {max: 3}}}}", "max is for integer and number"),
        (
            "events: {a: {entity: b, fields: {x: {pattern: '['}}}}",
            "fields.x: a limit is wrong",
        ),
        ("events: {a: {entity: b, fields: {x: {typ: string}}}}", "'typ' is not one of type"),
        ("events: {a: {entity: b, fields: {x: {required: maybe}}}}", "required is true or false"),
        ("events: {a: {entity: b, fields: {x: {type: integer, default: a}}}}", "does not fit"),
        ("events: {a: {entity: b, fields: {x: {one_of: []}}}}", "one_of is a list"),
        ("events: {a: {entity: b, fields: {before: string}}}", "say `state:`"),
        ("events: {a: {entity: b, version: two}}", "'two' is not a whole number"),
        ("events: {a: {entity: b, version: 2}}", "version 1 has no `upcast:`"),
        ("events: {a: {entity: b, versions: {1: {upcast: []}}}}", "is not below it"),
        (
            "events: {a: {entity: b, version: 2, versions: {1: {upcast: [{add: {}}]}}}}",
            "'add' is not one of rename",
        ),
        (
            "events: {a: {entity: b, version: 2, versions: {1: {upcast: [{rename: [x]}]}}}}",
            "rename takes names",
        ),
        ("events: {a: {entity: b, rules: [{eval: '1'}]}}", "'eval' is not a condition"),
        ("events: {a: {entity: b, rules: [{less: [x, y]}]}}", "there is no field 'x'"),
        ("events: {a: {entity: b, retention: soon}}", "retention"),
        ("events: {a: {entity: b, coalesce: {by: [x]}}}", "coalesce: it is {window"),
        ("events: {a: {entity: b, coalesce: {window: 5m, by: [x]}}}", "no field 'x'"),
        ("events: {a: {entity: b, text: '{x}'}}", "{x} is not a field"),
        ("events: {a: {entity: b, change: maybe}}", "'maybe' is not one of optional"),
    ],
)
def test_a_wrong_file_says_what_and_where(text, words, tmp_path):
    file = tmp_path / "catalog.yaml"
    file.write_text(text)
    report = read_catalog(str(file))
    assert not report.catalog.types
    assert words in str(report.problems[0]), report.problems
    assert str(file) in str(report.problems[0])


def test_a_wrong_type_does_not_hide_the_others(tmp_path):
    (tmp_path / "c.yaml").write_text("events: {a: {}, b: {entity: x}, c: {}}")
    report = read_catalog(str(tmp_path / "c.yaml"))
    assert list(report.catalog.types) == ["b"]
    assert len(report.problems) == 2
    with pytest.raises(InvalidInput):
        report.checked()


def test_files_and_directories_are_read_together(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "more"
    folder.mkdir()
    (folder / "b.yml").write_text("events: {b: {entity: x}}")
    (folder / "ignored.txt").write_text("events: {c: {entity: x}}")
    (tmp_path / "catalog.yaml").write_text("events: {a: {entity: x}}")
    assert list(read_catalog(None).catalog.types) == ["a"]
    assert list(read_catalog("catalog.yaml, more").catalog.types) == ["a", "b"]
    (folder / "a.yaml").write_text("events: {a: {entity: x}}")
    [problem] = read_catalog("catalog.yaml,more").problems
    assert "'a' is declared twice: in catalog.yaml and in more/a.yaml" in str(problem)
    for wrong in ("nothing.yaml", "catalog.json", "more/ignored.txt"):
        assert read_catalog(wrong).problems, wrong


def bomb(levels: int) -> str:
    """Return YAML of a few lines that stands for 10 ** levels values."""
    lines = ["a0: &a0 [x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (bomb(30), "aliases (*name) are not allowed"),
        ("events: " + "[" * 50 + "]" * 50, "nested more than 20 levels deep"),
        ("events: " + "[" * 5_000, "nested more than 20 levels deep"),
        ("events:\n  a: {entity: b}\n  a: {entity: c}", "a is given twice"),
        ("events: {a: b", "line 1"),
        ("events: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
        ("#" * (MAX_FILE_BYTES + 1), "split it into several files"),
        ("\x00", "cannot be read"),
    ],
)
def test_a_hostile_file_is_refused(text, words, tmp_path):
    file = tmp_path / "catalog.yaml"
    file.write_text(text)
    [problem] = read_catalog(str(file)).problems
    assert words in str(problem)


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "catalog.yaml"
    file.write_bytes(b"\xff\xfe\xfa")
    [problem] = read_catalog(str(file)).problems
    assert "cannot be read" in str(problem)


_WORDS = st.sampled_from(
    ["events", "entity", "fields", "rules", "versions", "upcast", "text", "a", "string", "type"]
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | _WORDS | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(_WORDS | st.integers(0, 3), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(_VALUES)
def test_any_content_is_types_or_problems(content):
    found, problems = types_of({"events": {"a": content}}, "catalog.yaml")
    assert len(found) + len(problems) == 1
    types_of(content, "catalog.yaml")
