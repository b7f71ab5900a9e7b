"""An application with a projection, whose rows the commands of these tests read."""

from collections.abc import Sequence

from holdfast import Holdfast
from holdfast.projections import ColumnType, ProjectedEvent, ReadModel, RowWriter

app = Holdfast()
TITLES = ReadModel(name="titles", columns={"book_id": ColumnType.TEXT}, key=("book_id",))


@app.projection("titles", table=TITLES, events=["book.opened"])
def titles(events: Sequence[ProjectedEvent], rows: RowWriter) -> None:
    """Write a row for each book."""
    for event in events:
        rows.upsert({"book_id": event.entity_id})
