"""Appending events from an application: by its catalog, and with who acts for which request."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import TypedDict
from weakref import WeakSet

from .binding import Binding
from .engines.contract import Engine
from .event_handle import EventHandle, event_handle
from .model.actor import Actor, Envelope
from .model.catalog import Catalog
from .model.errors import InvalidInput
from .model.event import EventReceipt, Json, NewEvent
from .operations.catalog_files import read_catalog
from .operations.event_inputs import placed, time_us
from .operations.events import check_count, new_event
from .projections.generations import Generations
from .projections.registry import declared
from .settings import Settings
from .worker.registry import Registry


class CallerOptions(TypedDict, total=False):
    """Who acts, where, and for which request; what is left out comes from ``acting_as``."""

    actor: Actor | str
    """Who acts; a text is the id of a user."""
    tenant: str
    scope: str
    """A path inside the tenant, such as ``library:42/book:7``."""
    request_id: str
    device: str
    client: str
    ip: str
    correlation_id: str
    causation_id: str
    trace_id: str


class EventOptions(CallerOptions, total=False):
    """What one event says beside its data."""

    event_id: str
    """A UUID: appending it again does nothing. By default a new one."""
    entity_id: str
    """The entity that it is about, if no field of the event says that."""
    key: str
    """Events of one key are projected in order; by default that of the catalog."""
    occurred_at: datetime
    """When it happened; by default now."""
    reason: str
    before: Json
    after: Json
    diff: Json
    supersedes: str
    """The id of the event that this one corrects."""


_ACTING: ContextVar[Envelope] = ContextVar("holdfast_acting", default=Envelope())  # noqa: B039
_NAMES = {"event_id": "id", "occurred_at": "occurred_at_us"}


@contextmanager
def acting(actor: Actor, given: CallerOptions) -> Iterator[None]:
    """Stamp this actor and these options on events that are appended inside."""
    envelope = _envelope({**given, "actor": actor}).over(_ACTING.get().given())
    token = _ACTING.set(envelope)
    try:
        yield
    finally:
        _ACTING.reset(token)


class EventAppender:
    """Checks events by the catalog of an application, and appends them to its store."""

    def __init__(
        self, registry: Registry, settings: Callable[[], Settings], binding: Binding
    ) -> None:
        self._registry = registry
        self._settings = settings
        self._binding = binding
        self._files_read = False
        self._subscribed: WeakSet[Engine] = WeakSet()

    @property
    def catalog(self) -> Catalog:
        """The event types of the application and of its catalog files, read when first used."""
        if not self._files_read:
            found = read_catalog(self._settings().catalog).checked()
            for event_type in found.types.values():
                self._registry.catalog.add(event_type)
            self._files_read = True
        return self._registry.catalog

    def new_event(self, event: object, options: EventOptions) -> NewEvent:
        """Return the event with its envelope, checked; nothing is stored."""
        envelope = _envelope(options).over(_ACTING.get().given())
        return new_event(self.catalog, event, envelope.stamps)

    def new_events(
        self, events: Iterable[object], options: CallerOptions, *, atomic: bool
    ) -> list[NewEvent]:
        """Return these events with their envelopes, checked; an error names the place."""
        many = list(events)
        check_count(len(many), atomic=atomic)
        envelope = _envelope(options).over(_ACTING.get().given())
        catalog, stamps = self.catalog, functools.cache(envelope.stamps)
        return placed(many, lambda one: new_event(catalog, one, stamps))

    async def _subscribe(self, engine: Engine) -> None:
        """Subscribe the declared projections, so that no event comes before them."""
        if engine not in self._subscribed:
            for projection in declared(self._registry, self._settings()).values():
                await Generations(engine).subscribe(projection)
            self._subscribed.add(engine)

    async def append(
        self, events: Sequence[NewEvent], connection: object = None
    ) -> list[EventHandle]:
        """Append checked events; with a connection of the caller's, in its transaction."""
        await self._binding.call(self._subscribe)
        return self._handles(events, await self._binding.append(events, connection))

    def append_sync(
        self, events: Sequence[NewEvent], connection: object = None
    ) -> list[EventHandle]:
        """See ``append``; for synchronous code."""
        self._binding.call_sync(self._subscribe)
        return self._handles(events, self._binding.append_sync(events, connection))

    def _handles(
        self, events: Sequence[NewEvent], receipts: Sequence[EventReceipt]
    ) -> list[EventHandle]:
        return [
            event_handle(receipt, event.tenant, self._binding)
            for event, receipt in zip(events, receipts, strict=True)
        ]


def _envelope(options: Mapping[str, object]) -> Envelope:
    given: dict[str, object] = {_NAMES.get(name, name): one for name, one in options.items()}
    unknown = given.keys() - set(Envelope.__struct_fields__)
    if unknown:
        raise InvalidInput(min(unknown), "is not an option of an event")
    actor, moment = options.get("actor"), options.get("occurred_at")
    if actor is not None:
        given["actor"] = Actor.of(actor)
    if moment is not None:
        if not isinstance(moment, datetime) or moment.tzinfo is None:
            problem = f"{moment} is not a datetime with a time zone, such as UTC"
            raise InvalidInput("occurred_at", problem)
        given["occurred_at_us"] = time_us(moment)
    make: Callable[..., Envelope] = Envelope
    return make(**given)
