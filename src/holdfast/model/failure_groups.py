"""Dead letters in groups, to be examined, fixed and replayed together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from .failure import FailureClass
from .fingerprint import fingerprint
from .job import Job
from .search import HOUR_US, FailureGroup

GroupKey = tuple[str, str, FailureClass, str, int]
"""Queue, error_reason, class, fingerprint, and the hour of death."""


def group_key(job: Job) -> GroupKey | None:
    """Return the group of a dead job."""
    failure = job.failure
    if failure is None:
        return None
    return (
        job.queue,
        failure.error_reason,
        failure.failure_class,
        fingerprint(failure.message),
        job.finished_at_us // HOUR_US * HOUR_US,
    )


def key_of(group: FailureGroup) -> GroupKey:
    """Return the key of a group."""
    return (
        group.queue,
        group.error_reason,
        group.failure_class,
        group.fingerprint,
        group.hour_us,
    )


def group_dead_jobs(dead: Iterable[Job]) -> list[FailureGroup]:
    """Return the groups of these dead jobs, the largest first."""
    members: defaultdict[GroupKey, list[Job]] = defaultdict(list)
    for job in dead:
        key = group_key(job)
        if key is not None:
            members[key].append(job)
    groups = [
        FailureGroup(
            queue=key[0],
            error_reason=key[1],
            failure_class=key[2],
            fingerprint=key[3],
            hour_us=key[4],
            count=len(jobs),
            first_at_us=min(job.finished_at_us for job in jobs),
            last_at_us=max(job.finished_at_us for job in jobs),
            tenants=len({job.tenant for job in jobs}),
            scopes=len({(job.tenant, job.scope) for job in jobs}),
        )
        for key, jobs in members.items()
    ]
    return sorted(groups, key=lambda group: (-group.count, -group.last_at_us, key_of(group)))
