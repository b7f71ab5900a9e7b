"""The door to the event log: events are checked by the catalog before an engine gets them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from holdfast.engines.contract import Engine
from holdfast.engines.event_contract import EventEngine
from holdfast.model.access import DEFAULT_TENANT, SYSTEM, Caller
from holdfast.model.catalog import Catalog
from holdfast.model.errors import EventInvalid, EventNotFound, HoldfastError, InvalidInput
from holdfast.model.event import (
    MAX_APPEND,
    USER_ACTOR,
    Event,
    EventReceipt,
    NewEvent,
    check_event_id,
)
from holdfast.model.event_schema import CHANGE_FIELDS, fields_of
from holdfast.model.event_search import EVERY_EVENT, EventFilter
from holdfast.model.event_type import data_of
from holdfast.model.payload_paths import ROOT, Assignment, NoSuchPath, assign

from .attribution import MAX_NAMED_IDS, Author, entry_of
from .event_inputs import converted_input, derived_id, new_event_of
from .event_views import EventPageView, EventView

STAMPED = (
    "actor_user_id",
    "actor_type",
    "actor_id",
    "actor_name",
    "tenant",
    "scope",
    "request_id",
    "device",
    "client",
    "ip",
    "correlation_id",
    "causation_id",
    "trace_id",
)
"""What comes from the caller, never from the data."""


def new_event(
    catalog: Catalog, given: object, stamps: Callable[[], Mapping[str, object]]
) -> NewEvent:
    """Return the event that is given, checked by the catalog.

    It is an object of a declared class, a mapping in the words of the columns, or a ``NewEvent``,
    which has its own envelope; ``stamps`` returns that of the others. In a mapping, who, where and
    for which request are refused: these come with the call, or from its context.
    """
    if isinstance(given, NewEvent):
        return catalog.check(given)
    if not isinstance(given, Mapping):
        return catalog.new_event(given, stamps())
    name = str(given.get("event_type", ""))
    for field in STAMPED:
        if field in given:
            problem = f"comes from the caller, not from the data: pass {_argument(field)}="
            raise EventInvalid(name, field, problem)
    event_type = catalog.type_named(name)
    stamped = stamps()
    named = {**given, "actor_type": stamped["actor_type"], "actor_id": stamped["actor_id"]}
    new = new_event_of(converted_input(named), catalog)
    return event_type.check(replace(new, **stamped))


def check_count(count: int, *, atomic: bool) -> None:
    """Raise ``InvalidInput`` if these are too many for one commit, and it must be one."""
    if atomic and count > MAX_APPEND:
        raise InvalidInput(
            "events",
            f"{count:,} events, and one commit takes {MAX_APPEND:,}: append fewer, or give "
            "atomic=False, which stores them in several commits",
        )


def batches(events: Sequence[NewEvent]) -> Iterator[Sequence[NewEvent]]:
    """Return the events in parts that one commit takes."""
    for start in range(0, len(events), MAX_APPEND):
        yield events[start : start + MAX_APPEND]


async def append_all(engine: EventEngine, events: Sequence[NewEvent]) -> list[EventReceipt]:
    """Append these events, ``MAX_APPEND`` in one commit; an error says how many were stored."""
    receipts: list[EventReceipt] = []
    for some in batches(events):
        try:
            receipts += await engine.append(some)
        except HoldfastError as error:
            if receipts:
                stored = f"the first {len(receipts):,} of {len(events):,} events were stored"
                error.add_note(stored)
            raise
    return receipts


class StoredCheck(msgspec.Struct, frozen=True):
    """How many stored events were read, and which could not be."""

    count: int
    problems: list[str]


class EventOperations:
    """What people do with events: append them, look at them, correct one.

    Of other tenants and scopes than those of the ``caller`` nothing is stored and nothing found.
    """

    def __init__(self, engine: Engine, catalog: Catalog, caller: Caller = SYSTEM) -> None:
        self._engine = engine
        self._catalog = catalog
        self._caller = caller

    async def append(self, events: Sequence[NewEvent]) -> list[EventReceipt]:
        """Append events that were checked: all of them, or none."""
        check_count(len(events), atomic=True)
        return await self._engine.append(events, caller=self._caller)

    async def note_import(self, source: str, who: Author, stored: int, existed: int) -> None:
        """Record in the audit that events of a file were appended, and by whom."""
        changes: dict[str, object] = {"stored": stored, "existed": existed}
        await self._engine.audit([entry_of("event.import", "event", source, who, changes)])

    async def page(
        self,
        wanted: EventFilter = EVERY_EVENT,
        *,
        cursor: str = "",
        limit: int = 100,
        newest: bool = True,
        reveal: bool = False,
    ) -> EventPageView:
        """Return a page of the events that a filter finds, as their current versions."""
        page = await self._engine.find_events(
            wanted, cursor=cursor, limit=limit, newest=newest, caller=self._caller
        )
        views = [EventView.of(event, self._catalog, reveal=reveal) for event in page.events]
        return EventPageView(views, page.cursor)

    async def show(
        self, event_id: str, tenant: str = DEFAULT_TENANT, *, reveal: bool = False
    ) -> EventView:
        """Return one event, or raise ``EventNotFound``."""
        event = await self.stored(event_id, tenant)
        return EventView.of(event, self._catalog, reveal=reveal)

    async def correct(
        self,
        event_id: str,
        changes: tuple[Assignment, ...],
        who: Author,
        tenant: str = DEFAULT_TENANT,
        *,
        actor_type: str = USER_ACTOR,
    ) -> EventReceipt:
        """Append an event that supersedes another one: the same, with some fields changed.

        The stored one stays as it is. The new one occurred when that did; its actor is who
        corrects it, and its reason is why. The same correction again is recognised. Raise
        ``EventNotFound``, ``EventInvalid``, or ``InvalidInput`` if it was corrected before.
        """
        stored = await self.stored(event_id, tenant)
        new = self.corrected(stored, changes, who, actor_type)
        await self._check_not_superseded(stored, new)
        entry = entry_of(
            "event.correct",
            "event",
            stored.id,
            who,
            {"correction": new.id, "fields": [one.path for one in changes]},
            tenant,
        )
        [receipt] = await self._engine.append([new], caller=self._caller)
        await self._engine.audit([entry])
        return receipt

    async def check_stored(self) -> StoredCheck:
        """Read every stored event by the catalog; name up to ``MAX_NAMED_IDS`` that cannot be."""
        count, cursor = 0, ""
        problems: list[str] = []
        while True:
            page = await self._engine.find_events(
                cursor=cursor, limit=MAX_APPEND, caller=self._caller
            )
            for event in page.events:
                count += 1
                try:
                    self._catalog.value_of(event)
                except InvalidInput as error:
                    if len(problems) < MAX_NAMED_IDS:
                        problems.append(f"{event.id}: {error}")
            cursor = page.cursor
            if not cursor:
                return StoredCheck(count, problems)

    def corrected(
        self,
        stored: Event,
        changes: tuple[Assignment, ...],
        who: Author,
        actor_type: str = USER_ACTOR,
    ) -> NewEvent:
        """Return the event that supersedes this one; raise ``InvalidInput`` if it is not valid."""
        event_type = self._catalog.type_named(stored.event_type)
        now = self._catalog.upcast(stored)
        before = data_of(fields_of(now.payload), now)
        assignments = tuple(replace(one, path=_path_in_data(one.path)) for one in changes)
        try:
            data = fields_of(assign(msgspec.json.encode(before), assignments))
        except NoSuchPath as error:
            raise InvalidInput(str(error), "the event has nothing there") from None
        if data == before:
            raise InvalidInput("changes", "this is what the event says already")
        parts = {name: data.pop(name, None) for name in CHANGE_FIELDS}
        make: Callable[..., NewEvent] = NewEvent
        new = make(
            event_type=now.event_type,
            version=event_type.version,
            entity_type=now.entity_type,
            entity_id=now.entity_id,
            actor_type=actor_type,
            actor_id=who.by,
            tenant=now.tenant,
            scope=now.scope,
            key=now.key,
            payload=data,
            occurred_at_us=now.occurred_at_us,
            reason=who.why,
            correlation_id=now.correlation_id,
            causation_id=now.id,
            supersedes=now.id,
            **parts,
        )
        return derived_id(event_type.check(new))

    async def stored(self, event_id: str, tenant: str = DEFAULT_TENANT) -> Event:
        """Return one event as it is stored, or raise ``EventNotFound``."""
        [found] = await self._engine.get_events(
            [check_event_id(event_id)], tenant=tenant, caller=self._caller
        )
        if found is None:
            raise EventNotFound(event_id)
        return found

    async def _check_not_superseded(self, stored: Event, new: NewEvent) -> None:
        """Raise ``InvalidInput`` if another correction of this event is there."""
        wanted = EventFilter(tenant=stored.tenant, key=stored.key)
        cursor = ""
        while True:
            page = await self._engine.find_events(
                wanted, cursor=cursor, limit=MAX_APPEND, caller=self._caller
            )
            for event in page.events:
                if event.supersedes == stored.id and event.id != new.id:
                    problem = f"{stored.id} was corrected by {event.id}: correct that one"
                    raise InvalidInput("event", problem)
            cursor = page.cursor
            if not cursor:
                return


def _argument(field: str) -> str:
    return "actor" if field.startswith("actor") else field


def _path_in_data(path: str) -> str:
    """Return the path below the data: ``after.title`` stands beside what is in the payload."""
    return f"{ROOT}.{path}" if path.partition(".")[0] in CHANGE_FIELDS else path
