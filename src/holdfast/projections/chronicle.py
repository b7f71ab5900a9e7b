"""The chronicle: what happened, for people. One entry per event, with its id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter

from holdfast.engines.read_models.contract import RowWriter
from holdfast.model.read_model import ColumnType, ReadModel, Value

from .declaration import ProjectedEvent, Projection

CHRONICLE = "chronicle"
ENTRIES = ReadModel(
    name="chronicle_entries",
    columns={
        "id": ColumnType.TEXT,
        "tenant": ColumnType.TEXT,
        "scope": ColumnType.TEXT,
        "event_type": ColumnType.TEXT,
        "version": ColumnType.INTEGER,
        "entity_type": ColumnType.TEXT,
        "entity_id": ColumnType.TEXT,
        "actor_type": ColumnType.TEXT,
        "actor_id": ColumnType.TEXT,
        "actor_user_id": ColumnType.TEXT,
        "actor_name": ColumnType.TEXT,
        "occurred_at": ColumnType.TIMESTAMP,
        "created_at": ColumnType.TIMESTAMP,
        "text": ColumnType.TEXT,
        "payload": ColumnType.JSON,
        "before": ColumnType.JSON,
        "after": ColumnType.JSON,
        "diff": ColumnType.JSON,
        "reason": ColumnType.TEXT,
        "request_id": ColumnType.TEXT,
        "correlation_id": ColumnType.TEXT,
        "causation_id": ColumnType.TEXT,
        "trace_id": ColumnType.TEXT,
        "device": ColumnType.TEXT,
        "client": ColumnType.TEXT,
        "ip": ColumnType.TEXT,
        "supersedes": ColumnType.TEXT,
    },
    key=("tenant", "id"),
    indexes=(
        ("occurred_at", "id"),
        ("tenant", "occurred_at", "id"),
        ("event_type", "occurred_at", "id"),
        ("entity_type", "entity_id", "occurred_at", "id"),
        ("actor_id", "occurred_at", "id"),
        ("scope", "occurred_at", "id"),
        ("request_id",),
        ("correlation_id",),
    ),
    search=("text", "reason", "actor_name", "entity_id"),
)
_COPIED = (
    "id",
    "tenant",
    "scope",
    "event_type",
    "version",
    "entity_type",
    "entity_id",
    "actor_type",
    "actor_id",
    "actor_name",
)
_OPTIONAL = (
    "reason",
    "request_id",
    "correlation_id",
    "causation_id",
    "trace_id",
    "device",
    "client",
    "ip",
    "supersedes",
)
_copied, _optional = attrgetter(*_COPIED), attrgetter(*_OPTIONAL)
_BATCH = 500
"""Each batch is two syncs: of the table, and of the log."""
_NUL = rb"\u0000"
"""A NUL character, as JSON has it."""


def write_entries(events: Sequence[ProjectedEvent], rows: RowWriter) -> None:
    """Write the entry of each event."""
    for one in events:
        event = one.event
        row: dict[str, Value] = dict(zip(_COPIED, _copied(event), strict=True))
        row |= {
            name: value for name, value in zip(_OPTIONAL, _optional(event), strict=True) if value
        }
        row |= {
            "actor_user_id": event.actor_user_id,
            "occurred_at": one.occurred_at,
            "created_at": one.created_at,
            "text": one.text.replace("\x00", "\ufffd"),
            "payload": _body(event.payload, one.data),
            "before": _body(event.before, one.before),
            "after": _body(event.after, one.after),
            "diff": _body(event.diff, one.diff),
        }
        rows.upsert(row)


def _body(encoded: bytes | None, value: Value) -> Value:
    """Return a decoded value as it can be stored: as it is, almost always."""
    return value if encoded is None or _NUL not in encoded else _storable(value)


def _storable(value: object) -> Value:
    """Return a value of JSON without NUL characters, which a database cannot hold as text."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.replace("\x00", "\ufffd")
    if isinstance(value, (dict, Mapping)):  # a dict is found much faster as such
        return {str(_storable(name)): _storable(one) for name, one in value.items()}
    if isinstance(value, Sequence):
        return [_storable(one) for one in value]
    found: Value = value if isinstance(value, int | float) else None
    return found


PROJECTION = Projection(name=CHRONICLE, table=ENTRIES, apply=write_entries, batch=_BATCH)
