"""``events`` and ``catalog``, with the daemon up and down."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.model.event import MAX_APPEND

from .shop import Shop, owner_of

CATALOG = """
events:
  book.renamed:
    description: A book has another title.
    entity: book
    version: 2
    fields:
      book_id: string
      email: {type: string, required: false, sensitive: true}
      language: {type: string, default: en}
    text: '{actor} renamed {entity} from {before.title} to {after.title}'
    change: before_and_after
    rules: [{not_equal: [before.title, after.title]}]
    versions: {1: {upcast: [{rename: {book: book_id}}, {default: {language: en}}]}}
  book.opened:
    entity: book
    fields: {book_id: string, page: integer}
"""
APP = """
from dataclasses import dataclass
from holdfast import Holdfast
app = Holdfast("./data")

@app.event("shelf.built", entity="shelf", text="{actor} built {entity}")
@dataclass
class ShelfBuilt:
    '''A shelf is there.'''
    shelf_id: str
"""
WHY = ("--by", "ops", "--reason", "typo in the source")
ULYSSES = {
    "id": "0192f3a4-0000-7000-8000-000000000001",
    "event_type": "book.renamed",
    "actor_user_id": "42",
    "actor_name": "Ann",
    "occurred_at": "2027-01-15T12:00:00Z",
    "request_id": "r1",
    "scope": "library:1",
    "payload": {"book_id": "b1", "email": "a@b"},
    "before": {"title": "Ulises"},
    "after": {"title": "Ulysses"},
}


def opened(number: int, page: object = 1) -> dict[str, object]:
    """Return an event as a file has it."""
    return {
        "event_type": "book.opened",
        "actor_type": "service",
        "actor_id": "reader",
        "payload": {"book_id": f"b{number}", "page": page},
    }


def ndjson(*events: object) -> bytes:
    """Return a file with an event per line."""
    return "".join(json.dumps(event) + "\n" for event in events).encode()


@pytest.fixture(params=["down", "up"])
def store(request: pytest.FixtureRequest, here: Path) -> Iterator[Shop]:
    """An empty store beside a catalog, without an owner and with one."""
    (here / "catalog.yaml").write_text(CATALOG)
    if request.param == "down":
        yield Shop(here / "data", owned=False)
        return
    with owner_of(here / "data"):
        yield Shop(here / "data", owned=True)


@pytest.fixture
def alone(here: Path) -> Shop:
    """An empty store beside a catalog, without an owner."""
    (here / "catalog.yaml").write_text(CATALOG)
    return Shop(here / "data", owned=False)


def test_a_file_is_appended_with_its_actors_and_the_importer(store, here):
    (here / "events.ndjson").write_bytes(ndjson(ULYSSES, opened(2)))
    said = store.run("events", "append", "--file", "events.ndjson", *WHY).stdout
    assert said == "2 events stored\n"
    second, first = store.json("events", "list")
    assert first["text"] == "Ann renamed book b1 from Ulises to Ulysses"
    assert (first["actor_user_id"], first["imported_by"]) == ("42", "ops")
    assert (second["actor_type"], second["actor_id"]) == ("service", "reader")
    assert "actor_user_id" not in second
    [entry] = store.json("audit", "list")
    assert (entry["action"], entry["user_id"], entry["resource_id"], entry["reason"]) == (
        "event.import",
        "ops",
        "events.ndjson",
        "typo in the source",
    )
    assert entry["changes"] == {"stored": 2, "existed": 0}


def test_a_file_again_stores_nothing_twice(store):
    file = ndjson(ULYSSES, opened(2), opened(2), opened(3))
    store.run("events", "append", "--by", "ops", stdin=file)
    said = store.run("events", "append", "--by", "other", "-f", "-", stdin=file).stdout
    assert said == "0 events stored, 4 were there already\n"
    more = store.run("events", "append", "--json", stdin=ndjson(opened(4), opened(3))).stdout
    assert json.loads(more) == {"stored": 1, "existed": 1}
    assert len(store.json("events", "list")) == 5


def test_an_id_with_other_content_is_refused(store):
    store.run("events", "append", stdin=ndjson(ULYSSES))
    other = {**ULYSSES, "after": {"title": "Odyssey"}}
    said = store.run("events", "append", stdin=ndjson(opened(1), other), code=4).stderr
    assert "exists already and says something else" in said
    assert len(store.json("events", "list")) == 1


@pytest.mark.parametrize("form", ["array", "document"])
def test_json_files_are_read_too(alone, form):
    text = json.dumps([ULYSSES, opened(2)] if form == "array" else ULYSSES, indent=2)
    alone.run("events", "append", stdin=text)
    assert len(alone.json("events", "list")) == (2 if form == "array" else 1)


def test_a_bad_line_is_named_and_nothing_of_its_thousand_stored(alone):
    file = ndjson(opened(1), {**opened(2), "payload": {"book_id": "b", "page": "one"}})
    said = alone.run("events", "append", stdin=file, code=2).stderr
    assert "line 2: page: Expected `int`, got `str`; allowed: integer" in said
    assert not alone.path.exists()


def test_what_was_stored_before_a_bad_line_is_said_and_the_file_can_be_run_again(alone):
    good = [opened(number) for number in range(MAX_APPEND + 5)]
    said = alone.run(
        "events", "append", "--by", "ops", stdin=ndjson(*good, opened(0, "one")), code=2
    ).stderr
    assert "line 1006: page: Expected `int`" in said
    assert "The 1,000 events up to line 1000 are stored, and none after it" in said
    [entry] = alone.json("audit", "list")
    assert entry["changes"] == {"stored": 1_000, "existed": 0}
    again = alone.run("events", "append", stdin=ndjson(*good, opened(0, 2))).stdout
    assert again == "6 events stored, 1,000 were there already\n"


def test_a_dry_run_names_every_bad_line_and_stores_nothing(alone):
    file = ndjson(opened(1), opened(2, "two"), {"event_type": "no"}, opened(4))
    result = alone.run("events", "append", "--dry-run", stdin=file, code=2)
    assert result.stdout == "2 valid, 2 wrong; nothing was stored\n"
    assert "line 2: page" in result.stderr
    assert "line 3: event_type: 'no' is not in the catalog" in result.stderr
    found = json.loads(alone.run("events", "append", "--dry-run", "--json", stdin=ndjson()).stdout)
    assert found == {"valid": 0, "problems": []}
    assert not alone.path.exists()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), ["b2", "b3", "b1"]),
        (("--oldest",), ["b1", "b3", "b2"]),
        (("--limit", 1), ["b2"]),
        (("--type", "book.renamed"), ["b1"]),
        (("--entity", "book:b3"), ["b3"]),
        (("--entity", "book"), ["b2", "b3", "b1"]),
        (("--actor", "42"), ["b1"]),
        (("--actor", "service:reader"), ["b2", "b3"]),
        (("--request-id", "r1"), ["b1"]),
        (("--scope", "library:1"), ["b1"]),
        (("--key", "book:b2"), ["b2"]),
        (("--tenant", "other"), []),
        (("--until", "2027-01-15T12:00:00Z"), []),
        (("--since", "2027-01-15T12:00:00Z", "--until", "2027-01-15T12:00:01Z"), ["b1"]),
        (("--id", ULYSSES["id"]), ["b1"]),
    ],
)
def test_events_are_filtered(full, options, expected):
    assert [one["entity_id"] for one in full.json("events", "list", *options)] == expected


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A store with three events."""
    with pytest.MonkeyPatch.context() as patch:
        here = tmp_path_factory.mktemp("events")
        patch.chdir(here)
        (here / "catalog.yaml").write_text(CATALOG)
        made = Shop(here / "data", owned=False)
        later = [{**opened(number), "occurred_at": "2027-02-01T00:00:00Z"} for number in (3, 2)]
        made.run("events", "append", stdin=ndjson(ULYSSES, *later))
        yield made


