"""A filter of events from named values: options of a command, or the query of a URL."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from holdfast.model import moments
from holdfast.model.event import USER_ACTOR, check_event_id
from holdfast.model.event_search import EventFilter
from holdfast.model.job import check_id, check_scope

NAMES: Mapping[str, str] = {
    "id": "ids",
    "type": "event_types",
    "tenant": "tenant",
    "scope": "scope",
    "key": "key",
    "entity": "entity",
    "actor": "actor",
    "request_id": "request_id",
    "correlation_id": "correlation_id",
    "since": "since",
    "until": "until",
}
"""The conditions by the names that people write; ``event_filter_of`` takes those on the right."""
SEVERAL = frozenset({"ids", "event_types"})
"""The conditions that take several values."""


def event_filter_of(named: Mapping[str, object], now_us: int) -> EventFilter:
    """Return the filter of these conditions; raise ``InvalidInput`` naming a wrong one.

    A value is a text, or a tuple of them; ages count back from ``now_us``.
    """
    fields: dict[str, object] = {}
    for name, value in named.items():
        if value in (None, ()):
            continue
        for text in value if isinstance(value, tuple) else (value,):
            check_id(str(text), name)
        if name == "ids" and isinstance(value, tuple):
            fields["ids"] = tuple(check_event_id(one, "ids") for one in value)
        elif name == "entity":
            kind, colon, entity_id = str(value).partition(":")
            fields |= {"entity_type": kind} | ({"entity_id": entity_id} if colon else {})
        elif name == "actor":
            kind, colon, actor_id = str(value).rpartition(":")
            fields |= {"actor_type": kind if colon else USER_ACTOR, "actor_id": actor_id}
        elif name == "since":
            fields["occurred_from_us"] = moments.moment_us(name, str(value), now_us)
        elif name == "until":
            # Not included, as everywhere; the filter of an engine includes its end.
            until_us = moments.moment_us(name, str(value), now_us)
            fields["occurred_to_us"] = max(0, until_us - 1)
        else:
            fields[name] = check_scope(str(value)) if name == "scope" else value
    make: Callable[..., EventFilter] = EventFilter
    wanted = make(**fields)
    wanted.check()
    return wanted
