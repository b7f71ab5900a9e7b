"""Who asks for an operation and why, and its audit entry."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.model.audit import Attribution, AuditEntry
from holdfast.model.search import EVERYTHING, Filter

MAX_NAMED_IDS = 100
"""How many job ids an audit entry or a result names at most."""


class Author(msgspec.Struct, frozen=True):
    """Who does something, and why."""

    by: str
    why: str


def attribution_of(
    action: str,
    kind: str,
    wanted: Filter,
    who: Author,
    changes: Mapping[str, object] | None = None,
) -> Attribution:
    """Return who and why, with an audit entry for an operation on the jobs of a filter."""
    fields = filter_fields(wanted)
    if len(wanted.ids) <= 1:
        fields.pop("ids", None)
    else:
        fields["ids_count"] = len(wanted.ids)
    one = wanted.ids[0] if len(wanted.ids) == 1 else ""
    entry = entry_of(action, kind, one, who, {**fields, **(changes or {})}, wanted.tenant or "")
    return Attribution(who.by, who.why, (entry,))


def filter_fields(wanted: Filter) -> dict[str, object]:
    """Return the conditions of a filter by name; of many ids only the first."""
    fields: dict[str, object] = {
        field: list(value) if isinstance(value, tuple) else msgspec.to_builtins(value)
        for field in Filter.__struct_fields__
        if (value := getattr(wanted, field)) != getattr(EVERYTHING, field)
    }
    if wanted.ids:
        fields["ids"] = list(wanted.ids[:MAX_NAMED_IDS])
    return fields


def entry_of(
    action: str, kind: str, name: str, who: Author, changes: Mapping[str, object], tenant: str = ""
) -> AuditEntry:
    """Return an audit entry."""
    text = msgspec.json.encode(changes).decode()
    return AuditEntry(action, kind, name, who.by, text, who.why, tenant)
