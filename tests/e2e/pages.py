"""An application with events: readers turn pages, and a projection follows each book.

Each event has the number of its page, and those of a book are one, two, three. So what a projection
sees tells by itself whether an event was lost, doubled or out of order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from holdfast import Holdfast
from holdfast.engines.read_models.contract import RowWriter
from holdfast.model.read_model import ColumnType, ReadModel, Row
from holdfast.projections.declaration import ProjectedEvent

app = Holdfast()
TRAILS = ReadModel(
    name="trails",
    columns={
        "book": ColumnType.TEXT,
        "events": ColumnType.INTEGER,
        "page": ColumnType.INTEGER,
        "jumps": ColumnType.INTEGER,
        "chain": ColumnType.TEXT,
    },
    key=("book",),
)
THREADS = 4
"""Of each process that writes."""
SHARED_BOOKS = [f"shared-{number}" for number in range(6)]
SHOP_TABLES = (
    "CREATE TABLE public.books (book text PRIMARY KEY, page int NOT NULL)",
    "CREATE TABLE public.turns (event_id text PRIMARY KEY)",
)
"""What transactions of writers change beside the events: it tells what was committed."""
UNREAD: Row = {"events": 0, "page": 0, "jumps": 0, "chain": ""}


@app.event("page.turned", entity="book", text="{actor} 翻页 {entity} to {page}")
@dataclass
class PageTurned:
    """A reader is at the next page of a book."""

    book_id: str
    page: int


def chained(chain: object, event_id: str) -> str:
    """Return a hash of these events in this order."""
    return blake2b(f"{chain}{event_id}".encode(), digest_size=8).hexdigest()


@app.projection("trails", table=TRAILS, events=[PageTurned], batch=50)
def follow(events: Sequence[ProjectedEvent], rows: RowWriter) -> None:
    """Count the events of each book, and those that are not the next page."""
    for one in events:
        row = rows.get((one.entity_id,)) or {**UNREAD, "book": one.entity_id}
        page = one.data["page"]
        jump = page != row["page"] + 1  # type: ignore[operator]
        rows.upsert(
            {
                "book": one.entity_id,
                "events": row["events"] + 1,  # type: ignore[operator]
                "page": page,  # type: ignore[dict-item]
                "jumps": row["jumps"] + jump,  # type: ignore[operator]
                "chain": chained(row["chain"], one.event.id),
            }
        )
