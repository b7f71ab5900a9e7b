"""Reading the chronicle: lists, one entry, counts, full text; within the reach of the caller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec.structs import replace

from holdfast.engines.contract import Engine
from holdfast.engines.read_models.query import MAX_ROWS, Aggregate, Comparison, Condition, RowQuery
from holdfast.model.access import DEFAULT_TENANT, SYSTEM, Caller
from holdfast.model.catalog import Catalog
from holdfast.model.errors import EventNotFound, InvalidInput
from holdfast.model.event import check_event_id
from holdfast.model.job import MICROSECONDS, State
from holdfast.model.plural import count_of
from holdfast.model.projection import ProjectionState, RebuildPhase, queue_of
from holdfast.model.search import Filter
from holdfast.model.subscription import job_id
from holdfast.projections.chronicle import CHRONICLE, ENTRIES

from .chronicle_views import (
    EVERY_ENTRY,
    ChronicleFilter,
    CountView,
    EntryPage,
    EntryView,
    Place,
    place_after,
)

StatsBy = Literal["day", "actor", "entity", "type"]
_GROUPS: Mapping[StatsBy, Aggregate] = {
    "day": Aggregate(day_of="occurred_at", limit=MAX_ROWS),
    "actor": Aggregate(by=("actor_type", "actor_id")),
    "entity": Aggregate(by=("entity_type", "entity_id")),
    "type": Aggregate(by=("event_type",)),
}
_ORDER = ("occurred_at", "id")
_DAY_US = 86_400 * MICROSECONDS
_CAP = 1_000
_NEVER = "no worker has entered anything yet: start `holdfast run`, or `holdfast rebuild chronicle`"


class ChronicleOperations:
    """What people ask the chronicle; sensitive values are hidden by the catalog."""

    def __init__(self, engine: Engine, catalog: Catalog | None = None) -> None:
        self._engine = engine
        self._catalog = catalog or Catalog()

    async def page(
        self,
        wanted: ChronicleFilter = EVERY_ENTRY,
        *,
        cursor: str = "",
        limit: int = 50,
        newest: bool = True,
        reveal: bool = False,
        caller: Caller = SYSTEM,
    ) -> EntryPage:
        """Return a page by (occurred_at, id), the newest first, with cursors both ways."""
        place = Place.of(cursor, wanted, newest=newest)
        back = place is not None and place.back
        state = await self._state()
        if state is None:
            return EntryPage([], notices=[_NEVER])
        query = RowQuery(
            conditions=wanted.conditions(caller),
            search=wanted.search,
            order=_ORDER,
            descending=newest != back,
            after=() if place is None else place.key,
            limit=min(limit, MAX_ROWS - 1) + 1,
        )
        rows = await self._engine.read_models.select(ENTRIES, state.live, query)
        more, rows = len(rows) > limit, rows[:limit]
        entries = [EntryView.of(row, self._catalog, reveal=reveal) for row in rows]
        if back:
            entries.reverse()
        after = before = ""
        if entries and (more or back):
            after = place_after(entries[-1]).cursor(wanted, newest=newest)
        if entries and (more if back else place is not None):
            before = place_after(entries[0], back=True).cursor(wanted, newest=newest)
        return EntryPage(entries, after, before, await self._notices(state))

    async def show(
        self,
        event_id: str,
        tenant: str = DEFAULT_TENANT,
        *,
        reveal: bool = False,
        caller: Caller = SYSTEM,
    ) -> EntryView:
        """Return the entry of an event.

        Raise ``EventNotFound``, or ``InvalidInput`` saying why an event has no entry yet.
        """
        name = check_event_id(event_id)
        state = await self._state()
        wanted = ChronicleFilter(tenant=tenant).conditions(caller)
        query = RowQuery(conditions=(*wanted, Condition("id", Comparison.EQUAL, name)), limit=1)
        rows = []
        if state is not None:
            rows = await self._engine.read_models.select(ENTRIES, state.live, query)
        if rows:
            return EntryView.of(rows[0], self._catalog, reveal=reveal)
        [event] = await self._engine.get_events([name], tenant=tenant, caller=caller)
        if event is None:
            raise EventNotFound(event_id)
        raise InvalidInput(
            "event", f"{name} has no entry yet: {await self._why(state, event.id, tenant)}"
        )

    async def _why(self, state: ProjectionState | None, event_id: str, tenant: str) -> str:
        """Return why an event is not in the chronicle."""
        if state is None:
            return _NEVER
        if state.incomplete or state.rebuild is not None:
            return "the chronicle is being rebuilt"
        job = job_id(queue_of(CHRONICLE, state.live), event_id)
        [found] = await self._engine.get([job], tenant=tenant)
        if found is None:
            return "it came before the chronicle began: `holdfast rebuild chronicle` enters it"
        if found.state is State.DEAD:
            return f"entering it failed; see `holdfast jobs show {job}`"
        return f"it is {found.state.value}; see `holdfast jobs explain {job}`"

    async def stats(
        self,
        by: StatsBy,
        wanted: ChronicleFilter = EVERY_ENTRY,
        *,
        limit: int = 30,
        caller: Caller = SYSTEM,
    ) -> list[CountView]:
        """Count entries: of the last days, or the actors, entities or types with the most."""
        state = await self._state()
        if state is None:
            return []
        groups = _GROUPS[by]
        if by == "day" and wanted.occurred_from_us is None:
            until_us = wanted.occurred_to_us or await self._engine.now_us()
            since_us = max(0, until_us - (MAX_ROWS - 2) * _DAY_US)
            wanted = replace(wanted, occurred_from_us=since_us)
        elif by != "day":
            groups = replace(groups, limit=min(limit, MAX_ROWS))
        query = RowQuery(conditions=wanted.conditions(caller), search=wanted.search)
        rows = await self._engine.read_models.aggregate(ENTRIES, state.live, query, groups)
        found = [CountView(_name(row), int(str(row["count"]))) for row in rows]
        return found[-limit:] if by == "day" else found

    async def notices(self) -> list[str]:
        """Return what a reader has to know: whether entries are missing, and why."""
        state = await self._state()
        return [_NEVER] if state is None else await self._notices(state)

    async def _notices(self, state: ProjectionState) -> list[str]:
        found: list[str] = []
        rebuild, queue = state.rebuild, queue_of(CHRONICLE, state.live)
        if state.incomplete and rebuild is not None and rebuild.phase is not RebuildPhase.FAILED:
            done = f"{rebuild.filled + rebuild.failed:,} of {rebuild.total:,} events"
            found.append(f"the chronicle is incomplete: it is being rebuilt in place ({done})")
        elif state.incomplete:
            found.append("the chronicle is incomplete: `holdfast rebuild chronicle` completes it")
        for states, text in (
            ((State.PENDING, State.IN_FLIGHT), "not entered yet"),
            ((State.DEAD,), f"failed: see `holdfast dead list --queue {queue}`"),
        ):
            count = await self._engine.count(Filter(queues=(queue,), states=states), cap=_CAP)
            if count.value:
                least = "more than " if count.capped else ""
                found.append(f"{least}{count_of(count.value, 'event')} {text}")
        return found

    async def _state(self) -> ProjectionState | None:
        """Return what is stored of the chronicle; None while readers have no table."""
        state = (await self._engine.projections()).get(CHRONICLE)
        if state is None or state.live not in await self._engine.read_models.generations(ENTRIES):
            return None
        return state


def _name(row: Mapping[str, object]) -> str:
    return ":".join(str(value) for name, value in row.items() if name != "count")
