"""``python -m bench.postgres.event_tables DIRECTORY COUNT``: many events, rebuilt and read.

A rebuild of the plain table and of the chronicle from all events, then pages of the chronicle and
searches in it. The events are made on the server: to append them is measured elsewhere.
"""

import os
import statistics
import time
from pathlib import Path

from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.model.projection import RebuildMode
from holdfast.operations.attribution import Author
from holdfast.operations.chronicle import ChronicleOperations
from holdfast.operations.chronicle_views import EVERY_ENTRY, ChronicleFilter
from holdfast.projections.chronicle import CHRONICLE
from holdfast.projections.chronicle import PROJECTION as ENTRIES
from holdfast.projections.rebuild import Rebuilder
from holdfast.projections.registry import event_reader

from .answering import answer
from .event_app import app, books
from .measuring import Meter, execute
from .side import url

TIMES = 21
_PAGES = {
    "page": EVERY_ENTRY,
    "entity_page": ChronicleFilter(entity_id="book-7"),
    "search": ChronicleFilter(search="重建"),
    "rare_search": ChronicleFilter(search="再版"),
}
_WHO = Author("bench", "to measure it")
_MAKE = """INSERT INTO holdfast.chronicle_events (
    event_id, tenant, event_type, version, payload, scope, key, entity_type, entity_id,
    actor_type, actor_id, actor_name, occurred_at, created_at, position, fanout_version
)
SELECT
    (lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint), 12, '0') || '-7000-8000-'
        || lpad(to_hex(n), 12, '0'))::uuid,
    'default', 'book.renamed', 1,
    json_build_object(
        'book_id', 'book-' || n %% 1000, 'title', 'Edition ' || n || CASE
            WHEN n %% 100 = 0 THEN ' 重建' WHEN n %% 10000 = 1 THEN ' 再版' ELSE ' 失败'
        END, 'old_title', 'Edition ' || n - 1000
    ),
    '', 'book:book-' || n %% 1000, 'book', 'book-' || n %% 1000, 'user', 'user-' || n %% 50, 'Anna',
    now() - (%d - n) * interval '1 second', now(), n, 0
FROM generate_series(1, %d) AS n"""


async def rebuild(rebuilder: Rebuilder, name: str) -> float:
    """Rebuild a projection beside its live generation, directly; return the seconds it takes."""
    start = time.perf_counter()
    state = await rebuilder.start(name, RebuildMode.GENERATION, _WHO)
    while state.rebuild is not None:
        if not state.rebuild.running:
            raise RuntimeError(state.rebuild.error)
        state, _further = await rebuilder.step(name)
    return time.perf_counter() - start


async def median_ms(chronicle: ChronicleOperations, wanted: ChronicleFilter) -> float:
    """Read a page some times; return the median."""
    taken = []
    for _time in range(TIMES):
        start = time.perf_counter()
        page = await chronicle.page(wanted)
        taken.append(time.perf_counter() - start)
        assert page.entries
    return 1e3 * statistics.median(taken)


async def measure(_root: Path, told_count: str) -> dict[str, float]:
    """Measure with so many events."""
    count = int(told_count)
    await execute(_MAKE % (count, count))
    await execute("ANALYZE")
    engine = await PostgresEngine.open(url())
    projections = {"books": books, CHRONICLE: ENTRIES}
    rebuilder = Rebuilder(engine, projections, event_reader(app.catalog))
    found: dict[str, float] = {}
    try:
        for name in projections:
            meter = Meter([os.getpid()])
            seconds = await rebuild(rebuilder, name)
            rate = meter.rate(count, seconds)
            found[f"rebuild_{name}_seconds"] = seconds
            found[f"rebuild_{name}_server_us"] = rate.server_us
            found[f"rebuild_{name}_client_us"] = rate.worker_us
        await execute("VACUUM ANALYZE")
        chronicle = ChronicleOperations(engine, app.catalog)
        for name, wanted in _PAGES.items():
            found[f"chronicle_{name}_ms"] = await median_ms(chronicle, wanted)
    finally:
        await engine.close()
    return found


if __name__ == "__main__":
    answer(measure)
