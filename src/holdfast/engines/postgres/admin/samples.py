"""Samples of the queues: one process of the cluster takes them, from the tables.

Rates are counted from the rows themselves, not by the processes: many of those that enqueue are
not daemons, and any of them may end at any time. A row is counted by its own time, and
``_LATE_SECONDS`` after it: its transaction may have been open until then.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.engines.clock import monotonic
from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.database import Database
from holdfast.engines.postgres.connection.sansio import SansIO, Statement, execute, execute_all
from holdfast.engines.postgres.maintenance.periodic_lock import PeriodicLock
from holdfast.model.job import MICROSECONDS
from holdfast.model.samples import (
    COST_FACTOR,
    QueueDepth,
    QueueFlow,
    QueueSample,
    SampleQuery,
    Series,
    Tier,
    bounded,
    columns_of,
    series_of,
)

_LATE_SECONDS = 2.0
_MOST_INTERVALS = 6
"""How many intervals back is counted after a pause: what is longer ago is in no rate."""
_KNOWN_US = 3_600 * MICROSECONDS
"""How long a queue is sampled after there was anything in it."""
_COLUMNS = (
    "pending",
    "in_flight",
    "blocked",
    "dead",
    "held",
    "oldest_age_seconds",
    "enqueued",
    "completed",
    "retried",
    "died",
    "seconds",
)


async def take(database: Database, every_seconds: float, context: CallContext) -> float:
    """See ``Engine.take_sample``."""
    last = await database.read(lambda: execute("read_last_sample"))
    cost_seconds = last[0][1] if last else 0.0
    interval_seconds = max(every_seconds, COST_FACTOR * cost_seconds)
    lock = PeriodicLock("samples", interval_seconds)
    taken = await lock.run(database, lambda: _take(interval_seconds, context), context)
    if taken is None:
        return interval_seconds
    return max(every_seconds, COST_FACTOR * taken)


def _take(interval_seconds: float, context: CallContext) -> SansIO[float]:
    """Take a sample; return how many seconds that took."""
    began = monotonic()
    [[now_us]], last = yield from execute_all(context.now(), Statement("read_last_sample", {}))
    least_us = now_us - int(_MOST_INTERVALS * interval_seconds * MICROSECONDS)
    since_us = now_us - int(interval_seconds * MICROSECONDS)
    if last and least_us <= last[0][0] < now_us:
        since_us = last[0][0]
    late_us = int(_LATE_SECONDS * MICROSECONDS)
    samples = yield from _count(now_us, since_us - late_us, now_us - late_us)
    yield from _keep(now_us, bounded(samples))
    cost_seconds = monotonic() - began
    yield from execute("put_last_sample", at_us=now_us, cost_seconds=cost_seconds)
    return cost_seconds


def _count(now_us: int, from_us: int, to_us: int) -> SansIO[Mapping[str, QueueSample]]:
    times = {"from_us": from_us, "to_us": to_us, "now_us": now_us}
    counted, held_of, known = yield from execute_all(
        Statement("sample_store", times),
        Statement("count_held", {}),
        Statement("sample_queues", {"after_us": now_us - _KNOWN_US}),
    )
    held: dict[str, int] = dict(held_of)
    seconds = (to_us - from_us) / MICROSECONDS
    found = {queue: QueueSample(QueueDepth(), QueueFlow(), seconds) for (queue,) in known}
    for queue, pending, in_flight, blocked, dead, due_us, *flow in counted:
        age_seconds = 0.0 if due_us is None else max(0, now_us - due_us) / MICROSECONDS
        depth = QueueDepth(pending, in_flight, blocked, dead, held.get(queue, 0), age_seconds)
        found[queue] = QueueSample(depth, QueueFlow(*flow), seconds)
    return found


def _keep(at_us: int, samples: Mapping[str, QueueSample]) -> SansIO[None]:
    columns = [columns_of(sample) for sample in samples.values()]
    values = zip(*columns, strict=True) if columns else [()] * len(_COLUMNS)
    named = {name: list(column) for name, column in zip(_COLUMNS, values, strict=True)}
    yield from execute_all(
        Statement("put_samples", {"at_us": at_us, "queues": list(samples), **named}),
        *(
            Statement("forget_samples", {"tier": tier.value, "before_us": at_us - tier.kept_us})
            for tier in Tier
        ),
    )


def read(query: SampleQuery) -> SansIO[Series]:
    """See ``Engine.samples``."""
    rows = yield from execute(
        "read_samples",
        tier=query.tier.value,
        from_us=query.from_us,
        to_us=query.to_us,
        step_us=query.step_us,
        queues=list(query.queues) or None,
    )
    return series_of(rows)
