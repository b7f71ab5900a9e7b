"""Why jobs are not claimed: the situation of each, read in one snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.engines.contract import MAX_CLAIM
from holdfast.engines.postgres import rows
from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.sansio import Row, SansIO, Statement, execute, execute_all
from holdfast.engines.postgres.jobs.claim_statements import ClaimRequest
from holdfast.engines.postgres.jobs.limited_claim import pick
from holdfast.engines.postgres.jobs.unit_of_work import Name
from holdfast.engines.postgres.outages import read_outages
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.explain import ClaimSituation, ClaimUsage, Explanation, explain
from holdfast.model.job import Job
from holdfast.model.outage import Outage, dependency_of
from holdfast.model.policy import DEFAULT_POLICY

from .queries import get


def explain_jobs(
    names: Sequence[Name], caller: Caller, context: CallContext
) -> SansIO[dict[Name, Explanation]]:
    """Return what keeps those of these jobs from being claimed that exist."""
    yield from execute("use_one_snapshot")
    jobs = yield from get(names, caller, context)
    [[[now_us]], policies] = yield from execute_all(context.now(), Statement("list_policies", {}))
    packed: Mapping[str, bytes] = dict(policies)
    outages = {one.dependency: one for one in (yield from read_outages())}
    found: dict[Name, Explanation] = {}
    for name, job in jobs.items():
        situation = ClaimSituation(now_us=now_us)
        if not job.state.finished:
            situation = yield from _situation(
                job,
                packed.get(job.queue),
                outages.get(dependency_of(job.queue)),
                now_us,
                context,
            )
        found[name] = explain(job, situation)
    return found


def _situation(
    job: Job, packed: bytes | None, outage: Outage | None, now_us: int, context: CallContext
) -> SansIO[ClaimSituation]:
    policy = DEFAULT_POLICY if packed is None else rows.POLICY.decode(packed)
    needed = [(job.tenant, one) for one in job.ties.waiting_for]
    known = yield from get(needed, SYSTEM, context)
    columns = {"tenant": job.tenant, "queue": job.queue, "key": job.ties.key}
    heads, in_flight, spent = yield from execute_all(
        Statement("find_key_head", {**columns, "id": job.id, "key_seq": job.ties.key_seq}),
        Statement("count_in_flight", {"queues": [job.queue]}),
        Statement("read_spent", {"queue": job.queue}),
    )
    head = rows.job_of(heads[0]) if heads and policy.ordered else None
    if policy.limits_claims or outage is not None:
        request = ClaimRequest((job.queue,), None, MAX_CLAIM, "", 0, 0.0, SYSTEM)
        claimable, _budget, _now_us = yield from pick(request, context)
        before = 0
    else:
        before, in_line = yield from _count_before(job, now_us)
        claimable = [job] if in_line and before < MAX_CLAIM else []
    return ClaimSituation(
        now_us=now_us,
        policy=policy,
        usage=_usage(job, in_flight, spent[0][0] if spent else 0),
        key_head=head,
        dependencies={name[1]: known[name].state if name in known else None for name in needed},
        claimable=tuple(claimable),
        before=before,
        outage=outage,
    )


def _count_before(job: Job, now_us: int) -> SansIO[tuple[int, bool]]:
    """Return how many due jobs come before this one, and whether it is due and in line itself."""
    place = {
        "tenant": job.tenant,
        "id": job.id,
        "queue": job.queue,
        "priority": job.priority,
        "run_at_us": job.run_at_us,
        "seq": job.seq,
        "at_us": now_us,
        "limit": MAX_CLAIM,
    }
    [[before, in_line]] = yield from execute("count_before", **place)
    return before, in_line


def _usage(job: Job, in_flight: Sequence[Row], spent_until_us: int) -> ClaimUsage:
    of_queue = sum(count for _queue, _tenant, _key, count in in_flight)
    theirs = [(key, count) for _queue, tenant, key, count in in_flight if tenant == job.tenant]
    of_tenant = sum(count for _key, count in theirs)
    of_key = sum(count for key, count in theirs if key is not None and key == job.ties.key)
    return ClaimUsage(of_queue, of_tenant, of_key, spent_until_us)
