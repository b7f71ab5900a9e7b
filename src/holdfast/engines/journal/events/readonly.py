"""The events of a journal that no process owns: those on disk, and the later ones of the log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence

from holdfast.engines.dump.format import DumpedEvent, DumpRecord
from holdfast.engines.embedded.event_store import EventName, in_batches, matching
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.errors import EngineClosed
from holdfast.model.event import Event
from holdfast.model.event_search import EventFilter

from .store import SqliteEvents


class ReadonlyEvents:
    """An ``EventStore`` that changes nothing; see there for its methods."""

    def __init__(self, store: SqliteEvents, late: Sequence[Event]) -> None:
        """Take the store, and the events after its checkpoint."""
        self._store = store
        self._late = late
        self._late_by_name = {(event.tenant, event.id): event for event in late}

    def record(self, event: Event) -> None:
        """Raise ``EngineClosed``."""
        raise EngineClosed(f"event {event.id} cannot be stored: this store was opened to be read")

    def known(self, names: Collection[EventName]) -> Mapping[EventName, Event]:
        """See ``EventStore.known``."""
        stored = {(event.tenant, event.id): event for event in self._store.known(names)}
        late = self._late_by_name
        return stored | {name: late[name] for name in names if name in late}

    async def room(self) -> None:
        """Do nothing: nothing is stored."""

    async def flush(self) -> None:
        """Do nothing: nothing is stored."""

    async def get(self, tenant: str, ids: Sequence[str]) -> list[Event | None]:
        """See ``EventStore.get``."""
        found = self.known([(tenant, event_id) for event_id in ids])
        return [found.get((tenant, event_id)) for event_id in ids]

    async def find(
        self, wanted: EventFilter, caller: Caller, after: int | None, limit: int, *, newest: bool
    ) -> list[Event]:
        """See ``EventStore.find``; the events of the log are later than all others."""
        late = matching(self._late, wanted, caller, after, limit, newest=newest)
        if newest:
            rest = limit - len(late)
            more = self._store.find(wanted, caller, after, rest, newest=True) if rest else []
            return [*late, *more]
        stored = self._store.find(wanted, caller, after, limit, newest=False)
        return [*stored, *late][:limit]

    async def count(self, wanted: EventFilter, caller: Caller) -> int:
        """See ``EventStore.count``."""
        most = len(self._late)
        late = matching(self._late, wanted, caller, None, most, newest=False)
        return self._store.count(wanted, caller) + len(late)

    async def dump(self) -> AsyncIterator[Sequence[DumpRecord]]:
        """See ``EventStore.dump``."""
        for page in self._store.pages(self._store.checkpoint, SYSTEM):
            yield [DumpedEvent(event) for event in page]
        async for batch in in_batches(self._late):
            yield batch

    async def close(self) -> None:
        """Close the file."""
        self._store.close()
