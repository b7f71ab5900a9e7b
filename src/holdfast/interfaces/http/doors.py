"""One door for each verb: reads a call, makes it, and writes the answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from holdfast.engines import wire
from holdfast.engines.base import Counts, Engine, Operated
from holdfast.model.access import Caller
from holdfast.model.effects import ScheduleState
from holdfast.model.operation import Operation
from holdfast.model.policy import QueuePolicy
from holdfast.model.search import Filter

Q = TypeVar("Q")
A = TypeVar("A")

Performance = Callable[[Engine], Awaitable[bytes]]
"""Makes a call, and returns its answer as bytes."""


class _Act(Protocol):
    def __call__(
        self, wanted: Filter, operation: Operation, *, limit: int, caller: Caller
    ) -> Awaitable[Operated]: ...


async def _settle(engine: Engine, call: wire.SettleCall) -> list[wire.Lost | None]:
    answers = await engine.settle(call.outcomes, caller=call.caller)
    return [wire.lost(answer) for answer in answers]


async def _extend(engine: Engine, call: wire.ExtendCall) -> list[wire.Extended]:
    answers = await engine.extend(call.held, lease_seconds=call.lease_seconds, caller=call.caller)
    return [wire.extended(answer) for answer in answers]


async def _counts(engine: Engine, call: wire.CountsCall) -> dict[str, Counts]:
    return dict(await engine.counts(caller=call.caller))


async def _replay(engine: Engine, call: wire.OperateCall) -> Operated:
    return await engine.replay(
        call.wanted,
        call.operation,
        limit=call.limit,
        run=call.run,
        fixed=call.fixed,
        caller=call.caller,
    )


async def _note(engine: Engine, call: wire.OperateCall) -> Operated:
    return await engine.note(call.wanted, call.text, call.operation, caller=call.caller)


async def _policies(engine: Engine, _call: wire.Nothing) -> dict[str, QueuePolicy]:
    return dict(await engine.policies())


async def _set_policy(engine: Engine, call: wire.SetPolicyCall) -> wire.Nothing:
    await engine.set_policy(
        call.queue, call.policy, call.operation, expected=call.expected, caller=call.caller
    )
    return wire.Nothing()


async def _flags(engine: Engine, _call: wire.Nothing) -> dict[str, bool]:
    return dict(await engine.flags())


async def _set_flag(engine: Engine, call: wire.SetFlagCall) -> wire.Nothing:
    await engine.set_flag(call.name, call.operation, on=call.on, caller=call.caller)
    return wire.Nothing()


async def _schedules(engine: Engine, _call: wire.Nothing) -> dict[str, ScheduleState]:
    return dict(await engine.schedules())


async def _set_schedule(engine: Engine, call: wire.SetScheduleCall) -> wire.Nothing:
    await engine.set_schedule(
        call.name, call.schedule, call.operation, expected=call.expected, caller=call.caller
    )
    return wire.Nothing()


def _operate(
    verb: wire.Verb[wire.OperateCall, Operated], act: Callable[[Engine], _Act]
) -> Callable[[bytes], Performance]:
    """Return the door of a verb that takes a filter, an operation and a limit."""
    return door(
        verb,
        lambda engine, call: act(engine)(
            call.wanted, call.operation, limit=call.limit, caller=call.caller
        ),
    )


def door(
    verb: wire.Verb[Q, A], ask: Callable[[Engine, Q], Awaitable[A]]
) -> Callable[[bytes], Performance]:
    """Return what reads a call of this verb and makes it ready."""

    def ready(body: bytes) -> Performance:
        call = verb.read_call(body)

        async def perform(engine: Engine) -> bytes:
            return verb.write_answer(await ask(engine, call))

        return perform

    return ready


DOORS = {
    wire.ENQUEUE.name: door(
        wire.ENQUEUE,
        lambda engine, call: engine.enqueue(
            call.jobs, caller=call.caller, on_duplicate=call.on_duplicate
        ),
    ),
    wire.SETTLE.name: door(wire.SETTLE, _settle),
    wire.EXTEND.name: door(wire.EXTEND, _extend),
    wire.RECLAIM.name: door(
        wire.RECLAIM,
        lambda engine, call: engine.reclaim(
            limit=call.limit, forced=call.forced, operation=call.operation, caller=call.caller
        ),
    ),
    wire.GET.name: door(
        wire.GET,
        lambda engine, call: engine.get(call.ids, tenant=call.tenant, caller=call.caller),
    ),
    wire.COUNTS.name: door(wire.COUNTS, _counts),
    wire.QUEUES.name: door(wire.QUEUES, lambda engine, call: engine.queues(caller=call.caller)),
    wire.VALIDATE.name: door(wire.VALIDATE, lambda engine, _call: engine.validate()),
    wire.FIND.name: door(
        wire.FIND,
        lambda engine, call: engine.find(
            call.wanted,
            cursor=call.cursor,
            limit=call.limit,
            newest=call.newest,
            caller=call.caller,
        ),
    ),
    wire.GROUPS.name: door(
        wire.GROUPS, lambda engine, call: engine.groups(call.wanted, caller=call.caller)
    ),
    wire.HISTORY.name: door(
        wire.HISTORY,
        lambda engine, call: engine.history(call.ids, tenant=call.tenant, caller=call.caller),
    ),
    wire.REPLAY.name: door(wire.REPLAY, _replay),
    wire.ARCHIVE.name: _operate(wire.ARCHIVE, lambda engine: engine.archive),
    wire.RESTORE.name: _operate(wire.RESTORE, lambda engine: engine.restore),
    wire.CANCEL.name: _operate(wire.CANCEL, lambda engine: engine.cancel),
    wire.PURGE.name: _operate(wire.PURGE, lambda engine: engine.purge),
    wire.CONFIRM.name: _operate(wire.CONFIRM, lambda engine: engine.confirm),
    wire.NOTE.name: door(wire.NOTE, _note),
    wire.EDIT.name: door(
        wire.EDIT,
        lambda engine, call: engine.edit(
            call.job, call.changes, call.operation, version=call.version, caller=call.caller
        ),
    ),
    wire.POLICIES.name: door(wire.POLICIES, _policies),
    wire.SET_POLICY.name: door(wire.SET_POLICY, _set_policy),
    wire.FLAGS.name: door(wire.FLAGS, _flags),
    wire.SET_FLAG.name: door(wire.SET_FLAG, _set_flag),
    wire.SCHEDULES.name: door(wire.SCHEDULES, _schedules),
    wire.SET_SCHEDULE.name: door(wire.SET_SCHEDULE, _set_schedule),
    wire.AUDIT.name: door(
        wire.AUDIT, lambda engine, call: engine.audit(call.entries, caller=call.caller)
    ),
    wire.AUDITED.name: door(
        wire.AUDITED, lambda engine, call: engine.audited(after=call.after, limit=call.limit)
    ),
}
