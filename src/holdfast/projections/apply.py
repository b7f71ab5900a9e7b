"""Applies a batch of events to one generation of a projection."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import msgspec

from holdfast.engines.contract import Engine
from holdfast.engines.read_models.contract import JobName, RowWriter
from holdfast.model.errors import LeaseLost
from holdfast.model.event import Event
from holdfast.model.job import Job
from holdfast.model.outcome import completed

from .declaration import ProjectedEvent, Projection

ReadEvent = Callable[[Event], ProjectedEvent]
"""Returns an event in the current version of its type."""
_REFERENCE = msgspec.json.Decoder(dict[str, str])


class EventMissing(LookupError):
    """A job refers to an event that the store does not have."""


async def events_of(engine: Engine, jobs: Sequence[Job]) -> Mapping[JobName, Event]:
    """Return the events that these jobs refer to; one that does not exist is left out."""
    by_tenant: defaultdict[str, list[tuple[Job, str]]] = defaultdict(list)
    for job in jobs:
        by_tenant[job.tenant].append((job, _REFERENCE.decode(job.payload)["event_id"]))
    found: dict[JobName, Event] = {}
    for tenant, named in by_tenant.items():
        events = await engine.get_events([event_id for _job, event_id in named], tenant=tenant)
        for (job, _event_id), event in zip(named, events, strict=True):
            if event is not None:
                found[tenant, job.id] = event
    return found


async def apply_jobs(
    engine: Engine,
    projection: Projection,
    generation: int,
    jobs: Sequence[Job],
    read: ReadEvent,
) -> list[LeaseLost | None]:
    """Apply the events of these jobs and complete them; for each, None or why it was refused.

    Whatever ``apply`` raises is raised, and nothing was changed.
    """
    events = await events_of(engine, jobs)
    for job in jobs:
        if (job.tenant, job.id) not in events:
            message = f"{job.payload.decode()} of job {job.id} does not exist"
            raise EventMissing(message)
    in_order = sorted(events.items(), key=lambda one: one[1].position)

    def apply(rows: RowWriter, skipped: frozenset[JobName]) -> None:
        left = [read(event) for name, event in in_order if name not in skipped]
        if left:
            projection.apply(left, rows)

    return await engine.read_models.apply(
        projection.table, generation, apply, [completed(job) for job in jobs]
    )
