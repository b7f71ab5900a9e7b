"""A filter of jobs from named values: options of a command, or the query of a URL."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from holdfast.model import moments
from holdfast.model.errors import InvalidInput
from holdfast.model.failure import FailureClass
from holdfast.model.filter_words import OLD_STATES
from holdfast.model.job import State
from holdfast.model.search import Filter

NAMES: Mapping[str, str] = {
    "id": "ids",
    "status": "states",
    "queue": "queues",
    "task": "tasks",
    "tenant": "tenant",
    "scope": "scope",
    "key": "keys",
    "error_reason": "error_reasons",
    "class": "classes",
    "http_status": "statuses",
    "fingerprint": "fingerprint",
    "text": "text",
    "attempts": "attempts",
    "created_since": "created_since",
    "created_until": "created_until",
    "since": "finished_since",
    "until": "finished_until",
}
"""The conditions by the names that people write; ``filter_of`` takes those on the right."""
SEVERAL = frozenset(
    {"ids", "states", "queues", "tasks", "keys", "error_reasons", "classes", "statuses"}
)
"""The conditions that take several values."""


def filter_of(named: Mapping[str, object], now_us: int) -> Filter:
    """Return the filter of these conditions; raise ``InvalidInput`` naming a wrong one.

    A value is a text, or a tuple of them; ages count back from ``now_us``.
    """
    fields: dict[str, object] = {}
    for field, value in named.items():
        if value in (None, ()):
            continue
        if field == "states":
            fields[field] = tuple(_state(word) for word in _words(value))
        elif field == "classes":
            fields[field] = tuple(_class(word) for word in _words(value))
        elif field == "statuses":
            fields[field] = tuple(_status(word) for word in _words(value))
        elif field == "attempts":
            fields |= _attempts(str(value))
        elif field.endswith(("_since", "_until")):
            end = "from_us" if field.endswith("_since") else "to_us"
            name = f"{field.partition('_')[0]}_{end}"
            fields[name] = moments.moment_us(field, str(value), now_us)
        else:
            fields[field] = value
    make: Callable[..., Filter] = Filter
    wanted = make(**fields)
    wanted.check()
    return wanted


def _words(value: object) -> list[str]:
    return [
        part.strip()
        for word in (value if isinstance(value, tuple) else (value,))
        for part in str(word).split(",")
    ]


def _state(word: str) -> State:
    word = word.lower().replace("-", "_")
    if word in OLD_STATES:
        return OLD_STATES[word]
    try:
        return State(word)
    except ValueError:
        known = ", ".join([*State, *OLD_STATES])
        raise InvalidInput("states", f"{word!r} is not one of {known}") from None


def _class(word: str) -> FailureClass:
    try:
        return FailureClass(word.lower())
    except ValueError:
        known = ", ".join(FailureClass)
        raise InvalidInput("classes", f"{word!r} is not one of {known}") from None


def _status(word: str) -> int:
    if not (word.isascii() and word.isdigit() and len(word) <= 3):
        raise InvalidInput("statuses", f"{word[:60]!r} is not an HTTP status such as 404")
    return int(word)


def _attempts(text: str) -> dict[str, int]:
    found = re.fullmatch(r"([0-9]{1,9})(?:(\+)|-([0-9]{1,9}))?", text.strip())
    if found is None:
        raise InvalidInput("attempts", f"{text!r} is not a number such as 3, 2-5 or 3+")
    least, more, most = found.groups()
    if more:
        return {"attempts_from": int(least)}
    return {"attempts_from": int(least), "attempts_to": int(most or least) + 1}
