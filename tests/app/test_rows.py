"""Reading the table of a projection by ``app.rows``, on every store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from holdfast import Holdfast, InvalidInput, StorageError
from holdfast.model.errors import UnknownProjection
from holdfast.projections import ColumnType, ProjectedEvent, Projection, ReadModel, RowWriter

from .stores import KINDS, Stores

SHELF = ReadModel(
    name="shelf",
    columns={
        "book": ColumnType.TEXT,
        "title": ColumnType.TEXT,
        "pages": ColumnType.INTEGER,
        "lent": ColumnType.BOOLEAN,
        "tags": ColumnType.JSON,
    },
    key=("book",),
    search=("title",),
)
BOOKS = (("b1", "Emma", 400), ("b2", "红楼梦", 900), ("b3", "Faust", 400))


@dataclass
class BookNamed:
    """A book has a title."""

    book_id: str
    title: str
    pages: int


def fill(events: Sequence[ProjectedEvent], rows: RowWriter) -> None:
    for event in events:
        title, pages = str(event.data["title"]), event.data["pages"]
        assert isinstance(pages, int)
        rows.upsert(
            {
                "book": event.entity_id,
                "title": title,
                "pages": pages,
                "lent": pages > 500,
                "tags": [title[0]],
            }
        )


def declare(app: Holdfast) -> None:
    app.event("book.named", entity="book", text="{entity} is called {title}")(BookNamed)
    app.projection("shelf", table=SHELF, events=[BookNamed])(fill)


@pytest.fixture
def stores(tmp_path, request, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Stores(tmp_path, request)


def named(rows) -> list[str]:
    return [row["book"] for row in rows]


@pytest.mark.parametrize("kind", KINDS)
async def test_rows_are_found_by_values_words_and_order(stores, kind):
    async with stores.running(kind, declare) as app:
        events = await app.append_many([BookNamed(*one) for one in BOOKS], actor="42")
        for projection in ("shelf", "chronicle"):
            await app.wait_until_projected(events, projection, timeout="30s")
        assert named(await app.rows("shelf")) == ["b1", "b2", "b3"]
        assert await app.rows("shelf", {"title": "红楼梦"}) == [
            {"book": "b2", "title": "红楼梦", "pages": 900, "lent": True, "tags": ["红"]}
        ]
        assert named(await app.rows("shelf", {"pages": 400, "lent": False})) == ["b1", "b3"]
        assert named(await app.rows("shelf", {"book": ["b3", "b1", "zz"]})) == ["b1", "b3"]
        assert await app.rows("shelf", {"book": []}) == []
        assert named(await app.rows("shelf", search="红楼")) == ["b2"]
        assert named(await app.rows("shelf", order="pages")) == ["b1", "b3", "b2"]
        assert named(await app.rows("shelf", order="-pages", limit=2)) == ["b2", "b3"]
        [entry] = await app.rows("chronicle", {"entity_id": "b1"})
        assert entry["text"] == "book b1 is called Emma"


@pytest.mark.parametrize(
    ("where", "options", "said"),
    [
        ({"titel": "Emma"}, {}, "shelf has no column 'titel', only book, title"),
        ({"pages": "400"}, {}, "shelf holds integer there, not a str"),
        ({"pages": None}, {}, "a NoneType cannot be compared with"),
        ({"tags": "E"}, {}, "shelf holds json there: it cannot be compared"),
        ({"book": ["b1", 2]}, {}, "shelf holds text there, not a int"),
        ({}, {"order": "-titel"}, "shelf has no such column"),
        ({}, {"search": "?!"}, "has no word to look for"),
        ({}, {"limit": 0}, "0 is not from 1 to"),
    ],
)
async def test_what_cannot_be_asked_is_refused(tmp_path, where, options, said):
    app = Holdfast(tmp_path / "data", own=True)
    declare(app)
    with pytest.raises(InvalidInput, match=said):
        await app.rows("shelf", where, **options)
    with pytest.raises(UnknownProjection, match=r"'shelves' is declared here; known: .*shelf"):
        await app.rows("shelves")
    await app.close()


async def test_before_a_worker_has_made_the_table_there_are_no_rows(tmp_path):
    app = Holdfast(tmp_path / "data", own=True)
    declare(app)
    assert await app.rows("shelf") == []
    await app.append(BookNamed(*BOOKS[0]), actor="42")
    assert await app.rows("shelf") == []
    await app.close()


@pytest.mark.parametrize("kind", ["journal", "postgres"])
async def test_a_column_that_the_table_does_not_have_yet_is_said(stores, kind):
    """And is not taken for a text, as SQLite does with a name that it does not know."""
    async with stores.running(kind, declare) as app:
        event = await app.append(BookNamed(*BOOKS[0]), actor="42")
        await event.wait("shelf", timeout="30s")
        later = Projection(
            name="shelf",
            table=ReadModel(
                name="shelf", columns={**SHELF.columns, "shelved": ColumnType.TEXT}, key=("book",)
            ),
            apply=fill,
            version=2,
        )
        app.registry.projections["shelf"] = later
        if kind == "journal":  # what a process with the new declaration opens
            await app._binding.call(lambda engine: engine.read_models.close())
        with pytest.raises(StorageError, match="start a worker, which adds columns, or rebuild it"):
            await app.rows("shelf")


def test_rows_in_synchronous_code(tmp_path):
    app = Holdfast(tmp_path / "data", own=True)
    declare(app)
    assert app.rows_sync("shelf", {"book": "b1"}) == []
    app.close_sync()
