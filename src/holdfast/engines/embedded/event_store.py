"""The contract of an event store, and the one of the memory engine.

It records every appended event, in the order of positions. An event never changes and never goes,
so a page by position is the same whenever it is read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Protocol

from holdfast.engines.dump.format import BLOCK_RECORDS, DumpedEvent, DumpRecord
from holdfast.model.access import Caller
from holdfast.model.event import Event
from holdfast.model.event_search import EventFilter

EventName = tuple[str, str]
"""The tenant and the id of an event."""


class EventStore(Protocol):
    """Keeps events. Queries treat what is out of the caller's reach as missing."""

    def record(self, event: Event) -> None:
        """Take an event, to be stored soon; its position is above all others."""

    def known(self, names: Collection[EventName]) -> Mapping[EventName, Event]:
        """Return those of these events that exist. Fast enough for the event loop."""

    async def room(self) -> None:
        """Return when not too many bytes wait to be stored."""

    async def flush(self) -> None:
        """Return when everything recorded so far can be found."""

    async def get(self, tenant: str, ids: Sequence[str]) -> list[Event | None]:
        """Return these events, in order, whatever their scope; also those not stored yet."""

    async def find(
        self, wanted: EventFilter, caller: Caller, after: int | None, limit: int, *, newest: bool
    ) -> list[Event]:
        """Return the first events after this position, or before it with ``newest``."""

    async def count(self, wanted: EventFilter, caller: Caller) -> int:
        """Count the events that match."""

    def dump(self) -> AsyncIterator[Sequence[DumpRecord]]:
        """Return all events as of this call, by position."""

    async def close(self) -> None:
        """Store everything recorded and release the store."""


def matching(
    events: Sequence[Event],
    wanted: EventFilter,
    caller: Caller,
    after: int | None,
    limit: int,
    *,
    newest: bool,
) -> list[Event]:
    """Return the first of these events, which are by position, that match; see ``find``."""
    found: list[Event] = []
    for event in reversed(events) if newest else events:
        if len(found) == limit:
            break
        reached = after is None or (event.position < after if newest else event.position > after)
        if reached and wanted.matches(event) and caller.can_access(event.tenant, event.scope):
            found.append(event)
    return found


class MemoryEvents:
    """Events in a list: every query scans it."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._by_name: dict[EventName, Event] = {}

    def record(self, event: Event) -> None:
        """See ``EventStore.record``."""
        self._events.append(event)
        self._by_name[event.tenant, event.id] = event

    def known(self, names: Collection[EventName]) -> Mapping[EventName, Event]:
        """See ``EventStore.known``."""
        return {name: self._by_name[name] for name in names if name in self._by_name}

    async def room(self) -> None:
        """Do nothing: there is always room."""

    async def flush(self) -> None:
        """Do nothing: everything is found at once."""

    async def get(self, tenant: str, ids: Sequence[str]) -> list[Event | None]:
        """See ``EventStore.get``."""
        return [self._by_name.get((tenant, event_id)) for event_id in ids]

    async def find(
        self, wanted: EventFilter, caller: Caller, after: int | None, limit: int, *, newest: bool
    ) -> list[Event]:
        """See ``EventStore.find``."""
        return matching(self._events, wanted, caller, after, limit, newest=newest)

    async def count(self, wanted: EventFilter, caller: Caller) -> int:
        """See ``EventStore.count``."""
        found = matching(self._events, wanted, caller, None, len(self._events), newest=False)
        return len(found)

    def dump(self) -> AsyncIterator[Sequence[DumpRecord]]:
        """See ``EventStore.dump``."""
        return in_batches(list(self._events))

    async def close(self) -> None:
        """Do nothing."""


async def in_batches(events: Sequence[Event]) -> AsyncIterator[Sequence[DumpRecord]]:
    """Yield these events as records of a dump."""
    for start in range(0, len(events), BLOCK_RECORDS):
        yield [DumpedEvent(event) for event in events[start : start + BLOCK_RECORDS]]
