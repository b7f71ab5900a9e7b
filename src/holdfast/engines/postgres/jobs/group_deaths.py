"""Counts deaths in the lives of groups that people touched, when the jobs are written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from holdfast.engines.postgres.connection.sansio import Statement
from holdfast.model.group_life import group_id, group_key
from holdfast.model.job import Job


def count_deaths(jobs: Iterable[Job]) -> Statement:
    """Return the statement that counts jobs that died, in groups that people touched."""
    counts: Counter[str] = Counter()
    last_at_us: dict[str, int] = {}
    for job in jobs:
        key = group_key(job)
        if key is not None:
            name = group_id(key)
            counts[name] += 1
            last_at_us[name] = max(last_at_us.get(name, 0), job.finished_at_us)
    columns: dict[str, object] = {
        "groups": list(counts),
        "counts": list(counts.values()),
        "last_at_us": [last_at_us[name] for name in counts],
    }
    return Statement("add_group_deaths", columns)
