"""One HTTP/1.1 connection: requests are read within limits, and answered one after another.

A small call costs less than half of what it costs in a general server: one read into an existing
buffer, one task, one write.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import thread_time
from typing import Protocol, cast

from .allowed_hosts import AllowedHosts
from .asgi import AsgiExchange, AsgiHandler, PeerGone, RequestBody
from .cpu_budget import CpuBudget
from .exchange import Handler, HttpRequest, HttpResponse, problem, response_bytes
from .limits import HttpLimits
from .request_reader import RequestReader

_NEVER = float("inf")
_LINGER_SECONDS = 5.0
"""How long a peer may take to read the last answer."""
_ANSWER_CPU_SECONDS = 0.000_05
"""What an answer costs, about, beside writing it."""
_PAUSE_CPU_SECONDS = 0.000_05
"""What it costs, about, to pause reading and to go on."""
# Why reading pauses.
_PIPELINED, _UNREAD_BODY, _NO_TIME = 1, 2, 4


class ServerState(Protocol):
    """What the connections of a server share."""

    @property
    def budget(self) -> CpuBudget | None:
        """What the listener may take of the event loop's time; None: as much as it needs."""

    def opened(self, connection: HttpConnection) -> None:
        """Take note of a new connection."""

    def closed(self, connection: HttpConnection) -> None:
        """Take note that a connection is closed; its ``answering`` may go on for a while."""


