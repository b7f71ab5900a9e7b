"""Finding events: filters and pages."""

from __future__ import annotations

import msgspec

from .event import Event
from .job import Whole


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which events to find; a condition that is empty or None holds for all."""

    ids: tuple[str, ...] = ()
    event_types: tuple[str, ...] = ()
    tenant: str | None = None
    scope: str | None = None
    """Of this scope or below it."""
    key: str | None = None
    entity_type: str | None = None
    entity_id: str | None = None
    actor_type: str | None = None
    actor_id: str | None = None
    request_id: str | None = None
    correlation_id: str | None = None
    occurred_from_us: Whole | None = None
    occurred_to_us: Whole | None = None
    fanout_before: Whole | None = None
    """Given to subscriptions of a version below this one."""

    def matches(self, event: Event) -> bool:
        """Whether this event is found."""
        return (
            (not self.ids or event.id in self.ids)
            and (not self.event_types or event.event_type in self.event_types)
            and (self.scope is None or (event.scope + "/").startswith(self.scope + "/"))
            and (self.occurred_from_us is None or event.occurred_at_us >= self.occurred_from_us)
            and (self.occurred_to_us is None or event.occurred_at_us <= self.occurred_to_us)
            and (self.fanout_before is None or event.fanout_version < self.fanout_before)
            and all(
                wanted == getattr(event, name)
                for name in _EQUAL
                if (wanted := getattr(self, name)) is not None
            )
        )


_EQUAL = (
    "tenant",
    "key",
    "entity_type",
    "entity_id",
    "actor_type",
    "actor_id",
    "request_id",
    "correlation_id",
)

EVERY_EVENT = EventFilter()


class EventPage(msgspec.Struct, frozen=True):
    """Some events in the order of their positions; an empty cursor: there are no more."""

    events: list[Event]
    cursor: str = ""
