"""Whether an index narrows a filter, or every job would be read to answer it."""

from __future__ import annotations

from holdfast.model.job import State
from holdfast.model.search import Filter

_READ_JOB_BY_JOB = frozenset({"payload", "text", "workers"})
"""Conditions that no index answers."""
_INDEXED = frozenset(
    {"ids", "keys", "error_reasons", "classes", "statuses", "fingerprint", "replay_run"}
)
_KEPT_APART = frozenset(State) - {State.COMPLETED, State.CANCELLED}
"""States whose jobs are few beside all that have finished."""


def missing_bound(wanted: Filter) -> str:
    """Return what has to be added before a filter is answered quickly; empty: nothing."""
    asked = wanted.conditions.union(*(one.conditions for one in wanted.without))
    slow = sorted(asked & _READ_JOB_BY_JOB)
    narrowed = (
        wanted.conditions & _INDEXED
        or (wanted.states and _KEPT_APART.issuperset(wanted.states))
        or wanted.created_from_us is not None
        or wanted.finished_from_us is not None
    )
    if not slow or narrowed:
        return ""
    states = ", ".join(state.value for state in State if state in _KEPT_APART)
    return (
        f"no index answers {', '.join(slow)}, so every job would be read: add created_since, "
        f"since, id, key, error_reason, class, fingerprint or status ({states})"
    )
