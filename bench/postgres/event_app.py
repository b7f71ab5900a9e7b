"""The application that is measured with events: books that are renamed, and a table of them."""

from collections.abc import Sequence

import msgspec

from holdfast import Holdfast
from holdfast.engines.read_models.contract import RowWriter
from holdfast.model.event import NewEvent
from holdfast.model.read_model import ColumnType, ReadModel
from holdfast.projections.declaration import ProjectedEvent

EVENT_TYPE = "book.renamed"
TEXT = "{actor} renamed {entity} to {title}"
BOOKS = ReadModel(
    name="books",
    columns={
        "book": ColumnType.TEXT,
        "title": ColumnType.TEXT,
        "renames": ColumnType.INTEGER,
        "renamed_at": ColumnType.TIMESTAMP,
    },
    key=("book",),
)

app = Holdfast()


@app.event(EVENT_TYPE, entity="book", text=TEXT)
class BookRenamed(msgspec.Struct):
    """A book has another title."""

    book_id: str
    title: str
    old_title: str


@app.projection("books", table=BOOKS, events=[BookRenamed])
def books(events: Sequence[ProjectedEvent], rows: RowWriter) -> None:
    """Keep the title of each book, and how often it was renamed: what is applied twice shows."""
    known = rows.get_many([(event.entity_id,) for event in events])
    renames = {key: row["renames"] for key, row in known.items()}
    for event in events:
        count = renames.get((event.entity_id,)) or 0
        assert isinstance(count, int)
        renames[event.entity_id,] = count + 1
        rows.upsert(
            {
                "book": event.entity_id,
                "title": str(event.data["title"]),
                "renames": count + 1,
                "renamed_at": event.occurred_at,
            }
        )


def renamed(first: int, count: int, keys: int) -> list[NewEvent]:
    """Return so many events, of so many books in turn."""
    return [
        NewEvent(
            event_type=EVENT_TYPE,
            entity_type="book",
            entity_id=f"book-{number % keys}",
            actor_id="anna",
            actor_name="Anna",
            payload={
                "book_id": f"book-{number % keys}",
                "title": f"The title of edition {number}",
                "old_title": f"The title of edition {number - keys}",
            },
        )
        for number in range(first, first + count)
    ]
