"""Records events on the event loop and feeds them to the SQLite store in the background."""

from __future__ import annotations

import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial

from holdfast.engines.dump.format import DumpedEvent, DumpRecord
from holdfast.engines.embedded.event_store import EventName
from holdfast.engines.journal.background_feed import BackgroundFeed
from holdfast.engines.structured_log import StructuredLog
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.errors import DurabilityLost, HoldfastError
from holdfast.model.event import Event
from holdfast.model.event_search import EVERY_EVENT, EventFilter

from .database import translated
from .store import SqliteEvents

log = StructuredLog("holdfast.journal")

MAX_UNFED_BYTES = 64 << 20
_FEED_FROM_BYTES = 4 << 20
_EVENT_BYTES = 1_000
"""About what an event takes besides its bodies."""
_NAMES_PER_STEP = 500
_NAMES_PER_SLICE = 200


class EventFeed(BackgroundFeed[Event]):
    """An ``EventStore``; see ``BackgroundFeed``. ``max_bytes`` is how much may wait."""

    def __init__(
        self,
        store: SqliteEvents,
        *,
        durable_seq: Callable[[], Awaitable[int]],
        inline: bool = False,
        max_bytes: int = MAX_UNFED_BYTES,
        threads: Callable[[int, str], Executor] = ThreadPoolExecutor,
    ) -> None:
        super().__init__(
            "holdfast-events",
            durable_seq=durable_seq,
            most=max_bytes,
            feed_from=_FEED_FROM_BYTES,
            inline=inline,
            threads=threads,
        )
        self.store = store
        self._waiting: dict[EventName, Event] = {}
        """The events that are not stored yet, by name."""
        self._last_position = store.checkpoint
        self._filtered = store.there
        """Whether the filter of names is filled, or is being filled."""
        if store.there:
            self._fill_known()

    def record(self, event: Event) -> None:
        """See ``EventStore.record``."""
        self._waiting[event.tenant, event.id] = event
        self._last_position = event.position
        self._take(event)

    @property
    def checkpoint(self) -> int:
        """All events up to this seq are in the store."""
        return self.store.checkpoint

    async def cover(self) -> int:
        """Store all events recorded so far; return up to where they are complete."""
        if not self._unfed:
            return self._last_position  # the file need not be written, or even exist
        return await super().cover()

    # --- read --------------------------------------------------------------------------------

    def known(self, names: Collection[EventName]) -> Mapping[EventName, Event]:
        """See ``EventStore.known``."""
        waiting, may_hold = self._waiting, self._known.may_hold
        found: dict[EventName, Event] = {}
        stored: list[EventName] = []
        for name in names:
            if (event := waiting.get(name)) is not None:
                found[name] = event
            elif may_hold(*name):
                stored.append(name)
        if stored:
            found |= {(event.tenant, event.id): event for event in self.store.known(stored)}
        return found

    async def get(self, tenant: str, ids: Sequence[str]) -> list[Event | None]:
        """See ``EventStore.get``."""
        names = [(tenant, event_id) for event_id in ids]
        found = {name: event for name in names if (event := self._waiting.get(name)) is not None}
        if missing := {name for name in names if name not in found}:
            for event in await self._on(self._readers, partial(self.store.get, missing)):
                found[event.tenant, event.id] = event
        return [found.get(name) for name in names]

    async def find(
        self, wanted: EventFilter, caller: Caller, after: int | None, limit: int, *, newest: bool
    ) -> list[Event]:
        """See ``EventStore.find``."""
        look = partial(self.store.find, wanted, caller, after, limit, newest=newest)
        return await self._on(self._readers, look)

    async def count(self, wanted: EventFilter, caller: Caller) -> int:
        """See ``EventStore.count``."""
        return await self._on(self._readers, partial(self.store.count, wanted, caller))

    def dump(self) -> AsyncIterator[Sequence[DumpRecord]]:
        """See ``EventStore.dump``. Rows are only ever added: a position says what is in it."""
        return self._dump(self._last_position)

    async def _dump(self, until: int) -> AsyncIterator[Sequence[DumpRecord]]:
        await self.flush()
        pages = self.store.pages(until, SYSTEM)
        while page := await self._on(self._readers, lambda: next(pages, [])):
            yield [DumpedEvent(event) for event in page]

    # --- feed --------------------------------------------------------------------------------

    def _file(self) -> str:
        return self.store.file

    def _translated(self, error: Exception) -> HoldfastError:
        return translated(error, self.store.file)

    def _seq_of(self, item: Event) -> int:
        return item.position

    def _weight_of(self, item: Event) -> int:
        """Return about how many bytes it takes while it is in memory."""
        bodies = len(item.payload) + len(item.before or b"") + len(item.after or b"")
        return _EVENT_BYTES + bodies + len(item.diff or b"")

    def _store(self, batch: Sequence[Event], checkpoint: int) -> None:
        self.store.feed(batch, checkpoint)
        for start in range(0, len(batch), _NAMES_PER_SLICE):
            if start:
                time.sleep(0)  # lets the event loop have the interpreter lock
            some = batch[start : start + _NAMES_PER_SLICE]
            self._known.add_all([(event.tenant, event.id) for event in some])

    def _after_storing(self, batch: Sequence[Event]) -> None:
        for event in batch:
            self._waiting.pop((event.tenant, event.id), None)
        if not self._filtered:
            self._filtered = True
            self._fill_known()

    def _fill_steps(self) -> Iterator[None]:
        self._known.begin(self.store.count(EVERY_EVENT, SYSTEM))
        after: int | None = 0
        while after is not None:
            names, after = self.store.names(after, _NAMES_PER_STEP)
            self._known.fill(names)
            yield
        self._known.finish()

    def _close_store(self) -> None:
        self.store.close()

    def _log_failure(self, failure: HoldfastError) -> None:
        if not isinstance(failure, DurabilityLost):
            log.emit("events.failed", unfed=self.unfed, error=failure)

    def _log_recovery(self) -> None:
        log.emit("events.recovered", file=self.store.file)

    def _log_unfiltered(self, error: HoldfastError) -> None:
        log.emit("events.unfiltered", error=error)
