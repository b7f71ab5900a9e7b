"""An engine behind the protocol of ``engines.protocol``: bodies in, answers out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import msgspec

from holdfast.engines.contract import Claim, Engine
from holdfast.engines.protocol import messages
from holdfast.engines.structured_log import StructuredLog, error_text
from holdfast.model.errors import (
    EngineClosed,
    HoldfastError,
    InvalidInput,
    InvariantViolation,
    Unavailable,
)
from holdfast.model.outcome import release

from .dumps import OpenDumps
from .verbs import DOORS, Performance, door

log = StructuredLog("holdfast.http")

Departure = Callable[[], Awaitable[None]]
"""Returns when whoever asked has left."""


class ServedEngine:
    """Answers calls; whatever goes wrong is an answer too."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: dict[asyncio.Task[Claim], None] = {}
        """In the order in which they came."""
        self._stopping = False
        dumps = OpenDumps(engine)
        self._doors = {
            **DOORS,
            messages.DUMP.name: door(messages.DUMP, lambda _e, c: dumps.next(c.session)),
        }

    async def answer(
        self, verb: str, body: bytes, departure: Departure | None = None
    ) -> messages.BatchedAnswer:
        """Answer one call. Without a way to learn of a departure no claim waits."""
        ready = self._doors.get(verb)
        if ready is None and verb != messages.CLAIM.name:
            return request_problem(messages.NOT_FOUND, f"there is no verb {verb!r}")
        try:
            perform = self._claim_door(body, departure) if ready is None else ready(body)
        except (InvalidInput, *messages.UNREADABLE) as error:
            return request_problem(messages.BAD_REQUEST, f"this is no call of {verb}: {error}")
        try:
            return messages.BatchedAnswer(messages.OK, await perform(self._engine))
        except (EngineClosed, Unavailable) as error:
            return request_problem(messages.UNAVAILABLE, str(error))
        except HoldfastError as error:
            return messages.BatchedAnswer(messages.REFUSED, messages.write_error(error))
        except Exception as error:  # noqa: BLE001 - it is an answer, and said here
            log.emit("engine.failed", verb=verb, error=error)
            bug = InvariantViolation(
                f"{verb} failed ({error_text(error)}): the owner's log says where"
            )
            return messages.BatchedAnswer(messages.REFUSED, messages.write_error(bug))

    async def answer_all(self, body: bytes) -> messages.BatchedAnswer:
        """Answer several calls, each for itself. They start in their order and run at once."""
        try:
            calls = messages.read_calls(body)
        except messages.UNREADABLE as error:
            return request_problem(messages.BAD_REQUEST, f"this is no list of calls: {error}")
        answers = await asyncio.gather(*(self.answer(call.verb, call.body) for call in calls))
        return messages.BatchedAnswer(messages.OK, messages.write_answers(answers))

    def stop(self) -> None:
        """Send claims that wait away, and those to come."""
        self._stopping = True
        for claim in self._waiting:
            claim.cancel()

    def _claim_door(self, body: bytes, departure: Departure | None) -> Performance:
        call = messages.CLAIM.read_call(body)
        if call.wait_seconds > 0 and departure is None:
            raise InvalidInput("wait_seconds", "a claim that waits has a request to itself")

        async def perform(engine: Engine) -> bytes:
            if call.wait_seconds > 0 and departure is not None:
                claim = await self._wait(call, departure)
            else:
                claim = await _claim(engine, call)
            return messages.CLAIM.write_answer(messages.claim_answer(claim))

        return perform

    async def _wait(self, call: messages.ClaimCall, departure: Departure) -> Claim:
        """Claim, unless the asker leaves first: then whatever was claimed is handed back."""
        if self._stopping:
            raise EngineClosed("the owner of the store is closing")
        claim = asyncio.ensure_future(_claim(self._engine, call))
        leaving = asyncio.ensure_future(departure())
        leaving.add_done_callback(lambda _left: claim.cancel())
        self._waiting[claim] = None
        try:
            claimed = await claim
        except asyncio.CancelledError:
            if leaving.done() or self._stopping:
                raise EngineClosed("nobody waits for this claim any more") from None
            raise
        finally:
            self._waiting.pop(claim, None)
            left = leaving.done()
            leaving.cancel()
        if left and claimed.jobs:
            await self._engine.settle([release(job) for job in claimed.jobs])
        return claimed


def request_problem(
    status: int, detail: str, versions: tuple[int, ...] = ()
) -> messages.BatchedAnswer:
    """Return the answer to a request with which something is wrong."""
    found = messages.RequestProblem(HTTPStatus(status).phrase, status, detail, list(versions))
    return messages.BatchedAnswer(status, msgspec.json.encode(found))


async def _claim(engine: Engine, call: messages.ClaimCall) -> Claim:
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
