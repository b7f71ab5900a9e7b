"""Waiting until events are in a read model, so that its readers see what was just written."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain, repeat

from holdfast.engines.contract import Engine
from holdfast.model.errors import (
    EventNotFound,
    InvalidInput,
    JobFailed,
    ResultTimeout,
    UnknownProjection,
)
from holdfast.model.job import State
from holdfast.model.projection import ProjectionState, queue_of
from holdfast.model.subscription import Subscription, job_id

_POLL_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)
_LONGEST_POLL_SECONDS = 0.1
_GET_AT_ONCE = 1_000


async def wait_until_projected(
    engine: Engine,
    projection: str,
    events: Sequence[tuple[str, str]],
    timeout_seconds: float | None = None,
) -> None:
    """Return when readers of the projection see all these events, each a tenant and an id.

    Raise ``UnknownProjection``; ``EventNotFound`` for an event that is not stored, such as one of a
    transaction that is not committed; ``InvalidInput`` if the projection does not take its type;
    ``JobFailed`` if it could not be applied; ``ResultTimeout`` when it takes longer.
    """
    loop = asyncio.get_running_loop()
    give_up = None if timeout_seconds is None else loop.time() + timeout_seconds
    waiting = list(dict.fromkeys(events))
    for pause_seconds in chain(_POLL_SECONDS, repeat(_LONGEST_POLL_SECONDS)):
        waiting = await _not_projected(engine, projection, waiting)
        if not waiting:
            return
        if give_up is not None and loop.time() >= give_up:
            raise ResultTimeout(
                f"{len(waiting):,} of {len(events):,} events are not in {projection} after "
                f"{timeout_seconds:g} s; they are stored, and will be: see `holdfast projections "
                f"show {projection}`"
            )
        left = pause_seconds if give_up is None else give_up - loop.time()
        await asyncio.sleep(min(pause_seconds, max(left, 0)))


async def _not_projected(
    engine: Engine, projection: str, events: Sequence[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Return those of the events that readers may not see yet."""
    known = await engine.projections()
    state = known.get(projection)
    if state is None:
        raise UnknownProjection(projection, known)
    subscription = (await engine.subscriptions()).get(queue_of(projection, state.live))
    if subscription is None:
        return list(events)  # the live generation is being changed at this moment
    by_tenant: defaultdict[str, list[str]] = defaultdict(list)
    for tenant, event_id in events:
        by_tenant[tenant].append(event_id)
    waiting: list[tuple[str, str]] = []
    for tenant, ids in by_tenant.items():
        for start in range(0, len(ids), _GET_AT_ONCE):
            some = ids[start : start + _GET_AT_ONCE]
            unseen = await _unapplied(
                engine, subscription, tenant, some, rebuilding=state.incomplete
            )
            waiting += ((tenant, event_id) for event_id in unseen)
    if not waiting and await _changed(engine, state):
        return list(events)
    return waiting


async def _unapplied(
    engine: Engine, subscription: Subscription, tenant: str, ids: Sequence[str], *, rebuilding: bool
) -> list[str]:
    """Return the events whose job in this generation has not ended; raise if it has failed.

    A rebuild in place withdraws jobs and makes them again: meanwhile they are cancelled.
    """
    jobs = await engine.get([job_id(subscription.name, one) for one in ids], tenant=tenant)
    found = dict(zip(ids, jobs, strict=True))
    await _check_without_job(
        engine, subscription, tenant, [one for one, job in found.items() if job is None]
    )
    unapplied: list[str] = []
    for event_id, job in found.items():
        if job is None or job.state is State.COMPLETED:
            continue
        if job.state.finished and not (rebuilding and job.state is State.CANCELLED):
            reason = "" if job.failure is None else job.failure.error_reason
            message = "" if job.failure is None else job.failure.message
            raise JobFailed(job.id, job.state.value, reason, message)
        unapplied.append(event_id)
    return unapplied


async def _check_without_job(
    engine: Engine, subscription: Subscription, tenant: str, ids: Sequence[str]
) -> None:
    """Return if these events need no job: its result is forgotten, or a rebuild applied them."""
    if not ids:
        return
    stored = await engine.get_events(ids, tenant=tenant)
    for event_id, event in zip(ids, stored, strict=True):
        if event is None:
            raise EventNotFound(event_id)
        if not subscription.wants(event.event_type):
            raise InvalidInput(
                "projection", f"{subscription.name} does not take events of {event.event_type}"
            )


async def _changed(engine: Engine, state: ProjectionState) -> bool:
    """Whether readers see another generation meanwhile, or one that is being filled in place."""
    now: Mapping[str, ProjectionState] = await engine.projections()
    current = now.get(state.name)
    return current is None or current.incomplete or current.live != state.live
