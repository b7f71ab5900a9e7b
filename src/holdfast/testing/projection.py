"""What a projection makes of events, for tests of projections."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast.engines.memory.engine import MemoryEngine
from holdfast.engines.read_models.query import MAX_ROWS, RowQuery
from holdfast.model.catalog import Catalog
from holdfast.model.event import NewEvent
from holdfast.model.projection import RebuildMode
from holdfast.model.read_model import Row
from holdfast.operations.attribution import Author
from holdfast.operations.projections import ProjectionOperations
from holdfast.projections.declaration import Projection
from holdfast.projections.registry import event_reader


def projected(
    projection: Projection, events: Sequence[NewEvent], catalog: Catalog | None = None
) -> list[Row]:
    """Return the rows, by their key, that a projection has after these events.

    Everything is in memory. Raise ``AssertionError`` saying which event could not be applied.
    """
    return asyncio.run(_projected(projection, events, catalog or Catalog()))


async def _projected(
    projection: Projection, events: Sequence[NewEvent], catalog: Catalog
) -> list[Row]:
    engine = MemoryEngine()
    await engine.append(events)
    operations = ProjectionOperations(engine, {projection.name: projection}, event_reader(catalog))
    who = Author("test", "a test of the projection")
    started = await operations.start(projection.name, RebuildMode.TRUNCATE, who)
    ended = await operations.drive(projection.name, started.id)
    assert not ended.error, ended.error
    query = RowQuery(order=projection.table.key, limit=MAX_ROWS)
    rows = await engine.read_models.select(projection.table, started.generation, query)
    await engine.close()
    return rows
