"""What a crew goes by, and why it ends an attempt."""

from __future__ import annotations

import enum
from typing import Protocol


class SlotOptions(Protocol):
    """What every crew of a worker goes by; settings that may change are read each time."""

    @property
    def lease_seconds(self) -> float:
        """How long a claim holds a job before it must be renewed."""

    @property
    def task_timeout_seconds(self) -> float:
        """How long an attempt may take unless its task says otherwise."""

    @property
    def batch_size(self) -> int | None:
        """How many jobs one claim takes at most; None is as many as there are free slots."""

    @property
    def poll_interval_seconds(self) -> float:
        """How long a claim waits for work: then it looks again at which queues there are."""


class StopReason(enum.Enum):
    """Why an attempt was ended from outside."""

    TIMEOUT = "timeout"
    LOST = "lost"
    DRAINED = "drained"
    STOPPED = "stopped"
    """Somebody asked for it to be cancelled."""
