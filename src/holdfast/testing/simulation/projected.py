"""The projection of the simulated world, and its table, which every event must be in once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor

from holdfast.engines.read_models.contract import RowWriter
from holdfast.engines.read_models.query import RowQuery
from holdfast.engines.read_models.sqlite_file import SqliteFile
from holdfast.engines.read_models.sqlite_store import LeaseSettler, OpenGeneration, SqliteReadModels
from holdfast.model.projection import ProjectionState, RebuildPhase, queue_of
from holdfast.model.read_model import ColumnType, ReadModel, generation_table
from holdfast.model.subscription import job_id
from holdfast.projections.declaration import ProjectedEvent, Projection

from .invariants import InvariantChecker
from .trace import Trace

NAME = "book_counts"
MAX_GENERATION = 3
QUEUES = tuple(queue_of(NAME, number) for number in range(1, MAX_GENERATION + 1))
_TABLE = ReadModel(
    name=NAME,
    columns={
        "tenant": ColumnType.TEXT,
        "book": ColumnType.TEXT,
        "events": ColumnType.INTEGER,
    },
    key=("tenant", "book"),
)


def _count(events: Sequence[ProjectedEvent], rows: RowWriter) -> None:
    for one in events:
        tenant, book = one.event.tenant, one.entity_id
        before = rows.get((tenant, book))
        count = 0 if before is None else before["events"]
        assert isinstance(count, int)
        rows.upsert({"tenant": tenant, "book": book, "events": count + 1})


PROJECTION = Projection(name=NAME, table=_TABLE, apply=_count, batch=5)


class KeptReadModels(SqliteReadModels):
    """Read models in memory that outlive their process, as files do.

    What a simulated thread does is done at once: a process is killed before or after it.
    """

    def __init__(
        self,
        files: dict[str, SqliteFile],
        settler: LeaseSettler,
        threads: Callable[[int, str], Executor],
    ) -> None:
        super().__init__(None, settler, threads)
        self._files = files
        self._open |= {name: OpenGeneration(file) for name, file in files.items()}

    async def create(self, table: ReadModel, generation: int) -> None:
        """See ``ReadModelStore.create``."""
        await super().create(table, generation)
        name = generation_table(table.name, generation)
        self._files[name] = self._open[name].file

    async def drop(self, table: ReadModel, generation: int) -> None:
        """See ``ReadModelStore.drop``."""
        await super().drop(table, generation)
        self._files.pop(generation_table(table.name, generation), None)

    async def close(self) -> None:
        """See ``SqliteReadModels.close``; the files stay open for the next process."""
        self._open.clear()
        await super().close()


def check_rows(trace: Trace, invariants: InvariantChecker, files: Mapping[str, SqliteFile]) -> None:
    """Check that each event was applied once: certainly if its job is completed."""
    state = invariants.projections[NAME]
    found = _rows(files[generation_table(NAME, state.live)])
    completed = {name for name, _token in invariants.completed}
    at_least: Counter[tuple[str, str]] = Counter()
    at_most: Counter[tuple[str, str]] = Counter()
    rebuilt = _is_rebuilt(state)
    for event in invariants.events.values():
        job = event.tenant, job_id(queue_of(NAME, state.live), event.id)
        has_job, book = job in invariants.event_jobs, (event.tenant, event.entity_id)
        at_least[book] += job in completed or (rebuilt and not has_job)
        at_most[book] += has_job or rebuilt
    trace.note("projection.rows", "checker", str(sorted(found.items())))
    for book in at_most.keys() | found.keys():
        if not at_least[book] <= found[book] <= at_most[book]:
            wanted = f"{at_least[book]} to {at_most[book]}"
            trace.broken(f"{found[book]} events of {book} are in the projection, not {wanted}")


def _rows(file: SqliteFile) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for row in file.select(RowQuery(limit=1_000)):
        count = row["events"]
        assert isinstance(count, int)
        found[str(row["tenant"]), str(row["book"])] = count
    return found


def _is_rebuilt(state: ProjectionState) -> bool:
    """Whether a rebuild has filled the live generation with all events that there were."""
    return any(
        one.phase is RebuildPhase.DONE and one.generation == state.live for one in state.past
    )
