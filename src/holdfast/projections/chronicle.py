"""The chronicle: what happened, for people. One entry per event, with its id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    "actor_user_id",
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


def write_entries(events: Sequence[ProjectedEvent], rows: RowWriter) -> None:
    """Write the entry of each event."""
    for one in events:
        event = one.event
        row = {name: getattr(event, name) for name in _COPIED}
        row |= {name: getattr(event, name) or None for name in _OPTIONAL}
        row |= {
            "occurred_at": one.occurred_at,
            "created_at": one.created_at,
            "text": _storable(one.text),
            "payload": _storable(one.data),
            "before": _storable(one.before),
            "after": _storable(one.after),
            "diff": _storable(one.diff),
        }
        rows.upsert(row)


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


PROJECTION = Projection(name=CHRONICLE, table=ENTRIES, apply=write_entries)
