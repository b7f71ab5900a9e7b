"""``holdfast projection new``: write a projection that works, with its test."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli.group import CommandGroup
from holdfast.cli.options import json_option
from holdfast.cli.output import document, echo
from holdfast.model.errors import InvalidInput
from holdfast.model.projection import check_projection_name

PYTHON = '''\
"""The projection {name}: a row for each book, with its title and how often it was renamed."""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast import Holdfast
from holdfast.projections import ColumnType, ProjectedEvent, ReadModel, RowWriter

app = Holdfast()


@app.event(
    "book.renamed", entity="book", change="optional", text="{{actor}} renamed {{entity}}: {{title}}"
)
@dataclass
class BookRenamed:
    """A book has a new title."""

    book_id: str
    title: str


TABLE = ReadModel(
    name="{name}",
    columns={{
        "book_id": ColumnType.TEXT,
        "title": ColumnType.TEXT,
        "renamed": ColumnType.INTEGER,
        "renamed_at": ColumnType.TIMESTAMP,
    }},
    key=("book_id",),
    indexes=(("renamed_at",),),
    search=("title",),
)


# Raise version when what is in the table changes, then: holdfast rebuild {name} --app {module}.py
@app.projection("{name}", table=TABLE, events=[BookRenamed], version=1)
def {name}(events: Sequence[ProjectedEvent], rows: RowWriter) -> None:
    """Write the rows for these events. Those of one book come in their order, each once."""
    for event in events:
        row = rows.get((event.entity_id,)) or {{"renamed": 0}}
        rows.upsert(
            {{
                "book_id": event.entity_id,
                "title": event.data["title"],
                "renamed": row["renamed"] + 1,
                "renamed_at": event.occurred_at,
            }}
        )
'''
PYTHON_TEST = '''\
"""What {name} makes of events."""

from {module} import BookRenamed, app, {name}

from holdfast.testing.projection import projected


def test_a_book_has_its_last_title():
    events = [
        app.new_event(BookRenamed(book, title), actor="anna")
        for book, title in (("1", "Faust"), ("2", "Emma"), ("1", "Faust II"))
    ]
    rows = projected({name}, events, app.catalog)
    found = [(row["book_id"], row["title"], row["renamed"]) for row in rows]
    assert found == [("1", "Faust II", 2), ("2", "Emma", 1)]
'''
YAML = """\
# Projections that are a mapping alone: which column comes from which field of an event.
# `from` is a field of the envelope, or data.FIELD, before.FIELD, after.FIELD; these need a type.
# Raise `version` when what is in the table changes, then: holdfast rebuild {name}
projections:
  {name}:
    version: 1
    events: [book.renamed]
    delete_on: [book.deleted]
    key: [book_id]
    columns:
      book_id: {{from: entity_id}}
      title: {{from: data.title, type: text, index: true, search: true}}
      renamed_by: {{from: actor_id}}
      renamed_at: {{from: occurred_at}}
"""
YAML_TEST = '''\
"""What {name} makes of events."""

from holdfast.model.event import NewEvent
from holdfast.projections.registry import declared
from holdfast.settings import Settings
from holdfast.testing.projection import projected


def event(event_type, book, **payload):
    return NewEvent(
        event_type=event_type, entity_type="book", entity_id=book, actor_id="anna", payload=payload
    )


def test_a_book_has_its_last_title():
    projection = declared(None, Settings(projections="{file}"))["{name}"]
    rows = projected(
        projection,
        [
            event("book.renamed", "1", title="Faust"),
            event("book.renamed", "2", title="Emma"),
            event("book.renamed", "1", title="Faust II"),
            event("book.deleted", "2"),
        ],
    )
    assert [(row["book_id"], row["title"]) for row in rows] == [("1", "Faust II")]
'''


@click.group("projection", cls=CommandGroup)
def projection_group() -> None:
    """Write a new projection."""


@projection_group.command("new")
@click.argument("name", metavar="NAME")
@click.option("--yaml", "as_yaml", is_flag=True, help="A mapping of columns, without Python.")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Where to write it (here).",
)
@json_option
def new_projection(name: str, *, as_yaml: bool, directory: Path, as_json: bool) -> None:
    """Write a projection called NAME that works, and its test, to begin with.

    Nothing that exists is overwritten.
    """
    check_projection_name(name)
    module = f"{name}_projection"
    declaration = "projections.yaml" if as_yaml else f"{module}.py"
    files = {
        declaration: YAML if as_yaml else PYTHON,
        f"test_{module}.py": YAML_TEST if as_yaml else PYTHON_TEST,
    }
    for file in files:
        if (directory / file).exists():
            other = ", or name another --directory" if as_yaml else ": choose another name"
            raise InvalidInput("NAME", f"{directory / file} exists, nothing was written{other}")
    if not directory.is_dir():
        raise InvalidInput("--directory", f"{directory} is not a directory: make it first")
    for file, text in files.items():
        (directory / file).write_text(text.format(name=name, module=module, file=declaration))
    if as_json:
        document([str(directory / file) for file in files])
        return
    for file in files:
        echo(f"wrote {directory / file}")
    app = "" if as_yaml else f" --app {declaration}"
    echo(f"next: pytest {directory / f'test_{module}.py'}")
    echo(f"      holdfast projections list{app}")
