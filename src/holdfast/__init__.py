"""Holdfast: a durable job queue that starts as one process with a write-ahead log and no server."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .app import Holdfast
    from .model.errors import (
        DuplicateId,
        HoldfastError,
        InvalidInput,
        JobFailed,
        JobNotFound,
        NoOwner,
        ResultTimeout,
        StorageError,
        Unavailable,
        UnknownTask,
    )
    from .model.failure import Classifier, Rule, Verdict
    from .model.signals import Cancel, Dead, Retry, Snooze
    from .task import JobHandle, Task
    from .worker.attempt import Attempt, current

__version__ = "0.2.0"

__all__ = [
    "Attempt",
    "Cancel",
    "Classifier",
    "Dead",
    "DuplicateId",
    "Holdfast",
    "HoldfastError",
    "InvalidInput",
    "JobFailed",
    "JobHandle",
    "JobNotFound",
    "NoOwner",
    "ResultTimeout",
    "Retry",
    "Rule",
    "Snooze",
    "StorageError",
    "Task",
    "Unavailable",
    "UnknownTask",
    "Verdict",
    "current",
]

_MODULES = {
    "Attempt": "holdfast.worker.attempt",
    "Cancel": "holdfast.model.signals",
    "Classifier": "holdfast.model.failure",
    "Dead": "holdfast.model.signals",
    "Holdfast": "holdfast.app",
    "JobHandle": "holdfast.task",
    "Retry": "holdfast.model.signals",
    "Rule": "holdfast.model.failure",
    "Snooze": "holdfast.model.signals",
    "Task": "holdfast.task",
    "Verdict": "holdfast.model.failure",
    "current": "holdfast.worker.attempt",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: commands must start fast."""
    if name not in __all__:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    return getattr(import_module(_MODULES.get(name, "holdfast.model.errors")), name)
