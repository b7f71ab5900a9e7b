"""The engine protocol on the owner's side: reads a call, makes it, writes the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TypeVar

import msgspec

from holdfast.engines.contract import Claim, Counts, Engine
from holdfast.engines.protocol import messages
from holdfast.engines.structured_log import StructuredLog, error_text
from holdfast.model.effects import ScheduleState
from holdfast.model.errors import (
    EngineClosed,
    HoldfastError,
    InvalidInput,
    InvariantViolation,
    Unavailable,
)
from holdfast.model.outcome import release
from holdfast.model.policy import QueuePolicy
from holdfast.model.projection import ProjectionState
from holdfast.model.samples import SamplePoint
from holdfast.model.search import FailureGroup, Order
from holdfast.model.subscription import Subscription

from .dump_sessions import DumpSessions

log = StructuredLog("holdfast.http")

Q = TypeVar("Q")
A = TypeVar("A")

PreparedCall = Callable[[Engine], Awaitable[bytes]]
"""Makes a call that was read, and returns its answer as bytes."""

Handler = Callable[[bytes], PreparedCall]
"""Reads the body of a call; raises what msgspec raises."""

Disconnected = Callable[[], Awaitable[None]]
"""Returns when the client has disconnected."""


class Dispatcher:
    """Answers calls of an engine's verbs; an error is an answer too.

    ``engine`` of a call is the store as that caller may use it; without one, as it is.
    """

    def __init__(self, engine: Engine, *, remote: bool = False) -> None:
        """``remote``: the callers are elsewhere, and the store may be behind another process."""
        self._engine = engine
        self._remote = remote
        self._waiting: dict[asyncio.Task[Claim], None] = {}
        """In the order in which they came."""
        self._stopping = False
        dumps = DumpSessions()
        self._handlers: dict[str, Handler] = dict(
            [
                *_HANDLERS,
                _handler(messages.DUMP, lambda engine, call: dumps.next(call.session, engine)),
            ]
        )

    async def answer(
        self,
        verb: str,
        body: bytes,
        disconnected: Disconnected | None = None,
        engine: Engine | None = None,
    ) -> messages.BatchedAnswer:
        """Answer one call. A claim can wait only where ``disconnected`` is given."""
        handler = self._handlers.get(verb)
        if handler is None and verb != messages.CLAIM.name:
            # An older client shows this text as it is.
            detail = f"this version of the daemon has no verb {verb!r}: use one version for both"
            return request_problem(messages.NOT_FOUND, detail)
        try:
            call = self._prepare_claim(body, disconnected) if handler is None else handler(body)
        except (InvalidInput, *messages.UNREADABLE) as error:
            return request_problem(messages.BAD_REQUEST, f"malformed call of {verb}: {error}")
        try:
            return messages.BatchedAnswer(messages.OK, await call(engine or self._engine))
        except EngineClosed as error:
            return request_problem(messages.UNAVAILABLE, str(error))
        except Unavailable as error:
            # The owner of the store may have done it, and its reply was lost on the way to here.
            status = messages.OUTCOME_UNKNOWN if self._remote else messages.UNAVAILABLE
            return request_problem(status, str(error))
        except HoldfastError as error:
            return messages.BatchedAnswer(messages.REFUSED, messages.write_error(error))
        except Exception as error:  # noqa: BLE001 - it is logged, and is an answer
            log.emit("engine.failed", verb=verb, error=error)
            what = "" if self._remote else f" ({error_text(error)})"
            bug = InvariantViolation(f"{verb} failed{what}: the owner's log says where")
            return messages.BatchedAnswer(messages.REFUSED, messages.write_error(bug))

    async def answer_all(self, body: bytes, engine: Engine | None = None) -> messages.BatchedAnswer:
        """Answer several calls. They start in their order and run concurrently."""
        try:
            calls = messages.read_calls(body)
        except messages.UNREADABLE as error:
            return request_problem(messages.BAD_REQUEST, f"malformed list of calls: {error}")
        if len(calls) > messages.MAX_CALLS:
            detail = f"{len(calls):,} calls in one request: send at most {messages.MAX_CALLS:,}"
            return request_problem(messages.BAD_REQUEST, detail)
        answers = await asyncio.gather(
            *(self.answer(call.verb, call.body, engine=engine) for call in calls)
        )
        return messages.BatchedAnswer(messages.OK, messages.write_answers(answers))

    def stop(self) -> None:
        """End the claims that wait, and refuse new ones."""
        self._stopping = True
        for claim in self._waiting:
            claim.cancel()

    def _prepare_claim(self, body: bytes, disconnected: Disconnected | None) -> PreparedCall:
        call = messages.CLAIM.read_call(body)
        if call.wait_seconds > 0 and disconnected is None:
            raise InvalidInput("wait_seconds", "a claim that waits has a request to itself")

        async def run(engine: Engine) -> bytes:
            if call.wait_seconds > 0 and disconnected is not None:
                claim = await self._wait(engine, call, disconnected)
            else:
                claim = await _claim(engine, call)
            return messages.CLAIM.write_answer(messages.claim_answer(claim))

        return run

    async def _wait(
        self, engine: Engine, call: messages.ClaimCall, disconnected: Disconnected
    ) -> Claim:
        """Claim; if the client disconnects meanwhile, release what was claimed."""
        if self._stopping:
            raise EngineClosed("the owner of the store is closing")
        claim = asyncio.ensure_future(_claim(engine, call))
        leaving = asyncio.ensure_future(disconnected())
        leaving.add_done_callback(lambda _left: claim.cancel())
        self._waiting[claim] = None
        try:
            claimed = await claim
        except asyncio.CancelledError:
            if leaving.done() or self._stopping:
                raise EngineClosed("the client of this claim has disconnected") from None
            raise
        finally:
            self._waiting.pop(claim, None)
            left = leaving.done()
            leaving.cancel()
        if left and claimed.jobs:
            await engine.settle([release(job) for job in claimed.jobs])
        return claimed


def request_problem(
    status: int, detail: str, versions: tuple[int, ...] = ()
) -> messages.BatchedAnswer:
    """Return the answer to a request that is wrong."""
    found = messages.RequestProblem(HTTPStatus(status).phrase, status, detail, list(versions))
    return messages.BatchedAnswer(status, msgspec.json.encode(found))


def _handler(
    verb: messages.Verb[Q, A], run: Callable[[Engine, Q], Awaitable[A]]
) -> tuple[str, Handler]:
    """Return the name and the handler of a verb."""

    def prepare(body: bytes) -> PreparedCall:
        call = verb.read_call(body)

        async def make(engine: Engine) -> bytes:
            return verb.write_answer(await run(engine, call))

        return make

    return verb.name, prepare


async def _claim(engine: Engine, call: messages.ClaimCall) -> Claim:
    return await engine.claim(
        queues=call.queues,
        worker=call.worker,
        tasks=call.tasks,
        limit=call.limit,
        lease_seconds=call.lease_seconds,
        wait_seconds=call.wait_seconds,
        settle=call.settle,
        chain=call.chain,
        caller=call.caller,
    )


async def _settle(engine: Engine, call: messages.SettleCall) -> list[messages.LostLease | None]:
    answers = await engine.settle(call.outcomes, caller=call.caller)
    return [messages.lost_lease(answer) for answer in answers]


async def _extend(engine: Engine, call: messages.ExtendCall) -> list[messages.ExtendAnswer]:
    answers = await engine.extend(call.held, lease_seconds=call.lease_seconds, caller=call.caller)
    return [messages.extend_answer(answer) for answer in answers]


async def _leases(engine: Engine, call: messages.LeasesCall) -> list[messages.ExtendAnswer]:
    answers = await engine.leases(call.held, caller=call.caller)
    return [messages.extend_answer(answer) for answer in answers]


async def _samples(engine: Engine, call: messages.SamplesCall) -> dict[str, list[SamplePoint]]:
    found = await engine.samples(
        call.queues,
        from_us=call.from_us,
        to_us=call.to_us,
        step_seconds=call.step_seconds,
        caller=call.caller,
    )
    return dict(found)


async def _depart(engine: Engine, call: messages.DepartCall) -> messages.Empty:
    await engine.depart(call.process_id)
    return messages.Empty()


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


async def _set_group(engine: Engine, call: messages.SetGroupCall) -> list[FailureGroup]:
    found = await engine.set_group(call.group_id, call.change, call.attribution, caller=call.caller)
    return [] if found is None else [found]


async def _subscriptions(engine: Engine, _call: messages.Empty) -> dict[str, Subscription]:
    return dict(await engine.subscriptions())


async def _projections(engine: Engine, _call: messages.Empty) -> dict[str, ProjectionState]:
    return dict(await engine.projections())


async def _set_record(engine: Engine, call: messages.SetRecordCall) -> messages.Empty:
    await engine.set_record(
        call.kind,
        call.name,
        call.after,
        call.attribution,
        expected=call.expected,
        caller=call.caller,
    )
    return messages.Empty()


async def _set_projection(engine: Engine, call: messages.SetProjectionCall) -> messages.Empty:
    await engine.set_projection(
        call.state, call.attribution, expected=call.expected, caller=call.caller
    )
    return messages.Empty()


async def _set_subscription(
    engine: Engine, call: messages.SetSubscriptionCall
) -> list[Subscription]:
    found = await engine.set_subscription(
        call.name, call.subscription, call.attribution, caller=call.caller
    )
    return [] if found is None else [found]


_HANDLERS = [
    _handler(
        messages.ENQUEUE,
        lambda engine, call: engine.enqueue(
            call.jobs, caller=call.caller, on_duplicate=call.on_duplicate, once=call.once
        ),
    ),
    _handler(messages.SETTLE, _settle),
    _handler(messages.EXTEND, _extend),
    _handler(messages.LEASES, _leases),
    _handler(
        messages.RECLAIM,
        lambda engine, call: engine.reclaim(
            limit=call.limit, forced=call.forced, attribution=call.attribution, caller=call.caller
        ),
    ),
    _handler(
        messages.GET,
        lambda engine, call: engine.get(call.ids, tenant=call.tenant, caller=call.caller),
    ),
    _handler(messages.COUNTS, _counts),
    _handler(messages.QUEUES, lambda engine, call: engine.queues(caller=call.caller)),
    _handler(messages.VALIDATE, lambda engine, _call: engine.validate()),
    _handler(
        messages.FIND,
        lambda engine, call: engine.find(
            call.wanted,
            cursor=call.cursor,
            limit=call.limit,
            order=call.order or (Order.NEWEST if call.newest else Order.CREATED),
            caller=call.caller,
        ),
    ),
    _handler(
        messages.COUNT,
        lambda engine, call: engine.count(call.wanted, cap=call.cap, caller=call.caller),
    ),
    _handler(messages.GROUPS, lambda engine, call: engine.groups(call.wanted, caller=call.caller)),
    _handler(
        messages.HISTORY,
        lambda engine, call: engine.history(call.ids, tenant=call.tenant, caller=call.caller),
    ),
    _handler(
        messages.EXPLAIN,
        lambda engine, call: engine.explain(call.ids, tenant=call.tenant, caller=call.caller),
    ),
    _handler(
        messages.OPERATE,
        lambda engine, call: engine.operate(
            call.action, call.wanted, call.attribution, limit=call.limit, caller=call.caller
        ),
    ),
    _handler(
        messages.EDIT,
        lambda engine, call: engine.edit(
            call.job, call.changes, call.attribution, version=call.version, caller=call.caller
        ),
    ),
    _handler(messages.POLICIES, _policies),
    _handler(messages.SET_POLICY, _set_policy),
    _handler(messages.FLAGS, _flags),
    _handler(messages.SET_FLAG, _set_flag),
    _handler(messages.SCHEDULES, _schedules),
    _handler(messages.SET_SCHEDULE, _set_schedule),
    _handler(messages.OUTAGES, lambda engine, call: engine.outages(ended=call.ended)),
    _handler(messages.REPORT_OUTAGE, lambda engine, call: engine.report_outage(call.reports)),
    _handler(
        messages.SET_OUTAGE,
        lambda engine, call: engine.set_outage(
            call.dependency, call.attribution, on=call.on, caller=call.caller
        ),
    ),
    _handler(messages.NOW, lambda engine, _call: engine.now_us()),
    _handler(
        messages.START_OPERATION,
        lambda engine, call: engine.start_operation(call.new, call.attribution, caller=call.caller),
    ),
    _handler(
        messages.ADVANCE_OPERATION,
        lambda engine, call: engine.advance_operation(call.operation_id),
    ),
    _handler(
        messages.OPERATIONS,
        lambda engine, call: engine.operations(
            running=call.running, limit=call.limit, caller=call.caller
        ),
    ),
    _handler(
        messages.OPERATION,
        lambda engine, call: engine.operation(call.operation_id, caller=call.caller),
    ),
    _handler(
        messages.CHANGE_OPERATION,
        lambda engine, call: engine.change_operation(
            call.operation_id, call.change, call.attribution, caller=call.caller
        ),
    ),
    _handler(messages.SET_GROUP, _set_group),
    _handler(
        messages.ANNOUNCE,
        lambda engine, call: engine.announce(
            call.process, ttl_seconds=call.ttl_seconds, answers=call.answers
        ),
    ),
    _handler(messages.DEPART, _depart),
    _handler(messages.WORKERS, lambda engine, call: engine.workers(gone=call.gone)),
    _handler(
        messages.COMMAND,
        lambda engine, call: engine.command(
            call.command,
            call.process_ids,
            call.attribution,
            ttl_seconds=call.ttl_seconds,
            caller=call.caller,
        ),
    ),
    _handler(messages.ANSWERS, lambda engine, call: engine.answers(call.command_id)),
    _handler(
        messages.TAKE_SAMPLE,
        lambda engine, call: engine.take_sample(
            every_seconds=call.every_seconds, caller=call.caller
        ),
    ),
    _handler(messages.SAMPLES, _samples),
    _handler(
        messages.APPEND,
        lambda engine, call: engine.append(call.events, caller=call.caller, once=call.once),
    ),
    _handler(
        messages.GET_EVENTS,
        lambda engine, call: engine.get_events(call.ids, tenant=call.tenant, caller=call.caller),
    ),
    _handler(
        messages.FIND_EVENTS,
        lambda engine, call: engine.find_events(
            call.wanted,
            cursor=call.cursor,
            limit=call.limit,
            newest=call.newest,
            caller=call.caller,
        ),
    ),
    _handler(
        messages.COUNT_EVENTS,
        lambda engine, call: engine.count_events(call.wanted, caller=call.caller),
    ),
    _handler(messages.SUBSCRIPTIONS, _subscriptions),
    _handler(messages.SET_SUBSCRIPTION, _set_subscription),
    _handler(messages.PROJECTIONS, _projections),
    _handler(messages.SET_PROJECTION, _set_projection),
    _handler(messages.CHANGES, lambda engine, call: engine.changes(caller=call.caller)),
    _handler(messages.RECORDS, lambda engine, call: engine.records(call.kind, call.names)),
    _handler(messages.SET_RECORD, _set_record),
    _handler(messages.AUDIT, lambda engine, call: engine.audit(call.entries, caller=call.caller)),
    _handler(
        messages.AUDITED,
        lambda engine, call: engine.audited(
            call.wanted, after=call.after, limit=call.limit, newest=call.newest
        ),
    ),
]
