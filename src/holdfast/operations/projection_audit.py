"""The auditor: every event has its jobs, or their results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from holdfast.engines.contract import Engine
from holdfast.model.event import Event
from holdfast.model.event_search import EventFilter
from holdfast.model.job import MICROSECONDS
from holdfast.model.search import MAX_PAGE
from holdfast.model.subscription import Subscription, job_id

from .attribution import MAX_NAMED_IDS
from .projection_views import MissingJobs

MAX_AUDITED = 20_000
"""How many events are looked at, the newest first."""
_MARGIN = 0.9
"""Of the time for which results are kept: at its end some are forgotten while this runs."""


async def find_missing_jobs(engine: Engine, remember_seconds: float) -> MissingJobs:
    """Look at the newest events, as long as the results of their jobs are kept.

    Results may be forgotten sooner, by size, the oldest first. So what is missing counts only if
    something older of the same subscription is known.
    """
    subscriptions = list((await engine.subscriptions()).values())
    since_us = await engine.now_us() - int(remember_seconds * _MARGIN * MICROSECONDS)
    checked, cursor = 0, ""
    missing: list[str] = []
    doubtful: defaultdict[str, list[str]] = defaultdict(list)
    while subscriptions and checked < MAX_AUDITED:
        page = await engine.find_events(EventFilter(), cursor=cursor, limit=MAX_PAGE, newest=True)
        recent = [event for event in page.events if event.created_at_us >= since_us]
        for subscription in subscriptions:
            for name, known in await _jobs_of(engine, recent, subscription):
                if not known:
                    doubtful[subscription.name].append(name)
                else:
                    missing += doubtful.pop(subscription.name, ())
        checked += len(recent)
        cursor = page.cursor
        if not cursor or len(recent) < len(page.events):
            break
    unknown = sum(len(names) for names in doubtful.values())
    return MissingJobs(checked, len(missing), missing[:MAX_NAMED_IDS], unknown)


async def _jobs_of(
    engine: Engine, events: Sequence[Event], subscription: Subscription
) -> list[tuple[str, bool]]:
    """Return the jobs that these events must have, the newest first, and whether each is known."""
    by_tenant: defaultdict[str, list[str]] = defaultdict(list)
    for event in events:
        given = event.fanout_version >= subscription.since_version
        if given and subscription.wants(event.event_type):
            by_tenant[event.tenant].append(job_id(subscription.name, event.id))
    found: list[tuple[str, bool]] = []
    for tenant, names in by_tenant.items():
        jobs = await engine.get(names, tenant=tenant)
        found += [(name, job is not None) for name, job in zip(names, jobs, strict=True)]
    return found