@pytest.mark.parametrize(
    "options",
    [
        ("--since", "yesterday-ish"),
        ("--id", "7"),
        ("--limit", "0"),
        ("--actor", "\x00"),
        ("--type", ""),
    ],
)
def test_a_wrong_filter_is_refused(full, options):
    full.run("events", "list", *options, code=2)


def test_events_are_printed_for_people(full):
    said = full.run("events", "list").stdout
    assert "Ann renamed book b1 from Ulises to Ulysses" in said
    assert len(full.run("events", "list", "--ndjson").stdout.splitlines()) == 3
    shown = full.run("events", "show", ULYSSES["id"]).stdout
    assert "book.renamed version 2" in shown
    assert '"email":"***"' in shown
    assert "a@b" in full.run("events", "show", ULYSSES["id"], "--sensitive").stdout
    assert full.json("events", "show", ULYSSES["id"])["scope"] == "library:1"
    full.run("events", "show", "0192f3a4-0000-7000-8000-00000000ffff", code=3)
    full.run("events", "show", "seven", code=2)


def test_listed_events_can_be_appended_to_another_store(full, here):
    (here / "catalog.yaml").write_text(CATALOG)
    lines = full.run("events", "list", "--ndjson", "--sensitive", "--oldest").stdout
    other = Shop(here / "other", owned=False)
    assert other.run("events", "append", stdin=lines).stdout == "3 events stored\n"
    assert [one["id"] for one in other.json("events", "list")] == [
        one["id"] for one in full.json("events", "list")
    ]


