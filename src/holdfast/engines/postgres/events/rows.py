"""Events and subscriptions as rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.engines.postgres.connection.sansio import Row, Statement
from holdfast.model.event import Event
from holdfast.model.event_search import EventFilter
from holdfast.model.subscription import Subscription

_TEXTS = {
    "event_ids": "id",
    "tenants": "tenant",
    "event_types": "event_type",
    "scopes": "scope",
    "keys": "key",
    "entity_types": "entity_type",
    "entity_ids": "entity_id",
    "actor_types": "actor_type",
    "actor_ids": "actor_id",
    "actor_names": "actor_name",
    "request_ids": "request_id",
    "devices": "device",
    "clients": "client",
    "ips": "ip",
    "reasons": "reason",
    "correlation_ids": "correlation_id",
    "causation_ids": "causation_id",
    "trace_ids": "trace_id",
    "supersedes": "supersedes",
    "imported_by": "imported_by",
}
"""The parameters that are a field of the event each."""
_CONDITIONS = (
    *("tenant", "scope", "key", "entity_type", "entity_id", "actor_type", "actor_id"),
    *("request_id", "correlation_id", "occurred_from_us", "occurred_to_us", "fanout_before"),
)


def columns(events: Sequence[Event]) -> dict[str, object]:
    """Return what events say as columns; not when and where they are stored."""
    found: dict[str, object] = {
        name: [getattr(event, field) for event in events] for name, field in _TEXTS.items()
    }
    found["versions"] = [event.version for event in events]
    for name, field in (("befores", "before"), ("afters", "after"), ("diffs", "diff")):
        found[name] = [_text(getattr(event, field)) for event in events]
    return {**found, "payloads": [event.payload.decode() for event in events]}


def event_of(row: Row) -> Event:
    """Return the event of a row, see ``fragments/event_columns``."""
    payload, *others = row[11:15]
    fields: tuple[Any, ...] = (
        *row[:11],
        payload.encode(),
        *(None if text is None else text.encode() for text in others),
        *row[15:],
    )
    return Event(*fields)


def put_events(events: Sequence[Event]) -> Statement:
    """Return the statement that stores events as they are in a dump, without jobs."""
    numbers = ("occurred_at_us", "created_at_us", "position", "fanout_version")
    stored = {name: [getattr(event, name) for event in events] for name in numbers}
    return Statement("put_events", {**columns(events), **stored})


def names(events: Iterable[tuple[str, str]]) -> dict[str, object]:
    """Return the names of events, tenant and id, as columns."""
    listed = list(events)
    return {"tenants": [name[0] for name in listed], "event_ids": [name[1] for name in listed]}


def conditions(wanted: EventFilter) -> dict[str, object]:
    """Return a filter as parameters."""
    return {
        "event_ids": list(wanted.ids) or None,
        "event_types": list(wanted.event_types) or None,
        **{name: getattr(wanted, name) for name in _CONDITIONS},
    }


def subscription_of(row: Row) -> Subscription:
    """Return the subscription of a row."""
    name, queue, task, event_types, max_attempts, since_version = row
    return Subscription(name, queue, task, tuple(event_types), max_attempts, since_version)


def put_subscription(subscription: Subscription) -> Statement:
    """Return the statement that stores a subscription."""
    parameters: dict[str, object] = {
        field: getattr(subscription, field) for field in Subscription.__struct_fields__
    }
    parameters["event_types"] = list(subscription.event_types)
    return Statement("put_subscription", parameters)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()
