"""Settings that are good one by one, and make no sense together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.model.durations import shown as shown_seconds
from holdfast.model.errors import InvalidInput
from holdfast.model.masking import masked

from .parsers import queue_slots

if TYPE_CHECKING:
    from .fields import Settings

_NO_LONGER_THAN = (
    ("base_backoff_seconds", "max_backoff_seconds", "the first wait is longer than any may be"),
    ("lease_seconds", "max_processing_seconds", "a job would be taken before its lease ends"),
    ("task_timeout_seconds", "max_processing_seconds", "no task could ever run into its time-out"),
)
"""A setting, the one that it may not exceed, and what that would mean."""


def clashes(settings: Settings) -> Iterator[InvalidInput]:
    """Return what cannot be meant. A setting at its default gives way: only what is said clashes.

    Whoever sets only ``max_backoff_seconds`` to half a second wants short waits, and gets them.
    """
    for field, other, meaning in _NO_LONGER_THAN:
        value, most = getattr(settings, field), getattr(settings, other)
        if value > most and value != _default(settings, field):
            yield InvalidInput(
                field,
                f"{shown_seconds(value)} is more than {other}, which is {shown_seconds(most)}: "
                f"{meaning}",
            )


def doubts(settings: Settings) -> Iterator[str]:
    """Return what works but may not be what was meant, a sentence each."""
    timeout, most = settings.task_timeout_seconds, settings.max_processing_seconds
    if timeout > most:
        yield (
            f"max_processing_seconds: {shown_seconds(most)} is less than the default time-out of a "
            f"task, {shown_seconds(timeout)}: what runs longer is taken away and runs again"
        )
    if settings.worker_count != _default(settings, "worker_count") and settings.queues is not None:
        slots = queue_slots(settings.queues)
        if None not in slots.values():
            yield (
                f"worker_count: {settings.worker_count} has no effect: every queue of "
                f"{masked(settings.queues)} has slots of its own"
            )
    if settings.metrics_port is None and settings.metrics_host != _default(
        settings, "metrics_host"
    ):
        yield f"metrics_host: {settings.metrics_host} has no effect: metrics_port is off"


def _default(settings: Settings, field: str) -> object:
    return settings.__struct_defaults__[settings.__struct_fields__.index(field)]