def test_an_old_version_is_listed_as_the_current_one(alone):
    old = {**ULYSSES, "version": 1, "payload": {"book": "b1"}}
    alone.run("events", "append", stdin=ndjson(old))
    [found] = alone.json("events", "list")
    assert (found["version"], found["payload"]) == (2, {"book_id": "b1", "language": "en"})


def test_an_event_is_corrected_by_another_one(store):
    store.run("events", "append", stdin=ndjson(ULYSSES))
    wrong = ("events", "correct", ULYSSES["id"])
    store.run(*wrong, "--set", "after.title=Odyssey", code=2)  # without a reason
    store.run(*wrong, *WHY, code=2)
    store.run(*wrong, "--set", "after.title=Ulises", *WHY, code=2)  # against a rule
    said = store.run(*wrong, "--set", "after.title=Odyssey", *WHY).stdout
    new_id = said.split()[0]
    assert said == f"{new_id} supersedes {ULYSSES['id']}\n"
    new, old = store.json("events", "list")
    assert (new["supersedes"], new["actor_id"], new["reason"]) == (
        ULYSSES["id"],
        "ops",
        "typo in the source",
    )
    assert (new["after"], old["after"]) == ({"title": "Odyssey"}, {"title": "Ulysses"})
    assert store.json("audit", "list")[-1]["action"] == "event.correct"
    assert "was there already" in store.run(*wrong, "--set", "after.title=Odyssey", *WHY).stdout
    assert "correct that one" in store.run(*wrong, "--set", "after.title=X", *WHY, code=2).stderr


# --- catalog ------------------------------------------------------------------------------------


def test_the_catalog_is_listed_and_shown(alone, here):
    (here / "shelves.py").write_text(APP)
    assert [one["name"] for one in alone.json("catalog", "list")] == ["book.opened", "book.renamed"]
    found = alone.run("catalog", "list", "--app", "shelves.py").stdout
    assert "A shelf is there." in found
    assert "catalog.yaml" in found
    shown = alone.run("catalog", "show", "book.renamed").stdout
    for words in (
        "2 (reads 1, 2)",
        "before.title must differ from after.title",
        "email",
        "{actor} renamed",
    ):
        assert words in shown
    schema = json.loads(alone.run("catalog", "show", "book.opened", "--schema").stdout)
    assert schema["$defs"]["book_opened"]["properties"]["page"] == {"type": "integer"}
    assert "did you mean" in alone.run("catalog", "show", "book.opend", code=2).stderr
    assert not alone.path.exists()


def test_an_application_declares_types_for_the_commands(alone, here):
    (here / "shelves.py").write_text(APP)
    event = {"event_type": "shelf.built", "actor_user_id": "42", "payload": {"shelf_id": "s"}}
    alone.run("events", "append", stdin=ndjson(event), code=2)
    alone.run("events", "append", "--app", "shelves.py", stdin=ndjson(event))
    [found] = alone.json("events", "list", "--app", "shelves.py")
    assert found["text"] == "42 built shelf s"
    [unknown] = alone.json("events", "list")
    assert "'shelf.built' is not in the catalog" in unknown["problem"]


def test_catalog_check_names_everything_that_is_wrong(alone, here):
    said = alone.run("catalog", "check").stdout
    assert "warning  book.opened: it has no description" in said
    assert said.endswith("2 event types\n")
    (here / "catalog.yaml").write_text("events: {a: {entity: x, colour: red}, b: {}, c: 3}")
    found = alone.json("catalog", "check", code=1)
    assert len(found["problems"]) == 3
    assert "'colour' is not one of" in alone.run("catalog", "list", code=2).stderr
    (here / "catalog.yaml").unlink()
    assert "no event types" in alone.run("catalog", "list").stderr


def test_catalog_check_reads_what_is_stored(alone, here):
    alone.run("events", "append", stdin=ndjson(ULYSSES, opened(2)))
    assert "2 stored events read" in alone.run("catalog", "check", "--stored").stdout
    changed = CATALOG.replace("page: integer", "page: string").replace("book.renamed", "book.named")
    (here / "catalog.yaml").write_text(changed)
    found = alone.json("catalog", "check", "--stored", code=1)
    assert (found["stored"], len(found["problems"])) == (2, 2)
    assert "page: Expected `str`" in str(found["problems"])


def test_the_setting_names_the_catalog(alone, here, monkeypatch):
    (here / "more").mkdir()
    (here / "more" / "one.yaml").write_text("events: {a.b: {entity: x}}")
    monkeypatch.setenv("HOLDFAST_CATALOG", "catalog.yaml,more")
    assert len(alone.json("catalog", "list")) == 3
    monkeypatch.setenv("HOLDFAST_CATALOG", "nothing.yaml")
    assert "nothing.yaml cannot be read" in alone.run("catalog", "list", code=2).stderr
