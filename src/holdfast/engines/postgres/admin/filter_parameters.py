"""A filter and a caller as the parameters of statements, and whether those tell exactly."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.engines.postgres import rows
from holdfast.engines.postgres.call_context import CallContext
from holdfast.model.access import Caller
from holdfast.model.job import UNFINISHED, State
from holdfast.model.search import Filter

_DEAD = frozenset({State.DEAD, State.ARCHIVED})
_DONE = frozenset({State.COMPLETED, State.CANCELLED})
_OF_ALL = frozenset({"ids", "tenant", "scope", "states", "queues", "tasks", "keys"})
_OF_DEAD = frozenset({"error_reasons", "classes"})
"""Exceptions for which there are parameters; those for which only dead letters have columns."""


def filter_parameters(wanted: Filter, caller: Caller, context: CallContext) -> dict[str, object]:
    """Return the parameters of a statement that includes the conditions of a filter."""
    states = frozenset(wanted.states or State)
    asks_when_finished = wanted.finished_from_us is not None or wanted.finished_to_us is not None
    return {
        **rows.reach(caller),
        "ids": list(wanted.ids) or None,
        "tenant": wanted.tenant,
        "scope": wanted.scope,
        "states": [rows.NUMBERS[state] for state in wanted.states] or None,
        "queues": list(wanted.queues) or None,
        "tasks": list(wanted.tasks) or None,
        "keys": list(wanted.keys) or None,
        "replay_run": None if wanted.replay_run is None else rows.without_nul(wanted.replay_run),
        "attempts_from": wanted.attempts_from,
        "attempts_to": wanted.attempts_to,
        "created_from_us": wanted.created_from_us,
        "created_to_us": wanted.created_to_us,
        "finished_from_us": wanted.finished_from_us,
        "finished_to_us": wanted.finished_to_us,
        "error_reasons": list(wanted.error_reasons) or None,
        "classes": [one.value for one in wanted.classes] or None,
        "statuses": list(wanted.statuses) or None,
        "fingerprint": None if wanted.fingerprint is None else rows.without_nul(wanted.fingerprint),
        "text": None if wanted.text is None else rows.without_nul(wanted.text),
        "workers": list(wanted.workers) or None,
        **_without(wanted),
        "failed": wanted.asks_for_failures,
        "unfinished": bool(states & UNFINISHED) and not asks_when_finished,
        "dead": bool(states & _DEAD),
        "done": bool(states & _DONE),
        "now_us": context.now_us,
        "remember_us": context.remember_us,
    }


def is_exact(wanted: Filter, states: Iterable[State]) -> bool:
    """Whether the statements find no job in these states that does not match."""
    dead_only = _DEAD.issuperset(states)
    told = _OF_ALL | _OF_DEAD if dead_only else _OF_ALL
    return (
        not wanted.payload
        and (dead_only or not wanted.asks_for_failures)
        and not _may_be_replaced(wanted)
        and all(one.conditions <= told for one in wanted.without)
    )


def _may_be_replaced(wanted: Filter) -> bool:
    """Whether it asks for a text that may be stored as another one: see ``rows.without_nul``."""
    if wanted.fingerprint == "":
        return True  # a dead letter without a failure has an empty one too
    texts = (wanted.replay_run, wanted.fingerprint, wanted.text)
    return any(text is not None and ("\0" in text or "\ufffd" in text) for text in texts)


def _without(wanted: Filter) -> dict[str, object]:
    """Return the values that the exceptions of a filter exclude."""
    found: dict[str, list[object]] = {
        "without_ids": [],
        "without_tenants": [],
        "without_scopes": [],
        "without_states": [],
        "without_queues": [],
        "without_tasks": [],
        "without_keys": [],
        "without_error_reasons": [],
        "without_classes": [],
    }
    for one in wanted.without:
        found["without_ids"] += one.ids
        found["without_tenants"] += [] if one.tenant is None else [one.tenant]
        found["without_scopes"] += [] if one.scope is None else [one.scope]
        found["without_states"] += [rows.NUMBERS[state] for state in one.states]
        found["without_queues"] += one.queues
        found["without_tasks"] += one.tasks
        found["without_keys"] += one.keys
        found["without_error_reasons"] += one.error_reasons
        found["without_classes"] += [failure_class.value for failure_class in one.classes]
    return {name: values or None for name, values in found.items()}