class HttpConnection(asyncio.BufferedProtocol):
    """One connection. Its requests are answered one after another, by a task of its own."""

    def __init__(
        self,
        handler: Handler | AsgiHandler,
        server: ServerState,
        limits: HttpLimits,
        hosts: AllowedHosts | None = None,
    ) -> None:
        self._handler = None if isinstance(handler, AsgiHandler) else handler
        self._asgi = handler if isinstance(handler, AsgiHandler) else None
        self._server = server
        self._budget = server.budget
        self._limits = limits
        self._hosts = hosts
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._view = memoryview(bytearray(limits.buffer_bytes))
        self._head: HttpRequest | None = None
        self._body: bytes | bytearray = b""
        self._stream: RequestBody | None = None
        """The body that arrives, for an ASGI application."""
        self._requests: deque[tuple[HttpRequest, RequestBody | None]] = deque()
        self._wakeup: asyncio.Future[None] | None = None
        """What the task awaits between two requests."""
        self._writable = asyncio.Event()
        self._writable.set()
        self._write_paused = False
        self._answering = self._closing = False
        self._reading_paused_for = 0
        self._read_deadline = self._write_deadline = _NEVER
        self._body_began = 0.0
        self._awaits_continue = False
        """Whether the peer waits to be told to send the body."""
        self._unsent_bytes = 0
        self.waits_since = 0.0
        """Since when the peer has to do something."""
        self._reader = RequestReader(self, limits)

    @property
    def answering(self) -> asyncio.Task[None] | None:
        """The task of the request in progress, if there is one."""
        return self._task if self._answering else None

    @property
    def waits_for_peer(self) -> bool:
        """Whether the peer has to begin a request, to end its head, or to read an answer."""
        if self._answering:
            return self._write_paused
        return self._closing or not (self._requests or self._reader.in_body)

    @property
    def closing(self) -> bool:
        """Whether no other request is answered."""
        return self._closing

    def shutdown(self) -> None:
        """Close, after the request in progress if there is one."""
        self._closing = True
        if not self._answering:
            self._read_deadline = self._loop.time() + _LINGER_SECONDS
            self.transport.close()

    def check_deadlines(self, now: float) -> None:
        """Close the connection if its peer takes too long."""
        if now >= self._write_deadline:
            unsent_bytes = self.transport.get_write_buffer_size()
            if unsent_bytes >= self._unsent_bytes:
                self.transport.abort()
            else:
                self._await_reading(unsent_bytes)
        elif now >= self._read_deadline:
            if self._closing:
                self.transport.abort()
            elif self._reading_paused_for:
                pass  # it may wait for us
            elif self._reader.in_body and now < self._body_deadline():
                self._read_deadline = self._body_deadline()
            elif self._reader.in_head or self._reader.in_body:
                self._refuse(problem(408, "the request took too long to arrive"))
            else:
                self.shutdown()

    # --- asyncio.BufferedProtocol ------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the task that answers requests."""
        # Not every loop's transports are subclasses: uvloop's are not.
        self.transport = cast(asyncio.Transport, transport)
        self._server.opened(self)
        self._become_idle()
        self._task = self._loop.create_task(self._serve())

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's contract
        """Return one buffer for every read."""
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        """Parse what was read."""
        if (budget := self._budget) is None:
            self._feed(nbytes)
            return
        started = thread_time()
        self._feed(nbytes)
        budget.charge(thread_time() - started)
        if budget.wait_seconds() > 0:
            budget.charge(_PAUSE_CPU_SECONDS)
            self._pause_reading(_NO_TIME)
            self._resume_in_time(budget)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's contract
        """Tell the request in progress that the peer has disconnected."""
        self._closing = True
        self._server.closed(self)
        if self._stream is not None:
            self._stream.disconnect()
        if not self._ended.done():
            self._ended.set_result(None)
        self.resume_writing()
        self._wake()

    def pause_writing(self) -> None:
        """Start no other request: the peer does not read the answers."""
        self._write_paused = True
        self._writable.clear()
        self.waits_since = self._loop.time()
        self._await_reading(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Continue."""
        self._write_deadline = _NEVER
        self._write_paused = False
        self._writable.set()

    # --- what the reader found ---------------------------------------------------------------

    def head_received(self, request: HttpRequest, *, expects_continue: bool) -> None:
        """Keep it until the body is here; an ASGI application answers from here on."""
        self._head = request
        if self._asgi is not None:
            may_send = self._continue if expects_continue else None
            self._awaits_continue = expects_continue
            self._stream = RequestBody(self._body_was_read, may_send)
            self._requests.append((request, self._stream))
            self._wake()
        elif expects_continue:
            self._continue()

    def body_received(self, part: bytes) -> None:
        """Take a part of the body."""
        if self._stream is not None:
            if self._stream.feed(part):
                self._pause_reading(_UNREAD_BODY)
        elif not self._body:
            self._body = part  # most bodies have one part
        else:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += part

    def request_received(self) -> None:
        """Queue the request, or end its stream."""
        self._read_deadline = _NEVER
        if self._stream is not None:
            self._stream.end()
            self._stream = None
        elif self._head is not None:
            if self._body:
                self._head.body = bytes(self._body)
                self._body = b""
            self._requests.append((self._head, None))
        if len(self._requests) > self._limits.max_pipelined:
            self._pause_reading(_PIPELINED)
        self._wake()

    # --- reading and closing -----------------------------------------------------------------

    def _feed(self, nbytes: int) -> None:
        # While it closes, the rest of a body that an application waits for is still taken; anything
        # else is read so that the peer gets to read the last answer.
        awaited = self._answering and self._stream is not None and not self._stream.disconnected
        if self._closing and not awaited:
            return
        reader = self._reader
        reader.feed(self._view[:nbytes])
        if reader.refusal is not None:
            self._refuse(reader.refusal)
        elif (reader.in_head or reader.in_body) and reader.phase_begun:
            self._await_rest()  # a request that is here already needs no deadline

    def _await_rest(self) -> None:
        """Limit the time for what is missing of the head or the body."""
        if self._reader.in_head:
            self._read_deadline = self._loop.time() + self._limits.head_seconds
        elif self._awaits_continue:
            self._read_deadline = _NEVER
        else:
            self._body_began = self._loop.time()
            self._read_deadline = self._body_began + self._limits.body_seconds

    def _become_idle(self) -> None:
        self.waits_since = self._loop.time()
        self._read_deadline = self.waits_since + self._limits.idle_seconds

    def _await_reading(self, unsent_bytes: int) -> None:
        self._unsent_bytes = unsent_bytes
        self._write_deadline = self._loop.time() + self._limits.write_seconds

    def _body_deadline(self) -> float:
        """Return when the body has to be here: the more has come, the later."""
        limits = self._limits
        seconds = limits.body_seconds + self._reader.body_bytes / limits.min_body_bytes_per_second
        return self._body_began + seconds

    def _continue(self) -> None:
        """Tell a peer that asked for it to send the body."""
        self._awaits_continue = False
        if not self._closing:
            self._await_rest()
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _body_was_read(self) -> None:
        self._resume_reading(_UNREAD_BODY)

    def _pause_reading(self, reason: int) -> None:
        self._reading_paused_for |= reason
        self.transport.pause_reading()

    def _resume_reading(self, reason: int) -> None:
        if not self._reading_paused_for & reason:
            return
        self._reading_paused_for &= ~reason
        if self._reading_paused_for or self.transport.is_closing():
            return
        if reason != _NO_TIME and (self._reader.in_head or self._reader.in_body):
            self._await_rest()  # the peer is not to blame for the time until now
        self.transport.resume_reading()

    def _resume_in_time(self, budget: CpuBudget) -> None:
        if (seconds := budget.wait_seconds()) > 0:
            self._loop.call_later(seconds, self._resume_in_time, budget)
        else:
            self._resume_reading(_NO_TIME)

    def _refuse(self, response: HttpResponse) -> None:
        """Close; send this response if no other one is due before it."""
        if self._closing:
            return
        self._closing = True
        if self._asgi is not None:
            response = self._asgi.typed(response)
        if self._stream is not None and self._answering and not self._requests:
            self._read_deadline = self._loop.time() + _LINGER_SECONDS
            self._stream.refuse(response)  # the application may have begun to answer
            return
        if self._stream is not None:
            self._stream.disconnect()
        if not self._answering:
            self.transport.write(response_bytes(response, keep_alive=False, bare=False))
        self._close()

    def _close(self) -> None:
        """Close when the peer has read what was sent, or takes too long to."""
        unread = self._reader.in_head or self._reader.in_body
        if unread and not self._answering and self.transport.can_write_eof():
            # It may still send: if it were cut off, it would not get to read why.
            self._resume_reading(_PIPELINED | _UNREAD_BODY)
            self.transport.write_eof()
        else:
            self.transport.close()
        self._read_deadline = self._loop.time() + _LINGER_SECONDS

    # --- answering ---------------------------------------------------------------------------

    def _wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    async def _serve(self) -> None:
        """Answer requests until the connection closes."""
        requests, reader = self._requests, self._reader
        socket_handler = self._handler if self._hosts is None else None
        while not self._closing:
            if not requests:
                self._wakeup = self._loop.create_future()
                await self._wakeup
                continue
            if self._write_paused:
                await self._writable.wait()
                continue
            if self._budget is not None:
                await self._budget.wait()
            self._answering = True
            request, body = requests.popleft()
            if self._reading_paused_for and len(requests) <= self._limits.max_pipelined:
                self._resume_reading(_PIPELINED)
            try:
                if socket_handler is not None:  # without detours
                    self._respond(request, await socket_handler.handle(request, self._disconnected))
                else:
                    await self._answer(request, body)
            finally:
                self._answering = False
            if requests:
                await asyncio.sleep(0)  # others have their turn
            elif not (reader.in_head or reader.in_body):
                self._become_idle()
        if not self.transport.is_closing():
            self._close()

    async def _answer(self, request: HttpRequest, body: RequestBody | None) -> None:
        refusal = None if self._hosts is None else self._hosts.refusal(request)
        if refusal is not None:
            self._closing = True
            self._respond(request, refusal if self._asgi is None else self._asgi.typed(refusal))
        elif self._handler is not None:
            self._respond(request, await self._handler.handle(request, self._disconnected))
        elif self._asgi is not None and body is not None:
            exchange = AsgiExchange(request, body, self, self._disconnected)
            await exchange.run(self._asgi)
            if not exchange.keep_alive:
                self._closing = True

    def _respond(self, request: HttpRequest, response: HttpResponse) -> None:
        if not request.keep_alive:
            self._closing = True
        transport = self.transport
        if transport.is_closing():
            return
        keep_alive, bare = not self._closing, request.method == "HEAD"
        if (budget := self._budget) is None:
            transport.write(response_bytes(response, keep_alive=keep_alive, bare=bare))
        else:
            started = thread_time()
            transport.write(response_bytes(response, keep_alive=keep_alive, bare=bare))
            budget.charge(thread_time() - started + _ANSWER_CPU_SECONDS)

    async def _disconnected(self) -> None:
        await asyncio.shield(self._ended)

    async def send(self, data: bytes) -> None:
        """Send a part of a response, when the peer has taken the parts before it."""
        await self._writable.wait()
        if self.transport.is_closing():
            raise PeerGone("the peer has disconnected")
        self.transport.write(data)
