"""The words of a filter as one line, and which condition each of them is."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple

from .job import State

OLD_STATES = {
    "failed": State.DEAD,
    "processing": State.IN_FLIGHT,
    "done": State.COMPLETED,
    "queued": State.PENDING,
}
"""The names of states in other systems."""


class WordKind(enum.Enum):
    """What may stand behind a word."""

    NAMES = "some names"
    STATES = "some states"
    CLASSES = "some classes"
    STATUS_CODES = "some HTTP status codes"
    ONE = "one text"
    NUMBER = "a number or a range"
    AGE = "an age"
    TIME = "a date or an age"


class Word(NamedTuple):
    """A word, and the field of ``Filter`` that it sets, or what its range begins with."""

    kind: WordKind
    field: str


WORDS: Mapping[str, Word] = {
    "status": Word(WordKind.STATES, "states"),
    "queue": Word(WordKind.NAMES, "queues"),
    "task": Word(WordKind.NAMES, "tasks"),
    "reason": Word(WordKind.NAMES, "error_reasons"),
    "class": Word(WordKind.CLASSES, "classes"),
    "http": Word(WordKind.STATUS_CODES, "statuses"),
    "key": Word(WordKind.NAMES, "keys"),
    "scope": Word(WordKind.ONE, "scope"),
    "tenant": Word(WordKind.ONE, "tenant"),
    "id": Word(WordKind.NAMES, "ids"),
    "worker": Word(WordKind.NAMES, "workers"),
    "attempts": Word(WordKind.NUMBER, "attempts"),
    "age": Word(WordKind.AGE, "created"),
    "created": Word(WordKind.TIME, "created"),
    "finished": Word(WordKind.TIME, "finished"),
    "died": Word(WordKind.TIME, "finished"),
    "fingerprint": Word(WordKind.ONE, "fingerprint"),
    "text": Word(WordKind.ONE, "text"),
    "run": Word(WordKind.ONE, "replay_run"),
}
ALIASES: Mapping[str, str] = {
    "state": "status",
    "error_reason": "reason",
    "operation": "run",
    "replay_run": "run",
    "attempt": "attempts",
}
PAYLOAD = "payload"
"""The word that a path follows, as in ``payload.user.id=42``."""
