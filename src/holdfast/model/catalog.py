"""The catalog: every event type of an application, declared once.

It checks events before they are stored, and reads those of old versions as the current one. Engines
do not know it: they check the envelope alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from .errors import EventInvalid, InvalidInput, UnknownEventType
from .event import Event, NewEvent
from .event_schema import CHANGE_FIELDS, fields_of, value_at
from .event_type import EventType, data_of

_FIXED = ("actor_id", "actor_type", "entity_id", "entity_type", "event_type", "reason", "scope")


class Catalog:
    """The event types by name, and by the class of their events."""

    def __init__(self, types: Iterable[EventType] = ()) -> None:
        self.types: dict[str, EventType] = {}
        self._by_class: dict[type, EventType] = {}
        for one in types:
            self.add(one)

    def add(self, event_type: EventType) -> None:
        """Add a type; raise ``InvalidInput`` if another one has its name."""
        other = self.types.get(event_type.name)
        if other is not None and other.source != event_type.source:
            raise InvalidInput(
                "event_type",
                f"{event_type.name!r} is declared twice: in {other.source} and in "
                f"{event_type.source}",
            )
        self.types[event_type.name] = event_type
        self._by_class[event_type.schema.kind] = event_type

    def joined(self, other: Catalog) -> Catalog:
        """Return a catalog with the types of both; raise ``InvalidInput`` if they share a name."""
        return Catalog([*self.types.values(), *other.types.values()])

    def type_named(self, name: str) -> EventType:
        """Return the type of this name, or raise ``UnknownEventType``."""
        found = self.types.get(name)
        if found is None:
            raise UnknownEventType(name, self.types)
        return found

    def type_of(self, value: object) -> EventType:
        """Return the type of an event object, or of its class; raise ``UnknownEventType``."""
        kind = value if isinstance(value, type) else type(value)
        found = self._by_class.get(kind)
        if found is None:
            raise UnknownEventType(kind.__qualname__, self.types)
        return found

    def new_event(self, value: object, stamps: Mapping[str, object]) -> NewEvent:
        """Return the event that an object of a declared class says, checked.

        ``stamps`` are the fields of its envelope; see ``Envelope.stamps``. Raise
        ``UnknownEventType`` or ``EventInvalid``.
        """
        event_type = self.type_of(value)
        schema = event_type.schema
        encoded, typed = schema.encode(value)
        payload = fields_of(encoded)
        changes = dict(stamps)
        if schema.has_changes:
            for name in CHANGE_FIELDS:
                if name in payload and payload[name] is not None and name in changes:
                    problem = "it is a field of the event, and an argument too"
                    raise EventInvalid(event_type.name, name, problem)
                if (found := payload.pop(name, None)) is not None:
                    changes[name] = found
            encoded = msgspec.json.encode(payload)
        changes = {
            "entity_id": "",
            **changes,
            "event_type": event_type.name,
            "version": event_type.version,
            "entity_type": event_type.entity,
            "payload": encoded,
        }
        make: Callable[..., NewEvent] = NewEvent
        new = make(**changes)
        data = data_of(payload, new)
        event_type.check_rules(typed, data)
        return event_type.complete(new, data)

    def check(self, new: NewEvent) -> NewEvent:
        """Return the event with what its type adds, or raise ``InvalidInput`` naming the field."""
        return self.type_named(new.event_type).check(new)

    def upcast(self, event: Event) -> Event:
        """Return a stored event as one of the current version of its type.

        One of a type that is not known here is returned as it is. Raise ``EventInvalid`` if its
        version cannot be read here.
        """
        event_type = self.types.get(event.event_type)
        if event_type is None or event.version == event_type.version:
            return event
        event_type.schema_of(event.version)
        data = event_type.upcast(event.version, data_of(fields_of(event.payload), event))
        changes = {
            name: None if (value := data.pop(name, None)) is None else msgspec.json.encode(value)
            for name in CHANGE_FIELDS
        }
        return msgspec.structs.replace(
            event, version=event_type.version, payload=msgspec.json.encode(data), **changes
        )

    def value_of(self, event: Event) -> object:
        """Return a stored event as an object of its class, whatever its version.

        Raise ``UnknownEventType`` or ``EventInvalid``.
        """
        event_type = self.type_named(event.event_type)
        now = self.upcast(event)
        return event_type.value_of(data_of(fields_of(now.payload), now))

    def text_of(self, event: Event) -> str:
        """Return what a stored event says to people; its type, if nothing is declared."""
        event_type = self.types.get(event.event_type)
        if event_type is None or event_type.text is None:
            return f"{event.event_type} {event.entity_type} {event.entity_id}"
        now = self.upcast(event)
        data = data_of(fields_of(now.payload), now)
        return event_type.text.render(lambda path: _text_value(path, data, now))

    def masked(self, event: Event) -> dict[str, object]:
        """Return the data of a stored event without the values of its sensitive fields."""
        data = data_of(fields_of(event.payload), event)
        event_type = self.types.get(event.event_type)
        for path in () if event_type is None else event_type.sensitive:
            for place in (path, *(f"{name}.{path}" for name in CHANGE_FIELDS)):
                _hide(data, place.split("."))
        return data

    def doubts(self) -> dict[str, list[str]]:
        """Return by type what is probably a mistake: versions that cannot be read, no text, …"""
        found: dict[str, list[str]] = {}
        for one in self.types.values():
            doubts = [
                f"version {version} cannot be read: it has no upcaster"
                for version in one.missing_upcasters()
            ]
            doubts += [] if one.description else ["it has no description"]
            doubts += [] if one.text is not None else ["it has no text for people"]
            if doubts:
                found[one.name] = doubts
        return found


def _text_value(path: str, data: Mapping[str, object], event: Event) -> object:
    if path.partition(".")[0] in data:
        return value_at(data, path)
    if path == "actor":
        return event.actor_name or event.actor_id
    if path == "entity":
        return f"{event.entity_type} {event.entity_id}"
    return getattr(event, path) if path == "tenant" or path in _FIXED else None


def _hide(data: object, path: list[str]) -> None:
    for part in path[:-1]:
        data = data.get(part) if isinstance(data, dict) else None
    if isinstance(data, dict) and path[-1] in data:
        data[path[-1]] = "***"
