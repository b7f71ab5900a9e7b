"""What an unfinished job waits for, as far as the stored state tells."""

from __future__ import annotations

from collections.abc import AsyncIterator

from holdfast.engines.contract import Counts, Engine
from holdfast.model.durations import format_seconds
from holdfast.model.job import Job, State
from holdfast.model.outage import dependency_of
from holdfast.model.policy import DEFAULT_POLICY, QueuePolicy
from holdfast.model.search import MAX_PAGE, Filter

from .views import WaitView, date_of

_MOST_PAGES = 10
_WAYS_ON = {
    State.DEAD: "replay or archive it: `holdfast replay {id}`, `holdfast dead archive {id}`",
    State.BLOCKED: "see `holdfast jobs show {id}`",
    State.PENDING: "see `holdfast jobs show {id}`",
}
"""What to do about a job in this state that others wait for."""


async def waits_of(engine: Engine, job: Job, now_us: int) -> list[WaitView]:
    """Return everything that this job waits for; nothing if it is in flight or finished."""
    if job.state not in (State.PENDING, State.BLOCKED):
        return []
    found = [
        WaitView("dependency", _other(other, job_id), job_id)
        for job_id, other in await _dependencies(engine, job)
    ]
    if job.ties.hold:
        text = f"the confirmation of a person: `holdfast jobs confirm {job.id} --reason …`"
        found.append(WaitView("confirmation", text))
    policy = (await engine.policies()).get(job.queue, DEFAULT_POLICY)
    if job.ties.key is not None and policy.ordered:
        head = await _key_head(engine, job)
        if head is not None:
            text = f"{_other(head, head.id)}; it is before this one in key {job.ties.key!r}"
            found.append(WaitView("key", text, head.id))
    if job.run_at_us > now_us:
        found.append(WaitView("time", f"its time, {date_of(job.run_at_us):%Y-%m-%d %H:%M:%S} UTC"))
    found += await _limits(engine, job, policy)
    return found or [WaitView("worker", f"a free slot of a worker that serves {job.queue!r}")]


def _other(job: Job | None, job_id: str) -> str:
    if job is None:
        return f"job {job_id!r}, which is gone"
    way_on = _WAYS_ON.get(job.state, "")
    state = job.state.value.replace("_", " ")
    return f"job {job_id!r}, which is {state}" + (f": {way_on.format(id=job_id)}" if way_on else "")


async def _dependencies(engine: Engine, job: Job) -> list[tuple[str, Job | None]]:
    ids = list(job.ties.waiting_for)
    if not ids:
        return []
    return list(zip(ids, await engine.get(ids, tenant=job.tenant), strict=True))


async def _key_head(engine: Engine, job: Job) -> Job | None:
    """Return the job of the same key that must go first: one in flight, or the first before it."""
    before: Job | None = None
    states = (State.PENDING, State.BLOCKED, State.IN_FLIGHT, State.DEAD)
    async for other in _found(engine, job, states, key=True):
        if other.id == job.id:
            continue
        if other.state is State.IN_FLIGHT:
            return other
        place = other.ties.key_seq
        if place < job.ties.key_seq and (before is None or place < before.ties.key_seq):
            before = other
    return before


async def _limits(engine: Engine, job: Job, policy: QueuePolicy) -> list[WaitView]:
    """Return what an outage and the policy of its queue hold back."""
    queue, found = job.queue, []
    if policy.paused:
        text = f"queue {queue!r}, which is paused: `holdfast queues resume {queue} --reason …`"
        found.append(WaitView("paused", text))
    for outage in await engine.outages():
        if outage.dependency == dependency_of(queue):
            text = (
                f"{outage.dependency!r}, which is {outage.phase.value} since "
                f"{date_of(outage.since_us):%Y-%m-%d %H:%M:%S} UTC: see `holdfast outages list`"
            )
            found.append(WaitView("outage", text))
    if policy.rate is not None:
        rate = f"{policy.rate.count} per {format_seconds(policy.rate.per_seconds)}"
        found.append(WaitView("limit", f"perhaps queue {queue!r}, which starts at most {rate}"))
    run_at_once: list[tuple[int, str, int]] = []
    if policy.max_in_flight is not None:
        counts = (await engine.counts()).get(queue, Counts())
        run_at_once.append((policy.max_in_flight, "", counts.in_flight))
    if policy.max_per_tenant is not None:
        flying = await _flying(engine, job, key=False)
        run_at_once.append((policy.max_per_tenant, " of a tenant", flying))
    if policy.max_per_key is not None and job.ties.key is not None:
        run_at_once.append((policy.max_per_key, " of a key", await _flying(engine, job, key=True)))
    for most, whose, count in run_at_once:
        if count >= most:
            text = f"queue {queue!r}, which runs at most {most}{whose} at once, and {count} run"
            found.append(WaitView("limit", text))
    return found


async def _flying(engine: Engine, job: Job, *, key: bool) -> int:
    """Return how many jobs of its tenant, or of its key, are in flight in its queue."""
    return len([one async for one in _found(engine, job, (State.IN_FLIGHT,), key=key)])


async def _found(
    engine: Engine, job: Job, states: tuple[State, ...], *, key: bool
) -> AsyncIterator[Job]:
    """Yield jobs of its tenant and queue in these states; with ``key`` only those of its key."""
    keys = (job.ties.key,) if key and job.ties.key is not None else ()
    wanted = Filter(tenant=job.tenant, queues=(job.queue,), states=states, keys=keys)
    cursor = ""
    for _page in range(_MOST_PAGES):
        page = await engine.find(wanted, cursor=cursor, limit=MAX_PAGE)
        for one in page.jobs:
            yield one
        cursor = page.cursor
        if not cursor:
            return
