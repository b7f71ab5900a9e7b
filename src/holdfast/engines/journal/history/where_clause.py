"""Filters and callers as SQL: fragments from a fixed table, every value bound."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from holdfast.model.access import SYSTEM, Caller
from holdfast.model.job import Job, State
from holdfast.model.search import Filter, Order, Place

from .rows import DEAD, DONE, searchable, searches_exactly, storable
from .statements import Value, as_json

_BODY_PATHS: dict[str, Value | bytes] = {
    f"{name}_path": f"$[{Job.__struct_fields__.index(field)}]{inside}"
    for name, field, inside in (
        ("key", "ties", "[0]"),
        ("replays", "replays", ""),
        ("failure", "failure", ""),
    )
}
"""Paths in the JSON of a stored job."""

_FRAGMENTS = {
    "ids": "id IN (SELECT value FROM json_each(:ids))",
    "caller_tenant": "tenant = :caller_tenant",
    "tenant": "tenant = :tenant",
    # By length, not by LIKE: a scope may hold any character, and its case matters.
    "caller_scopes": "EXISTS (SELECT 1 FROM json_each(:caller_scopes) AS held "
    "WHERE scope = held.value "
    "OR substr(scope, 1, length(held.value) + 1) = held.value || '/')",
    "scope": "(scope = :scope OR substr(scope, 1, length(:scope) + 1) = :scope || '/')",
    "state": "state = :state",
    "tasks": "task IN (SELECT value FROM json_each(:tasks))",
    "attempts_from": "attempt >= :attempts_from",
    "attempts_to": "attempt < :attempts_to",
    "created_from_us": "created_at_us >= :created_from_us",
    "created_to_us": "created_at_us < :created_to_us",
    "finished_from_us": "finished_at_us >= :finished_from_us",
    "finished_to_us": "finished_at_us < :finished_to_us",
    "never": "false",
    # Of the dead:
    "kinds": "kind IN (SELECT value FROM json_each(:kinds))",
    "shape": "shape = :shape",
    "group_shape": "found.shape = :shape",
    "keys": "key IN (SELECT value FROM json_each(:keys))",
    "replay_run": "replay_run = :replay_run",
    "text": "instr(message, :text) > 0",
    # Of the done, where these are rare and so have no column:
    "queues": "queue IN (SELECT value FROM json_each(:queues))",
    "remembered": "finished_at_us >= :forget_before_us",
    "body_keys": "json_extract(body, :key_path) IN (SELECT value FROM json_each(:keys))",
    "body_replays": "json_extract(body, :replays_path) IS NOT NULL",
    "body_failure": "json_extract(body, :failure_path) IS NOT NULL",
    # Of the kinds:
    "kind_queues": "queue IN (SELECT value FROM json_each(:queues))",
    "kind_reasons": "error_reason IN (SELECT value FROM json_each(:error_reasons))",
    "kind_tasks": "task IN (SELECT value FROM json_each(:tasks))",
    "kind_statuses": "status IN (SELECT value FROM json_each(:statuses))",
    "kind_classes": "failure_class IN (SELECT value FROM json_each(:classes))",
    "kind_failed": "failure_class <> ''",
}


_AFTER = {
    order: f"({order.field}, tenant, id) {'<' if order.descending else '>'} "
    "(:place_number, :place_tenant, :place_id)"
    for order in Order
}
_OF_KINDS = frozenset({"queues", "tasks", "error_reasons", "classes", "statuses"})
"""What a kind is, so that a filter without some of it selects the other kinds."""


class WhereClause:
    """The conditions of a WHERE clause, and their bound values.

    If it is not ``exact``, the rows must be checked against the filter again.
    """

    def __init__(self) -> None:
        self.values: dict[str, Value | bytes] = {}
        self.exact = True
        self._fragments: list[str] = []

    @property
    def where(self) -> str:
        """The conditions, for a statement."""
        return " AND ".join(self._fragments) or "true"

    def add(self, fragment: str, value: Value | bytes = None, name: str = "") -> None:
        """Add one more condition, and the value of its parameter if it has one."""
        self._fragments.append(_FRAGMENTS[fragment])
        if value is not None:
            self.values[name or fragment] = value

    def add_kinds(self, kinds: Sequence[int], *, bound_only: bool = False) -> None:
        """Restrict to these kinds; or only bind them, for a statement that uses them itself."""
        self.values["kinds"] = as_json(kinds)
        if not bound_only:
            self.add("kinds")

    def exclude(self, others: WhereClause) -> None:
        """Exclude what meets all of these conditions, if they tell exactly."""
        if not others.exact:
            self.exact = False
            return
        prefix = f"without{len(self._fragments)}_"
        where = re.sub(r":(\w+)", rf":{prefix}\1", others.where)
        self._fragments.append(f"({where}) IS NOT TRUE")
        self.values |= {f"{prefix}{name}": value for name, value in others.values.items()}

    def after(self, place: Place | None, order: Order) -> WhereClause:
        """Return these conditions, for what comes after this place."""
        further = WhereClause()
        further.exact = self.exact
        further.values = dict(self.values)
        further._fragments = list(self._fragments)
        if place is not None:
            further._fragments.append(_AFTER[order])
            number, tenant, job_id = place
            further.values |= {
                "place_number": number,
                "place_tenant": tenant,
                "place_id": job_id,
            }
        return further


def on_done(wanted: Filter, caller: Caller, forget_before_us: int) -> WhereClause | None:
    """Return the conditions on completed and cancelled jobs; None if none of them can match."""
    found = _on_both(wanted, caller, DONE)
    if found is None:
        return None
    found.add("remembered", forget_before_us, "forget_before_us")
    found.values |= _BODY_PATHS
    if wanted.tasks:
        found.add("tasks", as_json(wanted.tasks))
    if wanted.queues:
        found.add("queues", as_json(wanted.queues))
    if wanted.keys:
        found.add("body_keys", as_json(wanted.keys), "keys")
    if wanted.replay_run:
        found.add("body_replays")
        found.exact = False
    if wanted.asks_for_failures:
        # Completed jobs have no failure any more.
        if wanted.states and State.CANCELLED not in wanted.states:
            return None
        if "state" not in found.values:
            found.add("state", State.CANCELLED)
        found.add("body_failure")
        found.exact = False
    if wanted.replay_run == "":
        found.exact = False
    for one in wanted.without:
        others = on_done(one, SYSTEM, 0)
        if others is not None:
            found.exclude(others)
    return found


def on_dead(wanted: Filter, caller: Caller, shape: int | None) -> WhereClause | None:
    """Return the conditions on dead and archived jobs, except their kinds."""
    found = _on_both(wanted, caller, DEAD)
    if found is None:
        return None
    if wanted.keys:
        found.add("keys", as_json(wanted.keys))
    if wanted.replay_run is not None:
        found.add("replay_run", storable(wanted.replay_run))
    if wanted.fingerprint is not None:
        if shape is None:
            return None
        found.add("shape", shape)
    if wanted.text:
        found.add("text", searchable(wanted.text))
        found.exact = found.exact and searches_exactly(wanted.text)
    for one in wanted.without:
        if not one.conditions & _OF_KINDS:  # on_kinds excludes those
            _exclude_dead(found, one)
    return found


def _exclude_dead(found: WhereClause, excluded: Filter) -> None:
    if excluded.fingerprint is not None:
        found.exact = False  # rare: matched after the read, so its shape is not looked up
        return
    others = on_dead(excluded, SYSTEM, None)
    if others is not None:
        found.exclude(others)


def on_kinds(wanted: Filter) -> WhereClause | None:
    """Return the conditions on kinds; None if every kind matches."""
    found = WhereClause()
    if wanted.queues:
        found.add("kind_queues", as_json(wanted.queues), "queues")
    if wanted.tasks:
        found.add("kind_tasks", as_json(wanted.tasks), "tasks")
    if wanted.error_reasons:
        reasons = as_json([storable(reason) for reason in wanted.error_reasons])
        found.add("kind_reasons", reasons, "error_reasons")
    if wanted.classes:
        found.add("kind_classes", as_json(wanted.classes), "classes")
    if wanted.statuses:
        found.add("kind_statuses", as_json(wanted.statuses), "statuses")
    if wanted.asks_for_failures:
        found.add("kind_failed")
    for one in wanted.without:
        others = on_kinds(one) if one.conditions <= _OF_KINDS else None
        if others is not None:
            found.exclude(others)
    return None if found.where == "true" else found


def only_storable(wanted: Filter, caller: Caller) -> Filter | None:
    """Return the filter as it can be stored; None if it matches nothing.

    Nothing that is stored has a text with an unpaired surrogate.
    """
    kept = replace(wanted, without=())
    if not _is_storable((kept, caller)):
        return None
    return replace(kept, without=tuple(filter(_is_storable, wanted.without)))


def _is_storable(value: object) -> bool:
    try:
        as_json(value)
    except UnicodeEncodeError:
        return False
    return True


def _on_both(wanted: Filter, caller: Caller, states: Iterable[State]) -> WhereClause | None:
    found = WhereClause()
    possible = set(states)
    if wanted.states:
        asked = possible.intersection(wanted.states)
        if not asked:
            return None
        if asked != possible:
            found.add("state", asked.pop())
    if caller.tenant is not None:
        found.add("caller_tenant", caller.tenant)
    if caller.scopes:
        found.add("caller_scopes", as_json(caller.scopes))
    if wanted.ids:
        found.add("ids", as_json(wanted.ids))
    for field in _PLAIN:
        value: Value = getattr(wanted, field)
        if value is not None:
            found.add(field, value)
    if wanted.workers or wanted.payload:
        found.exact = False  # they are in the bodies only
    return found


_PLAIN = (
    "tenant",
    "scope",
    "attempts_from",
    "attempts_to",
    "created_from_us",
    "created_to_us",
    "finished_from_us",
    "finished_to_us",
)
