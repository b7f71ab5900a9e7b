"""The events that are measured: books are renamed, in two scripts, by some people."""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast import Holdfast
from holdfast.engines.read_models.contract import RowWriter
from holdfast.model.event import NewEvent
from holdfast.model.read_model import ColumnType, ReadModel, Row, RowKey
from holdfast.projections.declaration import ProjectedEvent

EVENT_TYPE = "book.renamed"
KEYS = 10_000
HOT_SHARE = 2
"""Of the events with hot keys, every second one is of one key."""
RARE_EVERY = 200
"""One event in so many has the rare word: half a percent."""
RARE_WORD = "红楼"
_RARE_TITLE = "红楼梦与它的读者"
_TITLES = (
    "The Left Hand of Darkness",
    "石头记前八十回校本",
    "A Wizard of Earthsea, second edition",
    "三国演义插图本",
    "Middlemarch, a study of provincial life",
    "水浒传七十回本",
    "The Dispossessed: an ambiguous utopia",
    "西游记评点全本",
)
_ACTORS = tuple((f"user-{number}", f"Reader {number}") for number in range(50))
BOOKS = ReadModel(
    name="books",
    columns={
        "book": ColumnType.TEXT,
        "title": ColumnType.TEXT,
        "renames": ColumnType.INTEGER,
        "renamed_by": ColumnType.TEXT,
        "renamed_at": ColumnType.TIMESTAMP,
    },
    key=("book",),
    indexes=(("renamed_at",),),
)
BATCH = 500


def title_of(number: int) -> str:
    """Return the title that the event of this number gives to its book."""
    if number % RARE_EVERY == 0:
        return f"{_RARE_TITLE} {number}"
    return f"{_TITLES[number % len(_TITLES)]} {number}"


def new_events(first: int, count: int, *, hot: bool = False) -> list[NewEvent]:
    """Return this many events, from this number on."""
    found = []
    for number in range(first, first + count):
        book = 0 if hot and number % HOT_SHARE == 0 else number % KEYS
        actor_id, actor_name = _ACTORS[number % len(_ACTORS)]
        found.append(
            NewEvent(
                event_type=EVENT_TYPE,
                entity_type="book",
                entity_id=f"b{book}",
                actor_id=actor_id,
                actor_name=actor_name,
                payload={"shelf": f"s{book % 97}", "copies": number % 9},
                before={"title": title_of(max(0, number - KEYS))},
                after={"title": title_of(number)},
                scope=f"library:{book % 20}",
                request_id=f"request-{number}",
            )
        )
    return found


@dataclass
class BookRenamed:
    """A book has another title."""

    shelf: str
    copies: int


def count_renames(events: Sequence[ProjectedEvent], rows: RowWriter) -> None:
    """Keep the title of each book, and how often it changed."""
    known: dict[RowKey, Row] = dict(rows.get_many({(event.entity_id,) for event in events}))
    for event in events:
        key: RowKey = (event.entity_id,)
        renames = known[key]["renames"] if key in known else 0
        after = event.after
        assert isinstance(after, dict)
        assert isinstance(renames, int)
        known[key] = {
            "book": event.entity_id,
            "title": after["title"],
            "renames": renames + 1,
            "renamed_by": event.event.actor_id,
            "renamed_at": event.occurred_at,
        }
        rows.upsert(known[key])


def application(store: str, *, books: bool) -> Holdfast:
    """Return an application that has the event type, and the projection of books or none."""
    app = Holdfast(store, own=True)
    text = "{actor} renamed {entity} to {after.title}"
    app.event(EVENT_TYPE, entity="book", text=text)(BookRenamed)
    if books:
        app.projection("books", table=BOOKS, events=[EVENT_TYPE], batch=BATCH)(count_renames)
    return app
