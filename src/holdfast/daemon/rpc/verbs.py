"""One door for each verb: reads a call, makes it, and writes the answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from holdfast.engines.contract import AdminResult, Counts, Engine
from holdfast.engines.protocol import messages
from holdfast.model.access import Caller
from holdfast.model.audit import Attribution
from holdfast.model.effects import ScheduleState
from holdfast.model.policy import QueuePolicy
from holdfast.model.search import Filter

Q = TypeVar("Q")
A = TypeVar("A")

Performance = Callable[[Engine], Awaitable[bytes]]
"""Makes a call, and returns its answer as bytes."""


class _Act(Protocol):
    def __call__(
        self, wanted: Filter, attribution: Attribution, *, limit: int, caller: Caller
    ) -> Awaitable[AdminResult]: ...


async def _settle(engine: Engine, call: messages.SettleCall) -> list[messages.LostLease | None]:
    answers = await engine.settle(call.outcomes, caller=call.caller)
    return [messages.lost(answer) for answer in answers]


async def _extend(engine: Engine, call: messages.ExtendCall) -> list[messages.ExtendAnswer]:
    answers = await engine.extend(call.held, lease_seconds=call.lease_seconds, caller=call.caller)
    return [messages.extended(answer) for answer in answers]


async def _counts(engine: Engine, call: messages.CountsCall) -> dict[str, Counts]:
    return dict(await engine.counts(caller=call.caller))


async def _replay(engine: Engine, call: messages.OperateCall) -> AdminResult:
    return await engine.replay(
        call.wanted,
        call.attribution,
        limit=call.limit,
        run=call.run,
        fixed=call.fixed,
        caller=call.caller,
    )


async def _note(engine: Engine, call: messages.OperateCall) -> AdminResult:
    return await engine.note(call.wanted, call.text, call.attribution, caller=call.caller)


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


def _operate(
    verb: messages.Verb[messages.OperateCall, AdminResult], act: Callable[[Engine], _Act]
) -> Callable[[bytes], Performance]:
    """Return the door of a verb that takes a filter, an operation and a limit."""
    return door(
        verb,
        lambda engine, call: act(engine)(
            call.wanted, call.attribution, limit=call.limit, caller=call.caller
        ),
    )


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
    messages.REPLAY.name: door(messages.REPLAY, _replay),
    messages.ARCHIVE.name: _operate(messages.ARCHIVE, lambda engine: engine.archive),
    messages.RESTORE.name: _operate(messages.RESTORE, lambda engine: engine.restore),
    messages.CANCEL.name: _operate(messages.CANCEL, lambda engine: engine.cancel),
    messages.PURGE.name: _operate(messages.PURGE, lambda engine: engine.purge),
    messages.CONFIRM.name: _operate(messages.CONFIRM, lambda engine: engine.confirm),
    messages.NOTE.name: door(messages.NOTE, _note),
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
