"""The rights that running and reading need, on each table, view and sequence of the schema.

``holdfast migrate --sql --roles`` grants exactly these, and an engine that opens checks them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from . import migration_files
from .migration_files import MIGRATIONS_TABLE

_EVERYTHING = ("SELECT", "INSERT", "UPDATE", "DELETE")
_APPEND = ("SELECT", "INSERT")
_REPLACE = ("SELECT", "INSERT", "UPDATE")
_ADD_AND_REMOVE = ("SELECT", "INSERT", "DELETE")
_LESS: Mapping[str, Sequence[str]] = {
    MIGRATIONS_TABLE: ("SELECT",),
    "loading": ("SELECT",),
    "work": (),
    "audit": _APPEND,
    "chronicle_events": _APPEND,
    "chronicle_events_rest": (),
    "audit_logged": ("SELECT", "UPDATE"),
    "fanout": ("SELECT", "UPDATE"),
    "last_sample": _REPLACE,
    "loops": _REPLACE,
    "projections": _REPLACE,
    "attempts": _ADD_AND_REMOVE,
    "covered_jobs": _ADD_AND_REMOVE,
    "group_deaths": _ADD_AND_REMOVE,
    "history": _ADD_AND_REMOVE,
    "notes": _ADD_AND_REMOVE,
    "operation_outcomes": _ADD_AND_REMOVE,
    "dead_changes": ("SELECT", "DELETE"),  # a trigger inserts, with the rights of the owner
    "history_rest": ("SELECT", "DELETE"),
    "places": ("USAGE",),
    "tokens": ("USAGE",),
}
"""Where less than everything is needed to run jobs. To load a dump takes the owner."""
RUN_FUNCTIONS = ("make_day(bigint)", "make_month(bigint, int)", "drop_day(regclass)")
"""What acts with the rights of the owner, and running needs it."""


@cache
def run_rights() -> Mapping[str, Sequence[str]]:
    """Return what a process that runs jobs, or changes something, needs."""
    names = migration_files.names_made(migration_files.known()) | {MIGRATIONS_TABLE}
    return {name: _LESS.get(name, _EVERYTHING) for name in sorted(names)}


@cache
def read_rights() -> Mapping[str, Sequence[str]]:
    """Return what is needed to look at everything."""
    return {name: ("SELECT",) for name in run_rights() if not name.endswith("_rest")}
