"""Filters of events as SQL.

One condition picks the index; the others have a unary plus, which keeps SQLite from using theirs:
without statistics it would not know which of them finds fewer events.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from holdfast.engines.journal.history.statements import Value
from holdfast.model.access import Caller
from holdfast.model.event_search import EventFilter

_BY_VALUE = ("correlation_id", "request_id", "entity_id", "key", "actor_id", "tenant")
"""The columns with an index, those that find the fewest first."""
_PARTIAL = ("correlation_id", "request_id")
"""Their indexes leave out the empty ones."""
_OTHERS = ("entity_type", "actor_type")


class Conditions(NamedTuple):
    """Fragments of SQL, joined, and the values that they bind."""

    where: str
    values: dict[str, Value]


def conditions(wanted: EventFilter, caller: Caller) -> Conditions | None:
    """Return the conditions of a filter within the caller's reach; None if nothing can match."""
    tenant = wanted.tenant
    if caller.tenant is not None:
        if tenant not in (None, caller.tenant):
            return None
        tenant = caller.tenant
    found = _Builder()
    found.add_names(wanted)
    equal = {name: getattr(wanted, name) for name in (*_BY_VALUE, *_OTHERS)} | {"tenant": tenant}
    for name, value in equal.items():
        if value is not None:
            found.add_equal(name, value, with_type=len(wanted.event_types) == 1)
    found.add_types(wanted.event_types)
    found.add_range(wanted)
    scopes = [f"reach{number}" for number in range(len(caller.scopes))]
    if scopes:
        found.where.append(f"({' OR '.join(map(_below, scopes))})")
        found.values |= dict(zip(scopes, caller.scopes, strict=True))
    return Conditions(" AND ".join(found.where) or "TRUE", found.values)


class _Builder:
    """Collects conditions; the first that has an index drives the query."""

    def __init__(self) -> None:
        self.where: list[str] = []
        self.values: dict[str, Value] = {}
        self._driven = False

    def add_names(self, wanted: EventFilter) -> None:
        if wanted.ids:
            self.where.append("id IN (SELECT value FROM json_each(:ids))")
            self.values["ids"] = msgspec.json.encode(wanted.ids).decode()
            self._driven = True

    def add_equal(self, name: str, value: str, *, with_type: bool) -> None:
        indexed = name in _BY_VALUE and (value != "" or name not in _PARTIAL)
        if name == "tenant" and with_type:
            indexed = False  # the type finds fewer
        drives = indexed and not self._driven
        self.where.append(f"{'' if drives else '+'}{name} = :{name}")
        if drives and name in _PARTIAL:
            self.where.append(f"{name} <> ''")
        self.values[name] = value
        self._driven = self._driven or drives

    def add_types(self, event_types: tuple[str, ...]) -> None:
        if len(event_types) == 1:
            self.where.append(f"{'+' if self._driven else ''}event_type = :event_type")
            self.values["event_type"] = event_types[0]
            self._driven = True
        elif event_types:
            self.where.append("+event_type IN (SELECT value FROM json_each(:event_types))")
            self.values["event_types"] = msgspec.json.encode(event_types).decode()

    def add_range(self, wanted: EventFilter) -> None:
        time = "+occurred_at_us" if self._driven else "occurred_at_us"
        for name, sign in (("occurred_from_us", ">="), ("occurred_to_us", "<=")):
            if (at_us := getattr(wanted, name)) is not None:
                self.where.append(f"{time} {sign} :{name}")
                self.values[name] = at_us
        if wanted.fanout_before is not None:
            self.where.append("fanout_version < :fanout_before")
            self.values["fanout_before"] = wanted.fanout_before
        if wanted.scope is not None:
            self.where.append(_below("scope"))
            self.values["scope"] = wanted.scope


def _below(parameter: str) -> str:
    """Return the condition that the scope is this one or below it."""
    return f"substr(scope || '/', 1, length(:{parameter}) + 1) = :{parameter} || '/'"
