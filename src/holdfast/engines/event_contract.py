"""The part of the engine contract that is about events and subscriptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from holdfast.model.access import DEFAULT_TENANT, SYSTEM, Caller
from holdfast.model.audit import Attribution
from holdfast.model.event import Event, EventReceipt, NewEvent
from holdfast.model.event_search import EVERY_EVENT, EventFilter, EventPage
from holdfast.model.record import Record
from holdfast.model.subscription import Subscription


class EventEngine(Protocol):
    """The verbs of the event log."""

    async def append(
        self,
        events: Sequence[NewEvent],
        *,
        caller: Caller = SYSTEM,
        once: Record | None = None,
    ) -> list[EventReceipt]:
        """Store these events and a job for each subscription that wants one, all or nothing.

        The jobs come in the order of the events, and those of one event in the order of the names
        of its subscriptions.

        An event that is there already under its id is left as it is, and makes no jobs again.
        ``once`` is a record that is committed with those that are new: see ``Engine.enqueue``.
        Raise ``EventConflict`` if that id has another content, ``InvalidInput``,
        ``AccessDenied``, ``TooLarge`` or ``StorageFull``; then nothing was stored. At most
        ``MAX_APPEND`` events.
        """

    async def get_events(
        self, ids: Sequence[str], *, tenant: str = DEFAULT_TENANT, caller: Caller = SYSTEM
    ) -> list[Event | None]:
        """Return these events, in order; None for one that does not exist or is out of reach."""

    async def find_events(
        self,
        wanted: EventFilter = EVERY_EVENT,
        *,
        cursor: str = "",
        limit: int = 100,
        newest: bool = False,
        caller: Caller = SYSTEM,
    ) -> EventPage:
        """Return a page of events by position, the lowest first, or with ``newest`` the highest.

        No event comes twice. On a store that several processes write to, an event whose commit
        comes late may have a lower position than the cursor: a reader that must miss none is a
        subscription.
        """

    async def count_events(
        self, wanted: EventFilter = EVERY_EVENT, *, caller: Caller = SYSTEM
    ) -> int:
        """Count the events that a filter finds."""

    async def subscriptions(self) -> Mapping[str, Subscription]:
        """Return the subscriptions, by name and in the order of their names."""

    async def set_subscription(
        self,
        name: str,
        subscription: Subscription | None,
        attribution: Attribution,
        *,
        caller: Caller = SYSTEM,
    ) -> Subscription | None:
        """Store a subscription, or change it; None removes it. Return it as it is now.

        It gets a new ``since_version`` when it is new or wants other event types: only events
        appended from then on make jobs. Jobs that exist already stay, also of one that is removed.
        Raise ``InvalidInput``; ``AccessDenied`` if the reach of the caller is limited.
        """
