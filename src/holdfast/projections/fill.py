"""Fills a generation from the stored events, a chunk at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from holdfast.engines.contract import Engine
from holdfast.engines.read_models.contract import Filled, FillPosition, JobName, RowWriter
from holdfast.model.errors import ChangedMeanwhile, StorageError, Unavailable
from holdfast.model.event import Event
from holdfast.model.event_search import EventFilter
from holdfast.model.job import UNFINISHED, State
from holdfast.model.subscription import Subscription, job_id, job_of

from .apply import ReadEvent
from .declaration import Projection

CHUNK = 1_000
RUNS_AGAIN = UNFINISHED | {State.DEAD, State.ARCHIVED}
"""The states of jobs that may still run: dead letters when they are replayed, archived ones when
they are restored first."""
END = "end"
"""The cursor of a fill that has reached the last event."""
_NOT_ITS_FAULT = (StorageError, Unavailable, ChangedMeanwhile)
"""Errors that say nothing about an event: the step is taken again."""


class FillStopped(Exception):
    """An event cannot be applied, and more of them failed than is allowed."""

    def __init__(self, event: Event, error: Exception) -> None:
        super().__init__(
            f"{event.event_type} {event.id} of {event.key}: {type(error).__name__}: {error}"
        )


@dataclass(frozen=True)
class Fill:
    """The fill of one generation: which events, and what becomes of those that fail."""

    engine: Engine
    projection: Projection
    generation: int
    rebuild: str
    subscription: Subscription
    wanted: EventFilter
    max_errors: int
    in_place: bool
    """Whether its events may have jobs that wait: then these are covered by it."""
    read: ReadEvent
    emitted: str = ""
    """The last rebuild that emitted jobs: events may have one of that, too."""

    async def step(self) -> FillPosition:
        """Apply the next events; return how far it is. Raise ``FillStopped``."""
        store, table = self.engine.read_models, self.projection.table
        position = await store.position(table, self.generation)
        if position is not None and position.rebuild != self.rebuild:
            raise ChangedMeanwhile("rebuild", self.rebuild)
        here = position or FillPosition(rebuild=self.rebuild)
        if here.cursor == END:
            return here
        page = await self.engine.find_events(self.wanted, cursor=here.cursor, limit=CHUNK)
        waiting = await self._waiting(page.events) if self.in_place else {}
        chunk = _Chunk(self, page.events, waiting, here, page.cursor or END)
        try:
            await store.fill(table, self.generation, chunk.apply, expected=position)
        except _NOT_ITS_FAULT:
            raise
        except Exception:  # noqa: BLE001 - it is found below, or raised again
            await store.fill(table, self.generation, chunk.apply_each, expected=position)
            jobs = [job_of(event, self.subscription) for event in chunk.failed]
            await self.engine.enqueue(jobs, on_duplicate="skip")
        return chunk.position

    async def _waiting(self, events: Sequence[Event]) -> dict[str, JobName]:
        """Return the jobs that wait with these events or died of them, by event id."""
        by_tenant: defaultdict[str, list[str]] = defaultdict(list)
        for event in events:
            by_tenant[event.tenant].append(event.id)
        found: dict[str, JobName] = {}
        for tenant, ids in by_tenant.items():
            for suffix in ("", f":{self.emitted}")[: 2 if self.emitted else 1]:
                names = [job_id(self.subscription.name, event_id) + suffix for event_id in ids]
                jobs = await self.engine.get(names, tenant=tenant)
                for event_id, job in zip(ids, jobs, strict=True):
                    if job is not None and job.state in RUNS_AGAIN:
                        found[event_id] = (tenant, job.id)
        return found


class _Chunk:
    """Some events of a fill, and what came of them."""

    def __init__(
        self,
        fill: Fill,
        events: Sequence[Event],
        waiting: Mapping[str, JobName],
        here: FillPosition,
        cursor: str,
    ) -> None:
        self.position = replace(here, cursor=cursor, filled=here.filled + len(events))
        self.failed: list[Event] = []
        """Those that failed and have no job."""
        self._fill = fill
        self._events = events
        self._waiting = waiting
        self._here = here

    def apply(self, rows: RowWriter) -> Filled:
        """Apply all events together."""
        fill = self._fill
        fill.projection.apply([fill.read(event) for event in self._events], rows)
        return Filled(self.position, self._waiting.values())

    def apply_each(self, rows: RowWriter) -> Filled:
        """Apply each event by itself, without those that fail.

        Raise ``FillStopped`` at one too many. One that has a job is left to that. One without gets
        a job, which will fail as well, and be a dead letter.
        """
        covered = dict(self._waiting)
        self.failed = []
        count = 0
        for event in self._events:
            error = rows.attempt(partial(self._apply_one, event, rows))
            if error is None:
                continue
            count += 1
            if covered.pop(event.id, None) is None:
                self.failed.append(event)
                if self._here.failed + len(self.failed) > self._fill.max_errors:
                    raise FillStopped(event, error)
        self.position = replace(
            self.position,
            filled=self._here.filled + len(self._events) - count,
            failed=self._here.failed + count,
        )
        return Filled(self.position, covered.values())

    def _apply_one(self, event: Event, rows: RowWriter) -> None:
        self._fill.projection.apply([self._fill.read(event)], rows)
