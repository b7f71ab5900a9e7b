"""Statistics of a store and its queues, for monitoring."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from holdfast.model.access import Caller
from holdfast.model.job import Job

from .contract import Counts
from .histogram import Histogram


class QueueStats(msgspec.Struct, frozen=True):
    """One queue at one moment."""

    counts: Counts = Counts()
    scheduled: int = 0
    """How many pending jobs are due later, retries included."""
    held: int = 0
    """How many unfinished jobs wait behind a dead one of their key."""
    oldest_due_us: int | None = None
    """When the claimable job that has waited longest became due."""
    stuck: int = 0
    """How many jobs in flight have a lease that ran out and was not reclaimed yet."""
    paused: bool = False
    outage: bool = False


class StoreStats(msgspec.Struct, frozen=True):
    """Every queue at one moment."""

    now_us: int = 0
    queues: Mapping[str, QueueStats] = {}
    outages: Mapping[str, int] = {}
    """Since when each dependency that is out, or recovers, has been out."""

    def oldest_age_seconds(self, queue: str) -> float:
        """Return for how long the job that has waited longest in a queue has been due."""
        since_us = self.queues[queue].oldest_due_us
        return 0.0 if since_us is None else max(0, self.now_us - since_us) / 1_000_000


class StoreMetrics(msgspec.Struct, frozen=True):
    """The metrics of a store at one moment."""

    survey: StoreStats
    fsync_seconds: Histogram
    batch_records: Histogram
    recovery_seconds: float = 0.0
    history_backlog: int = 0
    history_failing: bool = False


def count_jobs(jobs: Iterable[Job], caller: Caller) -> Mapping[str, Counts]:
    """Count these jobs by queue and state."""
    found: dict[str, dict[str, int]] = {}
    for job in jobs:
        if caller.can_access(job.tenant, job.scope):
            queue = found.setdefault(job.queue, {})
            queue[job.state] = queue.get(job.state, 0) + 1
    return {queue: Counts(**states) for queue, states in sorted(found.items())}
