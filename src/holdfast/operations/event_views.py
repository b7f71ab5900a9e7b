"""Events and event types as people see them."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.model.catalog import Catalog
from holdfast.model.durations import format_seconds
from holdfast.model.errors import InvalidInput
from holdfast.model.event import Event
from holdfast.model.event_schema import CHANGE_FIELDS, FieldInfo, fields_of
from holdfast.model.event_type import EventType, data_of

from .views import date_of


class EventView(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event in the words of the columns, as the current version of its type.

    Sensitive values are hidden, unless asked for.
    """

    id: str
    event_type: str
    version: int
    text: str
    entity_type: str
    entity_id: str
    actor_type: str
    actor_id: str
    occurred_at: datetime
    created_at: datetime
    position: int
    tenant: str
    key: str
    payload: dict[str, object]
    actor_user_id: str | None = None
    actor_name: str = ""
    before: object = None
    after: object = None
    diff: object = None
    scope: str = ""
    request_id: str = ""
    device: str = ""
    client: str = ""
    ip: str = ""
    reason: str = ""
    correlation_id: str = ""
    causation_id: str = ""
    trace_id: str = ""
    supersedes: str | None = None
    imported_by: str = ""
    problem: str = ""
    """Why it is shown as it was stored: its type or version is not known here."""

    @classmethod
    def of(cls, event: Event, catalog: Catalog, *, reveal: bool = False) -> EventView:
        """Return the event for people."""
        problem = ""
        try:
            catalog.type_named(event.event_type)
            event = catalog.upcast(event)
            text = catalog.text_of(event)
        except InvalidInput as error:
            problem = str(error)
            text = f"{event.event_type} {event.entity_type} {event.entity_id}"
        data = data_of(fields_of(event.payload), event) if reveal else catalog.masked(event)
        changes = {name: data.pop(name, None) for name in CHANGE_FIELDS}
        same = {
            name: getattr(event, name)
            for name in cls.__struct_fields__
            if name in Event.__struct_fields__ and name not in ("payload", *CHANGE_FIELDS)
        }
        made: dict[str, object] = {
            **same,
            **changes,
            "payload": data,
            "text": text,
            "occurred_at": date_of(event.occurred_at_us),
            "created_at": date_of(event.created_at_us),
            "actor_user_id": event.actor_user_id,
            "problem": problem,
        }
        return msgspec.convert(made, cls)


class EventPageView(msgspec.Struct, frozen=True):
    """A page of events; an empty cursor: there are no more."""

    events: list[EventView]
    cursor: str


class EventTypeView(msgspec.Struct, frozen=True):
    """An event type as it is declared."""

    name: str
    version: int
    entity: str
    description: str
    fields: list[FieldInfo]
    source: str
    entity_id: str | None
    key: str
    text: str
    change: str
    retention: str
    coalesce: str
    rules: list[str]
    sensitive: list[str]
    versions: list[int]
    """The versions that can be read."""
    json_schema: dict[str, object]

    @classmethod
    def of(cls, event_type: EventType) -> EventTypeView:
        """Return the type for people."""
        missing = event_type.missing_upcasters()
        first = max(missing, default=0) + 1
        coalesce = event_type.coalesce
        retention = event_type.retention_seconds
        return cls(
            name=event_type.name,
            version=event_type.version,
            entity=event_type.entity,
            description=event_type.description,
            fields=event_type.schema.fields,
            source=event_type.source,
            entity_id=event_type.entity_id,
            key="{entity_type}:{entity_id}" if event_type.key is None else event_type.key.text,
            text="" if event_type.text is None else event_type.text.text,
            change=event_type.change,
            retention="forever" if retention is None else format_seconds(retention),
            coalesce=""
            if coalesce is None
            else f"within {format_seconds(coalesce.window_seconds)}"
            + (f", by {', '.join(coalesce.by)}" if coalesce.by else ""),
            rules=[rule.text for rule in event_type.rules],
            sensitive=list(event_type.sensitive),
            versions=list(range(first, event_type.version + 1)),
            json_schema=dict(event_type.schema.json_schema),
        )
