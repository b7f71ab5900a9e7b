"""Finding events: filters and pages."""

from __future__ import annotations

import base64
import binascii
from hashlib import blake2b

import msgspec

from .errors import InvalidInput
from .event import Event, check_event_id
from .job import MAX_TIME_US, Whole

MAX_NAMED = 10_000
"""The most ids or event types that a filter names."""


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

    def check(self) -> None:
        """Raise ``InvalidInput`` naming the bad condition."""
        for field in ("ids", "event_types"):
            names: object = getattr(self, field)
            if not isinstance(names, tuple) or len(names) > MAX_NAMED:
                raise InvalidInput(field, f"give at most {MAX_NAMED:,} of them")
            if not all(type(name) is str for name in names):
                raise InvalidInput(field, "one of them is not text")
        for event_id in self.ids:
            check_event_id(event_id, "ids")
        for field in (*_EQUAL, "scope"):
            if not isinstance(value := getattr(self, field), str | None):
                raise InvalidInput(field, f"{value!r} is not text")
        for field in ("occurred_from_us", "occurred_to_us", "fanout_before"):
            number = getattr(self, field)
            if number is not None and (type(number) is not int or not 0 <= number <= MAX_TIME_US):
                raise InvalidInput(field, f"{number!r} is not a whole number from 0")

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


def write_event_cursor(position: int, wanted: EventFilter, *, newest: bool) -> str:
    """Return the cursor of the page after this position, for this filter and direction."""
    raw = msgspec.msgpack.encode((_digest(wanted, newest=newest), position))
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def read_event_cursor(cursor: str, wanted: EventFilter, *, newest: bool) -> int | None:
    """Return the position that a cursor is at; None for the first page.

    Raise ``InvalidInput`` if it is from a page of another filter or direction.
    """
    if cursor == "":
        return None
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        digest, position = _CURSORS.decode(raw)
    except (TypeError, ValueError, binascii.Error, msgspec.MsgspecError):
        raise InvalidInput("cursor", f"{cursor!r} is not from a page of events") from None
    if digest != _digest(wanted, newest=newest):
        raise InvalidInput(
            "cursor",
            "it is from a list with another filter or order: repeat the call that gave it, or "
            "start without a cursor",
        )
    return position


def event_page(events: list[Event], limit: int, wanted: EventFilter, *, newest: bool) -> EventPage:
    """Return a page of this many of these events, which are one more if there are more."""
    if len(events) <= limit:
        return EventPage(events)
    last = events[limit - 1].position
    return EventPage(events[:limit], write_event_cursor(last, wanted, newest=newest))


def _digest(wanted: EventFilter, *, newest: bool) -> bytes:
    """Return what a cursor knows of the filter: not the times, as in the cursors of jobs."""
    spared = msgspec.structs.replace(wanted, occurred_from_us=None, occurred_to_us=None)
    return blake2b(
        repr((newest, spared)).encode("utf-8", "backslashreplace"), digest_size=6
    ).digest()


_CURSORS: msgspec.msgpack.Decoder[tuple[bytes, Whole]] = msgspec.msgpack.Decoder(
    tuple[bytes, Whole]
)
