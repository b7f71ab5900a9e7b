"""An engine behind the protocol of ``holdfast.engines.wire``: bodies in, answers out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TypeVar

import msgspec

from holdfast.engines import wire
from holdfast.engines.base import Claim, Counts, Engine
from holdfast.model.errors import (
    EngineClosed,
    HoldfastError,
    InvalidInput,
    InvariantViolation,
    Unavailable,
)
from holdfast.model.outcome import release

logger = logging.getLogger("holdfast.http")

Q = TypeVar("Q")
A = TypeVar("A")

Departure = Callable[[], Awaitable[None]]
"""Returns when whoever asked has left."""

Performance = Callable[[Engine], Awaitable[bytes]]
"""Makes a call, and returns its answer as bytes."""


class ServedEngine:
    """Answers calls; whatever goes wrong is an answer too."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: set[asyncio.Task[Claim]] = set()
        self._stopping = False

    async def answer(
        self, verb: str, body: bytes, departure: Departure | None = None
    ) -> wire.Answer:
        """Answer one call. Without a way to learn of a departure no claim waits."""
        door = _DOORS.get(verb)
        if door is None and verb != wire.CLAIM.name:
            return request_problem(wire.NOT_FOUND, f"there is no verb {verb!r}")
        try:
            perform = self._claim_door(body, departure) if door is None else door(body)
        except (InvalidInput, *wire.UNREADABLE) as error:
            return request_problem(wire.BAD_REQUEST, f"this is no call of {verb}: {error}")
        try:
            return wire.Answer(wire.OK, await perform(self._engine))
        except (EngineClosed, Unavailable) as error:
            return request_problem(wire.UNAVAILABLE, str(error))
        except HoldfastError as error:
            return wire.Answer(wire.REFUSED, wire.write_error(error))
        except Exception as error:
            logger.exception("engine.failed verb=%s", verb)
            bug = InvariantViolation(f"{verb} failed ({type(error).__name__}): {error}")
            return wire.Answer(wire.REFUSED, wire.write_error(bug))

    async def answer_all(self, body: bytes) -> wire.Answer:
        """Answer several calls, each for itself. They start in their order and run at once."""
        try:
            calls = wire.read_calls(body)
        except wire.UNREADABLE as error:
            return request_problem(wire.BAD_REQUEST, f"this is no list of calls: {error}")
        answers = await asyncio.gather(*(self.answer(call.verb, call.body) for call in calls))
        return wire.Answer(wire.OK, wire.write_answers(answers))

    def stop(self) -> None:
        """Send claims that wait away, and those to come."""
        self._stopping = True
        for claim in self._waiting:
            claim.cancel()

    def _claim_door(self, body: bytes, departure: Departure | None) -> Performance:
        call = wire.CLAIM.read_call(body)
        if call.wait_seconds > 0 and departure is None:
            raise InvalidInput("wait_seconds", "a claim that waits has a request to itself")

        async def perform(engine: Engine) -> bytes:
            if call.wait_seconds > 0 and departure is not None:
                claim = await self._wait(call, departure)
            else:
                claim = await _claim(engine, call)
            return wire.CLAIM.write_answer(wire.claim_answer(claim))

        return perform

    async def _wait(self, call: wire.ClaimCall, departure: Departure) -> Claim:
        """Claim, unless the asker leaves first: then whatever was claimed is handed back."""
        if self._stopping:
            raise EngineClosed("the owner of the store is closing")
        claim = asyncio.ensure_future(_claim(self._engine, call))
        leaving = asyncio.ensure_future(departure())
        leaving.add_done_callback(lambda _left: claim.cancel())
        self._waiting.add(claim)
        try:
            claimed = await claim
        except asyncio.CancelledError:
            if leaving.done() or self._stopping:
                raise EngineClosed("nobody waits for this claim any more") from None
            raise
        finally:
            self._waiting.discard(claim)
            left = leaving.done()
            leaving.cancel()
        if left and claimed.jobs:
            await self._engine.settle([release(job) for job in claimed.jobs])
        return claimed


def request_problem(status: int, detail: str, versions: tuple[int, ...] = ()) -> wire.Answer:
    """Return the answer to a request with which something is wrong."""
    found = wire.RequestProblem(HTTPStatus(status).phrase, status, detail, list(versions))
    return wire.Answer(status, msgspec.json.encode(found))


async def _claim(engine: Engine, call: wire.ClaimCall) -> Claim:
    return await engine.claim(
        queues=call.queues,
        worker=call.worker,
        tasks=call.tasks,
        limit=call.limit,
        lease_seconds=call.lease_seconds,
        wait_seconds=call.wait_seconds,
        settle=call.settle,
        caller=call.caller,
    )


async def _settle(engine: Engine, call: wire.SettleCall) -> list[wire.Lost | None]:
    answers = await engine.settle(call.outcomes, caller=call.caller)
    return [wire.lost(answer) for answer in answers]


async def _extend(engine: Engine, call: wire.ExtendCall) -> list[int | wire.Lost]:
    answers = await engine.extend(call.held, lease_seconds=call.lease_seconds, caller=call.caller)
    return [
        answer if isinstance(answer, int) else wire.Lost(answer.job_id, answer.token)
        for answer in answers
    ]


async def _counts(engine: Engine, call: wire.CountsCall) -> dict[str, Counts]:
    return dict(await engine.counts(caller=call.caller))


def _door(
    verb: wire.Verb[Q, A], ask: Callable[[Engine, Q], Awaitable[A]]
) -> Callable[[bytes], Performance]:
    """Return what reads a call of this verb and makes it ready."""

    def ready(body: bytes) -> Performance:
        call = verb.read_call(body)

        async def perform(engine: Engine) -> bytes:
            return verb.write_answer(await ask(engine, call))

        return perform

    return ready


_DOORS = {
    wire.ENQUEUE.name: _door(
        wire.ENQUEUE,
        lambda engine, call: engine.enqueue(
            call.jobs, caller=call.caller, on_duplicate=call.on_duplicate
        ),
    ),
    wire.SETTLE.name: _door(wire.SETTLE, _settle),
    wire.EXTEND.name: _door(wire.EXTEND, _extend),
    wire.RECLAIM.name: _door(
        wire.RECLAIM,
        lambda engine, call: engine.reclaim(
            limit=call.limit, forced=call.forced, caller=call.caller
        ),
    ),
    wire.GET.name: _door(
        wire.GET,
        lambda engine, call: engine.get(call.ids, tenant=call.tenant, caller=call.caller),
    ),
    wire.COUNTS.name: _door(wire.COUNTS, _counts),
    wire.VALIDATE.name: _door(wire.VALIDATE, lambda engine, _call: engine.validate()),
}
