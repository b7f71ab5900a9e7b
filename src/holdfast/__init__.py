"""Holdfast: a durable job queue that starts as one process with a write-ahead log and no server."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .app import Holdfast
    from .call import Call
    from .event_handle import EventHandle
    from .job_handle import JobHandle
    from .model.actor import Actor
    from .model.errors import (
        DuplicateId,
        EventConflict,
        EventInvalid,
        HoldfastError,
        InvalidInput,
        JobFailed,
        JobNotFound,
        NoOwner,
        NoResult,
        PayloadInvalid,
        ResultTimeout,
        StorageError,
        StorageFull,
        TooLarge,
        Unavailable,
        UnknownDependency,
        UnknownEventType,
        UnknownProjection,
        UnknownTask,
        WrongLoop,
    )
    from .model.event_rules import rule
    from .model.failure import Classifier, FailureClass, Rule, Verdict
    from .model.job import Job, State
    from .model.signals import BatchError, Cancel, Dead, Retry, Snooze
    from .task import Task
    from .worker.attempt import Attempt, current

__version__ = "0.2.0"

__all__ = [
    "Actor",
    "Attempt",
    "BatchError",
    "Call",
    "Cancel",
    "Classifier",
    "Dead",
    "DuplicateId",
    "EventConflict",
    "EventHandle",
    "EventInvalid",
    "FailureClass",
    "Holdfast",
    "HoldfastError",
    "InvalidInput",
    "Job",
    "JobFailed",
    "JobHandle",
    "JobNotFound",
    "NoOwner",
    "NoResult",
    "PayloadInvalid",
    "ResultTimeout",
    "Retry",
    "Rule",
    "Snooze",
    "State",
    "StorageError",
    "StorageFull",
    "Task",
    "TooLarge",
    "Unavailable",
    "UnknownDependency",
    "UnknownEventType",
    "UnknownProjection",
    "UnknownTask",
    "Verdict",
    "WrongLoop",
    "current",
    "rule",
]

_MODULES = {
    "Actor": "holdfast.model.actor",
    "EventHandle": "holdfast.event_handle",
    "rule": "holdfast.model.event_rules",
    "Attempt": "holdfast.worker.attempt",
    "Call": "holdfast.call",
    "Cancel": "holdfast.model.signals",
    "Classifier": "holdfast.model.failure",
    "Dead": "holdfast.model.signals",
    "FailureClass": "holdfast.model.failure",
    "Holdfast": "holdfast.app",
    "Job": "holdfast.model.job",
    "JobHandle": "holdfast.job_handle",
    "Retry": "holdfast.model.signals",
    "Rule": "holdfast.model.failure",
    "Snooze": "holdfast.model.signals",
    "BatchError": "holdfast.model.signals",
    "State": "holdfast.model.job",
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
