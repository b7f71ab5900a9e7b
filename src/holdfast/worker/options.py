"""The options of a worker: its slots, queues and limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from holdfast.model.job import DEFAULT_TASK_TIMEOUT_SECONDS
from holdfast.model.retry import RetryPolicy


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one worker, shared by all of its slot pools."""

    slots: int = 8
    queue_slots: Mapping[str, int] | None = None
    """A slot pool of this size for each of these queues; None: one pool serves all queues."""
    queues: Sequence[str] | None = None
    """The queues to serve; None: every queue that is known or turns up."""
    lease_seconds: float = 30.0
    """How long a claim holds a job before it must be renewed."""
    task_timeout_seconds: float = DEFAULT_TASK_TIMEOUT_SECONDS
    """How long an attempt may take, unless its task sets its own timeout."""
    max_processing_seconds: float | None = None
    """How long a job may stay claimed; None: the timeout of its task and a minute."""
    batch_size: int | None = None
    """The most jobs per claim; None: as many as there are free slots."""
    poll_interval_seconds: float = 1.0
    """How long a claim waits for work; the next claim looks at the list of queues again."""
    retry: RetryPolicy = RetryPolicy()
    memory_limit_bytes: int | None = None
    cpu_limit_seconds: float | None = None
    inline: bool = False
