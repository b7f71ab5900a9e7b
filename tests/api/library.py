"""Event types and projections of a library, as the server of the tests knows them."""

from holdfast.api.declarations import Declarations
from holdfast.model.catalog import Catalog
from holdfast.model.catalog_document import types_of
from holdfast.model.read_model import ColumnType, ReadModel
from holdfast.projections import chronicle
from holdfast.projections.declaration import Projection

TABLE = ReadModel(
    name="titles",
    columns={
        "tenant": ColumnType.TEXT,
        "scope": ColumnType.TEXT,
        "book": ColumnType.TEXT,
        "title": ColumnType.TEXT,
    },
    key=("tenant", "book"),
    search=("title",),
)


def write(events, rows):
    for one in events:
        place = {"tenant": one.event.tenant, "scope": one.event.scope}
        rows.upsert({**place, "book": one.entity_id, "title": one.data["title"]})


PROJECTION = Projection(name="titles", table=TABLE, apply=write)
DOCUMENT = {
    "events": {
        "book.added": {
            "entity": "book",
            "description": "A book came.",
            "text": "{actor} added {title}",
            "fields": {
                "book_id": "string",
                "title": "string",
                "donor": {"type": "string", "required": False, "sensitive": True},
            },
        }
    }
}


def declarations() -> Declarations:
    types, problems = types_of(DOCUMENT, "library.yaml")
    assert not problems, problems
    known = {"titles": PROJECTION, "chronicle": chronicle.PROJECTION}
    return Declarations(Catalog(types), known)
