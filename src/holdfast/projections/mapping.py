"""Projections by a mapping alone: which columns come from which fields of an event.

projections:
  book_titles:
    events: [book.created, book.renamed]
    delete_on: [book.deleted]
    key: [book_id]
    columns:
      book_id: {from: entity_id}
      title: {from: data.title, type: text, index: true, search: true}
      renamed_at: {from: occurred_at}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from holdfast.engines.read_models.contract import RowWriter
from holdfast.model.errors import InvalidInput
from holdfast.model.read_model import ColumnType, ReadModel, Value

from .declaration import ProjectedEvent, Projection

_ENVELOPE: Mapping[str, ColumnType] = {
    "occurred_at": ColumnType.TIMESTAMP,
    "created_at": ColumnType.TIMESTAMP,
    "version": ColumnType.INTEGER,
    "position": ColumnType.INTEGER,
    "text": ColumnType.TEXT,
} | dict.fromkeys(
    (
        "id",
        "event_type",
        "tenant",
        "scope",
        "key",
        "entity_type",
        "entity_id",
        "actor_type",
        "actor_id",
        "actor_user_id",
        "actor_name",
        "request_id",
        "device",
        "client",
        "ip",
        "reason",
        "correlation_id",
        "causation_id",
        "trace_id",
        "supersedes",
    ),
    ColumnType.TEXT,
)
_BODIES = ("data", "before", "after", "diff")


class ColumnMapping(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"source": "from"}
):
    """Where a column comes from: a field of the envelope, or a path such as ``data.title``."""

    source: str
    type: ColumnType | None = None
    index: bool = False
    search: bool = False


class ProjectionMapping(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A projection as a file declares it."""

    columns: dict[str, ColumnMapping]
    key: tuple[str, ...]
    events: tuple[str, ...] = ()
    delete_on: tuple[str, ...] = ()
    """Events that delete the row instead."""
    table: str = ""
    version: int = 1
    on_failure: Literal["hold", "skip"] = "hold"
    lag_slo_seconds: float = 60.0


def read_mappings(declared: object) -> dict[str, Projection]:
    """Return the projections that a file declares, or raise ``InvalidInput`` naming the place."""
    try:
        found = msgspec.convert(declared, dict[str, ProjectionMapping])
    except msgspec.ValidationError as error:
        raise InvalidInput("projections", str(error)) from None
    return {name: projection_of(name, mapping) for name, mapping in found.items()}


def projection_of(name: str, mapping: ProjectionMapping) -> Projection:
    """Return the projection that a mapping declares."""
    columns = {column: _type_of(name, column, one) for column, one in mapping.columns.items()}
    table = ReadModel(
        name=mapping.table or name,
        columns=columns,
        key=mapping.key,
        indexes=tuple((column,) for column, one in mapping.columns.items() if one.index),
        search=tuple(column for column, one in mapping.columns.items() if one.search),
    )
    if mapping.delete_on and not mapping.events:
        raise InvalidInput("events", f"{name} needs the events that make rows: name them")
    projection = Projection(
        name=name,
        table=table,
        apply=_MappedRows(table, mapping).apply,
        event_types=tuple(dict.fromkeys((*mapping.events, *mapping.delete_on))),
        version=mapping.version,
        on_failure=mapping.on_failure,
        lag_slo_seconds=mapping.lag_slo_seconds,
    )
    projection.check()
    return projection


class _MappedRows:
    """Writes the row of each event; a field that an event does not have keeps its value."""

    def __init__(self, table: ReadModel, mapping: ProjectionMapping) -> None:
        self._table = table
        self._delete_on = frozenset(mapping.delete_on)
        self._paths = {name: one.source.split(".") for name, one in mapping.columns.items()}

    def apply(self, events: Sequence[ProjectedEvent], rows: RowWriter) -> None:
        """Apply events in their order."""
        for event in events:
            values = {}
            for name, path in self._paths.items():
                found, value = _value(event, path)
                if found:
                    values[name] = self._stored(name, value)
            key = self._table.key_of(values)
            if event.event_type in self._delete_on:
                rows.delete(key)
            else:
                rows.upsert({**(rows.get(key) or {}), **values})

    def _stored(self, column: str, value: Value) -> Value:
        """Return the value for a column: in JSON a time is text."""
        if isinstance(value, str) and self._table.columns[column] is ColumnType.TIMESTAMP:
            return datetime.fromisoformat(value)
        return value


def _value(event: ProjectedEvent, path: Sequence[str]) -> tuple[bool, Value]:
    """Return whether an event has a value there, and the value."""
    first, *rest = path
    found: object = getattr(event, first)
    for name in rest:
        if not isinstance(found, Mapping) or name not in found:
            return False, None
        found = found[name]
    if found is None or isinstance(found, _VALUES):
        return not (found is None and first in _BODIES and not rest), found
    message = f"{'.'.join(path)} is a {type(found).__name__}"
    raise TypeError(message)


_VALUES = (str, int, float, bool, datetime, Mapping, list, tuple)


def _type_of(projection: str, column: str, mapping: ColumnMapping) -> ColumnType:
    first, *rest = mapping.source.split(".")
    if first in _BODIES and all(rest):
        if not rest:
            return mapping.type or ColumnType.JSON
        if mapping.type is None:
            problem = f"{column} of {projection} needs a type: {mapping.source} may be anything"
            raise InvalidInput("type", problem)
        return mapping.type
    kind = _ENVELOPE.get(mapping.source)
    if kind is None:
        known = ", ".join([*_ENVELOPE, *(f"{body}.FIELD" for body in _BODIES)])
        problem = f"{column} of {projection}: {mapping.source!r} is not one of {known}"
        raise InvalidInput("from", problem)
    if mapping.type not in (None, kind):
        raise InvalidInput("type", f"{column} of {projection} is {kind.value}: {mapping.source}")
    return kind
