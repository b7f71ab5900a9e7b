"""The channel to the owner of a store: calls go out, answers and errors come back.

Concurrent calls share one connection and go out as one request. Each claim that waits has a
connection of its own.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from typing import TypeVar

import msgspec

from holdfast.engines.protocol import messages
from holdfast.model.errors import (
    DurabilityLost,
    HoldfastError,
    InvalidInput,
    KeyRefused,
    TooLarge,
    Unavailable,
    UnknownFormat,
    WrongLoop,
)

from .connection import Backoff, Connection, ConnectionBroken, Endpoint, closed_error, connect

MAX_BATCH_BYTES = 16 << 20
"""The limit of a request with several calls; a single call may be larger."""
CLOSE_SECONDS = 1.0
"""How long a close waits for the owner to end the claims that wait."""

A = TypeVar("A")
Q = TypeVar("Q")

Reply = tuple[int, bytes]
OnAbandoned = Callable[[int, bytes], None]
"""Takes the reply to a call that was cancelled after it was sent."""


class Channel:
    """Bound to the event loop, and the process, of its first call."""

    def __init__(self, endpoint: Endpoint, patience_seconds: float) -> None:
        self.endpoint = endpoint
        self.patience_seconds = patience_seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._closed = False

    async def call(self, verb: messages.Verb[Q, A], call: Q) -> A:
        """Return the answer to an idempotent call: it is repeated if its reply is lost."""
        try:
            return await self.call_once(verb, call)
        except ConnectionBroken:
            return await self.call_again(verb, call)

    async def call_once(
        self, verb: messages.Verb[Q, A], call: Q, on_abandoned: OnAbandoned | None = None
    ) -> A:
        """Return the answer, or raise what the engine raised.

        Raise ``ConnectionBroken`` if the connection ended, or the owner's log failed, and the
        outcome is unknown.
        """
        body = verb.write_call(call)
        return await self._send(verb, body, self._enter().time(), on_abandoned)

    async def call_again(
        self,
        verb: messages.Verb[Q, A],
        call: Q,
        advice: str = "look before you call again",
        *,
        on_abandoned: OnAbandoned | None = None,
    ) -> A:
        """Return the answer to a call whose first reply was lost, from the present owner.

        Raise ``Unavailable`` if there is none within ``patience_seconds``.
        """
        body = verb.write_call(call)
        loop = self._enter()
        began = loop.time()
        backoff = Backoff()
        doubt = (
            f"the connection broke before the answer came, so it is unknown whether this "
            f"{verb.name} was recorded: {advice}"
        )
        while True:
            await asyncio.sleep(backoff.next())
            try:
                self._enter()
                return await self._send(verb, body, began, on_abandoned)
            except ConnectionBroken:
                if loop.time() >= began + self.patience_seconds:
                    raise Unavailable(f"{self.endpoint.shown} is not reliable: {doubt}") from None
            except Unavailable as error:
                raise type(error)(f"{error}. Before that, {doubt}") from error

    async def wait(
        self,
        verb: messages.Verb[Q, A],
        call_for: Callable[[float], Q],
        wait_seconds: float,
        on_abandoned: OnAbandoned,
    ) -> A:
        """Return the answer to a call that the owner may take this long to answer.

        If the owner goes away, the call goes out again to the next one, for the time left.
        """
        loop = self._enter()
        give_up = loop.time() + wait_seconds
        until = loop.time() + self.patience_seconds
        backoff = Backoff()
        while True:
            body = verb.write_call(call_for(max(0.0, give_up - loop.time())))
            try:
                status, answer = await self._claims.call(verb.name, body, until, on_abandoned)
            except ConnectionBroken:
                self._check_open()
                status, answer = messages.UNAVAILABLE, b""
            if _in_doubt(status, answer):
                status, answer = messages.UNAVAILABLE, b""
            now = loop.time()
            if now < give_up:
                until = now + self.patience_seconds  # an owner did receive it
            if status != messages.UNAVAILABLE or now >= until:
                return self._read(verb, status, answer, len(body))
            await asyncio.sleep(backoff.next())

    async def close(self) -> None:
        """Wait for the calls that were sent, and end the connections."""
        if self._closed:
            return
        self._closed = True
        # A forked child has its parent's connections: they are not its own to close.
        if self._loop is not None and self._pid == os.getpid():
            self._check_loop()
            await self._claims.close(CLOSE_SECONDS)
            await self._calls.close(self.patience_seconds)

    @property
    def requests(self) -> int:
        """How many requests went out for calls that do not wait."""
        return 0 if self._loop is None else self._calls.requests

    async def _send(
        self,
        verb: messages.Verb[Q, A],
        body: bytes,
        began: float,
        on_abandoned: OnAbandoned | None,
    ) -> A:
        """Send a call that began at this loop time; see ``call_once``."""
        if len(body) > (most := self.endpoint.max_body_bytes):
            raise TooLarge(verb.name, len(body), most, "send fewer at once")
        until = began + self.patience_seconds
        backoff = Backoff()
        while True:
            try:
                status, answer = await self._calls.submit(verb.name, body, until, on_abandoned)
            except ConnectionBroken:
                self._check_open()
                raise
            if status == messages.OK:
                return self._read(verb, status, answer, len(body))
            if _in_doubt(status, answer):
                raise ConnectionBroken
            left = until - asyncio.get_running_loop().time()
            if status != messages.UNAVAILABLE or left <= 0:
                return self._read(verb, status, answer, len(body))
            # The owner is closing and has done nothing: another one may start.
            await asyncio.sleep(min(backoff.next(), left))

    def _check_open(self) -> None:
        if self._closed:
            raise closed_error() from None

    def _enter(self) -> asyncio.AbstractEventLoop:
        self._check_open()
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._pid = os.getpid()
            self._calls = CallBatcher(self.endpoint)
            self._claims = ClaimConnections(self.endpoint)
        if self._pid != os.getpid():
            raise WrongLoop(
                "this client was in use before a fork, and its connections are its parent's: "
                "make another one in this process"
            )
        self._check_loop()
        return self._loop

    def _check_loop(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise WrongLoop(
                "this client belongs to the event loop on which it was first used: call it from "
                "there, or make another one for this loop"
            )

    def _read(self, verb: messages.Verb[Q, A], status: int, answer: bytes, size: int) -> A:
        """Return the answer to a call of this size, or raise the error that it is."""
        if status != messages.OK:
            raise self._error(verb.name, status, answer, size)
        try:
            return verb.read_answer(answer)
        except messages.UNREADABLE as error:
            raise Unavailable(
                f"the answer from {self.endpoint.shown} to this {verb.name} makes no sense "
                f"({error}): is the owner of the same version of Holdfast?"
            ) from error

    def _error(self, verb: str, status: int, answer: bytes, size: int) -> HoldfastError:
        if status == messages.UNAVAILABLE:
            return self.endpoint.closed(_detail(answer))
        if status == messages.UNAUTHENTICATED:
            return KeyRefused(f"{self.endpoint.shown} refuses the key: {_detail(answer)}")
        try:
            if status == messages.REFUSED:
                return messages.read_error(answer)
            problem = msgspec.json.decode(answer, type=messages.RequestProblem)
        except messages.UNREADABLE:
            return Unavailable(
                f"the process that answers on {self.endpoint.shown} is no owner of a store "
                f"(HTTP status {status})"
            )
        if problem.versions:
            what = "version of the engine protocol"
            return UnknownFormat(self.endpoint.shown, what, max(problem.versions), messages.VERSION)
        if status == messages.BODY_TOO_LARGE:
            return TooLarge(verb, size, self.endpoint.max_body_bytes, "send fewer at once")
        if status == messages.BAD_REQUEST:
            return InvalidInput(verb, problem.detail)
        text = f"{self.endpoint.shown} answered this {verb} with {status}: {problem.detail}"
        if status == messages.NOT_FOUND:
            text += ". Nothing was done: use one version of Holdfast for both"
        return HoldfastError(text)


def _in_doubt(status: int, answer: bytes) -> bool:
    """Whether the outcome is unknown: the owner's log failed, or what is behind a server did.

    For the client that is as if the owner had been killed: the next owner knows.
    """
    if status in messages.IN_DOUBT:
        return True
    if status != messages.REFUSED:
        return False
    try:
        return isinstance(messages.read_error(answer), DurabilityLost)
    except messages.UNREADABLE:
        return False


def _detail(answer: bytes) -> str:
    """Return what a problem says; empty if it is none."""
    try:
        return msgspec.json.decode(answer, type=messages.RequestProblem).detail
    except messages.UNREADABLE:
        return ""


class PendingCall:
    """A call and the future of its reply."""

    __slots__ = ("body", "on_abandoned", "reply", "until", "verb")

    def __init__(
        self,
        verb: str,
        body: bytes,
        reply: asyncio.Future[Reply],
        until: float,
        on_abandoned: OnAbandoned | None,
    ) -> None:
        self.verb = verb
        self.body = body
        self.reply = reply
        self.until = until
        self.on_abandoned = on_abandoned

    def finish(self, status: int, body: bytes) -> None:
        """Deliver the reply."""
        if not self.reply.done():
            self.reply.set_result((status, body))
        elif self.on_abandoned is not None:
            self.on_abandoned(status, body)

    def fail(self, error: Exception) -> None:
        """Raise this instead of a reply."""
        if not self.reply.done():
            self.reply.set_exception(error)


class CallBatcher:
    """The connection that calls share.

    One request is in flight at a time. Calls that come meanwhile go out together in the next.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._queue: deque[PendingCall] = deque()
        self._in_flight: list[PendingCall] = []
        self._idle: asyncio.Future[None] | None = None
        self._closing: asyncio.Future[None] = self._loop.create_future()
        self.requests = 0
        """How many requests went out."""

    def submit(
        self, verb: str, body: bytes, until: float, on_abandoned: OnAbandoned | None = None
    ) -> asyncio.Future[Reply]:
        """Send or queue a call; return a future of the reply.

        It fails with ``ConnectionBroken`` if the connection ended after the call was sent, with
        ``NoOwner`` if no owner answered by ``until`` (loop time), and with ``EngineClosed`` if the
        channel was closed before the call was sent.
        """
        if self._closing.done():
            raise closed_error()
        call = PendingCall(verb, body, self._loop.create_future(), until, on_abandoned)
        connection = self._connection
        if connection is not None and connection.usable and not self._in_flight:
            self._send(connection, [call])
        else:
            self._queue.append(call)
            if connection is None:
                self._start_connecting()
        return call.reply

    async def close(self, patience_seconds: float) -> None:
        """Fail the calls that were not sent, wait for those that were, end the connection."""
        self._closing.set_result(None)
        while self._queue:
            self._queue.popleft().fail(closed_error())
        if self._connecting is not None:
            await self._connecting
        if self._in_flight:
            self._idle = self._loop.create_future()
            await asyncio.wait([self._idle], timeout=patience_seconds)
        if self._connection is not None:
            ended = self._connection.ended
            self._connection.close()
            await ended

    def on_reply(self, status: int, body: bytes) -> None:
        """See ``ReplyListener``."""
        calls, self._in_flight = self._in_flight, []
        if len(calls) == 1:
            calls[0].finish(status, body)
        else:
            _finish_batch(calls, status, body)
        self._send_next()

    def on_broken(self) -> None:
        """See ``ReplyListener``."""
        calls, self._in_flight = self._in_flight, []
        self._connection = None
        for call in calls:
            call.fail(ConnectionBroken())
        self._send_next()

    def _send_next(self) -> None:
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)
        if not self._queue:
            return
        if self._connection is None:
            self._start_connecting()
        elif self._connection.usable:
            self._send_batch(self._connection)

    def _send_batch(self, connection: Connection) -> None:
        """Send the queued calls in order, as many as one request takes."""
        batch: list[PendingCall] = []
        size = 0
        while self._queue and len(batch) < messages.MAX_CALLS:
            if self._queue[0].reply.done():
                self._queue.popleft()  # cancelled before it was sent
                continue
            size += len(self._queue[0].body)
            if batch and size > min(MAX_BATCH_BYTES, self._endpoint.max_body_bytes // 2):
                break
            batch.append(self._queue.popleft())
        if batch:
            self._send(connection, batch)

    def _send(self, connection: Connection, calls: list[PendingCall]) -> None:
        self._in_flight = calls
        self.requests += 1
        if len(calls) == 1:
            path, body = messages.PREFIX + calls[0].verb, calls[0].body
        else:
            batch = [messages.BatchedCall(call.verb, call.body) for call in calls]
            path, body = messages.CALLS_PATH, messages.write_calls(batch)
        connection.request(self._endpoint.head(path, len(body)) + body)

    def _start_connecting(self) -> None:
        if self._connecting is None:
            self._connecting = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        """Connect for the queued calls; each fails when its own time is over."""
        try:
            while self._queue:
                if self._queue[0].reply.done():
                    self._queue.popleft()
                    continue
                first = self._queue[0]
                try:
                    self._connection = await connect(self._endpoint, first.until, self._closing)
                except HoldfastError as error:
                    first.fail(error)
                else:
                    self._connection.listener = self
                    break
        finally:
            self._connecting = None
        self._send_next()


def _finish_batch(calls: list[PendingCall], status: int, body: bytes) -> None:
    """Give each call its own answer; an error of the request is the answer to all."""
    if status != messages.OK:
        for call in calls:
            call.finish(status, body)
        return
    try:
        answers = messages.read_answers(body)
    except messages.UNREADABLE:
        answers = []
    if len(answers) != len(calls):
        for call in calls:
            call.fail(ConnectionBroken())
        return
    for call, answer in zip(calls, answers, strict=True):
        call.finish(answer.status, answer.body)


class ClaimConnections:
    """Connections for claims that wait: one for each, reused by later claims."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._loop = asyncio.get_running_loop()
        self._idle: list[Connection] = []
        self._busy: dict[_WaitingClaim, None] = {}
        """In the order in which they came."""
        self._closing: asyncio.Future[None] = self._loop.create_future()

    async def call(self, verb: str, body: bytes, until: float, on_abandoned: OnAbandoned) -> Reply:
        """Send the call and wait for its reply without a time limit.

        Fails as ``CallBatcher.submit`` does. A cancellation is passed on to the owner.
        """
        if self._closing.done():
            raise closed_error()
        call = PendingCall(verb, body, self._loop.create_future(), until, on_abandoned)
        claim = _WaitingClaim(call, self._busy, self._idle, self._endpoint)
        self._busy[claim] = None
        try:
            connection = self._reuse()
            if connection is None:
                connection = await connect(self._endpoint, until, self._closing)
            if self._closing.done():
                connection.close()
                raise closed_error()
            claim.send(connection)
            return await call.reply
        except asyncio.CancelledError:
            claim.cancel()
            raise
        finally:
            if claim.connection is None:
                self._busy.pop(claim, None)

    async def close(self, patience_seconds: float) -> None:
        """Cancel the claims that wait, and end the connections."""
        self._closing.set_result(None)
        for claim in list(self._busy):
            claim.cancel(closing=True)
        busy = [claim.connection for claim in self._busy if claim.connection is not None]
        if busy:
            await asyncio.wait([connection.ended for connection in busy], timeout=patience_seconds)
        for connection in [*busy, *self._idle]:
            connection.close()
            await connection.ended

    def _reuse(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        return None


class _WaitingClaim:
    """A claim that waits, on a connection of its own."""

    def __init__(
        self,
        call: PendingCall,
        busy: dict[_WaitingClaim, None],
        idle: list[Connection],
        endpoint: Endpoint,
    ) -> None:
        self.connection: Connection | None = None
        self._endpoint = endpoint
        self._call = call
        self._busy = busy
        self._idle = idle

    def send(self, connection: Connection) -> None:
        self.connection = connection
        connection.listener = self
        body = self._call.body
        connection.request(self._endpoint.head(messages.PREFIX + self._call.verb, len(body)) + body)

    def cancel(self, *, closing: bool = False) -> None:
        if self.connection is not None:
            self.connection.cancel_request(closing=closing)

    def on_reply(self, status: int, body: bytes) -> None:
        self._busy.pop(self, None)
        if self.connection is not None and self.connection.usable:
            self._idle.append(self.connection)
        self._call.finish(status, body)

    def on_broken(self) -> None:
        self._busy.pop(self, None)
        self._call.fail(ConnectionBroken())
