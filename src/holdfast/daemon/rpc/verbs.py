"""One door for each verb: reads a call, makes it, and writes the answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast.engines.contract import Counts, Engine
from holdfast.engines.protocol import messages
from holdfast.model.effects import ScheduleState
from holdfast.model.policy import QueuePolicy

Q = TypeVar("Q")
A = TypeVar("A")

Performance = Callable[[Engine], Awaitable[bytes]]
"""Makes a call, and returns its answer as bytes."""


async def _settle(engine: Engine, call: messages.SettleCall) -> list[messages.LostLease | None]:
    answers = await engine.settle(call.outcomes, caller=call.caller)
    return [messages.lost(answer) for answer in answers]


async def _extend(engine: Engine, call: messages.ExtendCall) -> list[messages.ExtendAnswer]:
    answers = await engine.extend(call.held, lease_seconds=call.lease_seconds, caller=call.caller)
    return [messages.extended(answer) for answer in answers]


async def _counts(engine: Engine, call: messages.CountsCall) -> dict[str, Counts]:
    return dict(await engine.counts(caller=call.caller))


async def _policies(engine: Engine, _call: messages.Empty) -> dict[str, QueuePolicy]:
    return dict(await engine.policies())


async def _set_policy(engine: Engine, call: messages.SetPolicyCall) -> messages.Empty:
    await engine.set_policy(
        call.queue, call.policy, call.attribution, expected=call.expected, caller=call.caller
    )
    return messages.Empty()


async def _flags(engine: Engine, _call: messages.Empty) -> dict[str, bool]:
    return dict(await engine.flags())


async def _set_flag(engine: Engine, call: messages.SetFlagCall) -> messages.Empty:
    await engine.set_flag(call.name, call.attribution, on=call.on, caller=call.caller)
    return messages.Empty()


async def _schedules(engine: Engine, _call: messages.Empty) -> dict[str, ScheduleState]:
    return dict(await engine.schedules())


async def _set_schedule(engine: Engine, call: messages.SetScheduleCall) -> messages.Empty:
    await engine.set_schedule(
        call.name, call.schedule, call.attribution, expected=call.expected, caller=call.caller
    )
    return messages.Empty()


def door(
    verb: messages.Verb[Q, A], ask: Callable[[Engine, Q], Awaitable[A]]
) -> Callable[[bytes], Performance]:
    """Return what reads a call of this verb and makes it ready."""

    def ready(body: bytes) -> Performance:
        call = verb.read_call(body)

        async def perform(engine: Engine) -> bytes:
            return verb.write_answer(await ask(engine, call))

        return perform

    return ready


DOORS = {
    messages.ENQUEUE.name: door(
        messages.ENQUEUE,
        lambda engine, call: engine.enqueue(
            call.jobs, caller=call.caller, on_duplicate=call.on_duplicate
        ),
    ),
    messages.SETTLE.name: door(messages.SETTLE, _settle),
    messages.EXTEND.name: door(messages.EXTEND, _extend),
    messages.RECLAIM.name: door(
        messages.RECLAIM,
        lambda engine, call: engine.reclaim(
            limit=call.limit, forced=call.forced, attribution=call.attribution, caller=call.caller
        ),
    ),
    messages.GET.name: door(
        messages.GET,
        lambda engine, call: engine.get(call.ids, tenant=call.tenant, caller=call.caller),
    ),
    messages.COUNTS.name: door(messages.COUNTS, _counts),
    messages.QUEUES.name: door(
        messages.QUEUES, lambda engine, call: engine.queues(caller=call.caller)
    ),
    messages.VALIDATE.name: door(messages.VALIDATE, lambda engine, _call: engine.validate()),
    messages.FIND.name: door(
        messages.FIND,
        lambda engine, call: engine.find(
            call.wanted,
            cursor=call.cursor,
            limit=call.limit,
            newest=call.newest,
            caller=call.caller,
        ),
    ),
    messages.GROUPS.name: door(
        messages.GROUPS, lambda engine, call: engine.groups(call.wanted, caller=call.caller)
    ),
    messages.HISTORY.name: door(
        messages.HISTORY,
        lambda engine, call: engine.history(call.ids, tenant=call.tenant, caller=call.caller),
    ),
    messages.OPERATE.name: door(
        messages.OPERATE,
        lambda engine, call: engine.operate(
            call.action, call.wanted, call.attribution, limit=call.limit, caller=call.caller
        ),
    ),
    messages.EDIT.name: door(
        messages.EDIT,
        lambda engine, call: engine.edit(
            call.job, call.changes, call.attribution, version=call.version, caller=call.caller
        ),
    ),
    messages.POLICIES.name: door(messages.POLICIES, _policies),
    messages.SET_POLICY.name: door(messages.SET_POLICY, _set_policy),
    messages.FLAGS.name: door(messages.FLAGS, _flags),
    messages.SET_FLAG.name: door(messages.SET_FLAG, _set_flag),
    messages.SCHEDULES.name: door(messages.SCHEDULES, _schedules),
    messages.SET_SCHEDULE.name: door(messages.SET_SCHEDULE, _set_schedule),
    messages.AUDIT.name: door(
        messages.AUDIT, lambda engine, call: engine.audit(call.entries, caller=call.caller)
    ),
    messages.AUDITED.name: door(
        messages.AUDITED, lambda engine, call: engine.audited(after=call.after, limit=call.limit)
    ),
}
