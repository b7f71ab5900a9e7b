"""The card of each book: a read model that is made of events, and can be made again."""

import re
from collections.abc import Sequence
from typing import Any

from holdfast.projections import ColumnType, ProjectedEvent, ReadModel, RowWriter
from library.events import BlockWritten, BookAdded, BookRenamed, BookTagged, app

WORDS_PER_MINUTE = 200
_WORD = re.compile(r"[\u4e00-\u9fff]|[^\W\u4e00-\u9fff]+")

CARDS = ReadModel(
    name="book_cards",
    columns={
        "book_id": ColumnType.INTEGER,
        "bookshelf_id": ColumnType.INTEGER,
        "title": ColumnType.TEXT,
        "words": ColumnType.INTEGER,
        "minutes": ColumnType.INTEGER,
        "tags": ColumnType.TEXT,
    },
    key=("book_id",),
    indexes=(("bookshelf_id",),),
    search=("title", "tags"),
)


def count_words(text: str) -> int:
    """Count words; a Chinese character is one."""
    return len(_WORD.findall(text))


def minutes_to_read(words: int) -> int:
    """Return the time to read so many words, in whole minutes."""
    return max(1, round(words / WORDS_PER_MINUTE))


@app.projection(
    "book_cards", table=CARDS, events=[BookAdded, BookRenamed, BlockWritten, BookTagged]
)
def book_cards(events: Sequence[ProjectedEvent], rows: RowWriter) -> None:
    """Write the cards for these events; those of one book come in their order, each once."""
    for event in events:
        data: dict[str, Any] = {**event.data, "after": event.after}
        card: dict[str, Any] = dict(rows.get((data["book_id"],)) or {"words": 0, "tags": ""})
        if event.event_type == "book.added":
            card |= {name: data[name] for name in ("book_id", "bookshelf_id", "title")}
        elif event.event_type == "book.renamed":
            card["title"] = data["after"]["title"]
        elif event.event_type == "book.tagged":
            card["tags"] = f"{card['tags']} {data['tag']}".strip()
        elif event.event_type == "block.written":
            card["words"] += count_words(data["text"])
            card["minutes"] = minutes_to_read(card["words"])
        rows.upsert(card)
