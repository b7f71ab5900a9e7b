"""Queue policies, flags and schedules."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.engines.postgres import rows
from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.sansio import SansIO, Statement, execute, execute_all
from holdfast.model.audit import Attribution
from holdfast.model.audit_changes import (
    flag_facts,
    policy_facts,
    schedule_facts,
    with_facts,
)
from holdfast.model.effects import ScheduleState
from holdfast.model.errors import ChangedMeanwhile
from holdfast.model.policy import DEFAULT_POLICY, QueuePolicy

from .audit import add_audit

COMMON_LINE, LINE_BY_TENANT = 1, 2


def line_of(policy: QueuePolicy) -> int:
    """Return the line of the jobs of such a queue."""
    by_tenant = policy.fair or policy.max_per_tenant is not None
    return LINE_BY_TENANT if by_tenant else COMMON_LINE


def policies() -> SansIO[Mapping[str, QueuePolicy]]:
    """Return the policies of queues that have one of their own."""
    found = yield from execute("list_policies")
    return {queue: rows.POLICY.decode(policy) for queue, policy in found}


def set_policy(
    queue: str,
    policy: QueuePolicy | None,
    attribution: Attribution,
    expected: QueuePolicy | None,
    context: CallContext,
) -> SansIO[None]:
    """Give a queue a policy; move its jobs to the line of that policy."""
    yield from execute("lock_keys", names=[f"queue/{queue}"])
    [[[now_us]], found] = yield from execute_all(context.now(), Statement("list_policies", {}))
    held = {name: rows.POLICY.decode(packed) for name, packed in found}.get(queue, DEFAULT_POLICY)
    if expected is not None and held != expected:
        raise ChangedMeanwhile("queue", queue)
    after = policy or DEFAULT_POLICY
    if policy is None:
        yield from execute("drop_policy", queue=queue)
    else:
        yield from execute("put_policy", **policy_columns(queue, policy))
    if (after.ordered, line_of(after)) != (held.ordered, line_of(held)):
        yield from execute("change_lines", queue=queue, line=line_of(after), ordered=after.ordered)
    audit = with_facts(attribution.audit, policy_facts(held, after))
    yield from add_audit(audit, now_us)
    yield from execute_all(context.notify([queue]))


def policy_columns(queue: str, policy: QueuePolicy) -> dict[str, object]:
    """Return a policy as columns."""
    return {
        "queue": queue,
        "line": line_of(policy),
        "ordered": policy.ordered,
        "limited": policy.limits_claims,
        "policy": rows.pack(policy),
        "keep_payload": policy.keep_payload,
    }


def flags() -> SansIO[Mapping[str, bool]]:
    """Return the flags that were switched."""
    found = yield from execute("list_flags")
    return dict(found)


def set_flag(
    name: str, attribution: Attribution, context: CallContext, *, to: bool | None
) -> SansIO[None]:
    """Switch a flag, or remove it."""
    yield from execute("lock_keys", names=[f"flag/{name}"])
    before = (yield from flags()).get(name)
    [[[now_us]], _done] = yield from execute_all(
        context.now(), Statement("set_flag", {"name": name, "to": to})
    )
    yield from add_audit(with_facts(attribution.audit, flag_facts(before, to)), now_us)


def schedules() -> SansIO[Mapping[str, ScheduleState]]:
    """Return the schedules."""
    found = yield from execute("list_schedules")
    return {name: rows.SCHEDULE.decode(schedule) for name, schedule in found}


def set_schedule(
    name: str,
    schedule: ScheduleState | None,
    attribution: Attribution,
    expected: ScheduleState | None,
    context: CallContext,
) -> SansIO[None]:
    """Add, change or remove a schedule."""
    yield from execute("lock_keys", names=[f"schedule/{name}"])
    [[[now_us]]] = yield from execute_all(context.now())
    before = (yield from schedules()).get(name)
    if expected is not None and before != expected:
        raise ChangedMeanwhile("schedule", name)
    packed = None if schedule is None else rows.pack(schedule)
    yield from execute("set_schedule", name=name, schedule=packed)
    yield from add_audit(with_facts(attribution.audit, schedule_facts(before, schedule)), now_us)
