"""One HTTP/1.1 connection: its bytes become requests within limits, answered one after another.

A small call costs less than half of what it costs in a general server: one read into an existing
buffer, one task, one write.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter
from typing import Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from .asgi import AsgiExchange, AsgiHandler, RequestBody
from .cpu_budget import CALLBACK_SECONDS, CpuBudget
from .exchange import Handler, HttpRequest, HttpResponse, problem, response_bytes
from .limits import HttpLimits

_SMALLEST_CHUNK_BYTES = 64
"""Of a body in chunks, on average; the first thousand may be smaller."""
_FREE_CHUNKS = 1_000
_NEVER = float("inf")
_LINGER_SECONDS = 5.0
"""How long a peer that was refused may take to read why."""
# Why reading pauses.
_PIPELINED, _UNREAD_BODY, _NO_TIME = 1, 2, 4


class ServerState(Protocol):
    """A server's connections, its tasks that answer a request, and its share of the loop."""

    @property
    def connections(self) -> set[HttpConnection]:
        """The open connections."""

    @property
    def tasks(self) -> set[asyncio.Task[None]]:
        """The tasks of requests in progress."""

    @property
    def budget(self) -> CpuBudget | None:
        """What the listener may take of the event loop's time; None: as much as it needs."""


class HttpConnection(asyncio.BufferedProtocol):
    """One connection. Its requests are answered one after another, by a task of its own."""

    deadline: float = _NEVER
    """When the server closes the connection, by the time of the loop."""
    idle_since: float = 0.0

    def __init__(
        self, handler: Handler | AsgiHandler, server: ServerState, limits: HttpLimits
    ) -> None:
        self._handler = handler
        self._server = server
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._view = memoryview(bytearray(limits.buffer_bytes))
        self._parser = HttpRequestParser(self)
        self._requests: deque[tuple[HttpRequest, RequestBody | None]] = deque()
        self._wakeup: asyncio.Future[None] | None = None
        """What the task awaits between two requests, and while the peer reads no answers."""
        self._answering = False
        self._paused = False
        self._closing = False
        self._reading_paused_for = 0
        self._head_fed_bytes = 0
        self._in_head = False
        self._stream: RequestBody | None = None
        self._reset()

    @property
    def idle(self) -> bool:
        """Whether no request is in progress, not even the first bytes of one."""
        return not (self._answering or self._in_head or self._requests or self._in_body)

    def shutdown(self) -> None:
        """Close, after the request in progress if there is one."""
        self._closing = True
        if not self._answering:
            self.transport.close()

    def expire(self) -> None:
        """Close: the deadline has passed."""
        if self._closing or self._paused:
            self.transport.abort()
        elif self._in_head or self._in_body:
            self._refuse(problem(408, "the request took too long to arrive"))
        else:
            self.shutdown()
            self.deadline = self._loop.time() + _LINGER_SECONDS

    # --- asyncio.BufferedProtocol ------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the task that answers requests."""
        # Not every loop's transports are subclasses: uvloop's are not.
        self.transport = cast(asyncio.Transport, transport)
        self._server.connections.add(self)
        self._become_idle()
        self._task = self._loop.create_task(self._serve())

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's contract
        """Return one buffer for every read."""
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        """Parse what was read."""
        if self._closing:
            return
        if (budget := self._server.budget) is None:
            self._feed(nbytes)
            return
        started = perf_counter()
        self._feed(nbytes)
        budget.charge(perf_counter() - started)
        if (seconds := budget.wait_seconds()) > 0:
            self._pause_reading(_NO_TIME)
            self._loop.call_later(seconds, self._resume_reading, _NO_TIME)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's contract
        """Tell the request in progress that the peer has disconnected."""
        self._closing = True
        self._server.connections.discard(self)
        if self._stream is not None:
            self._stream.disconnect()
        if not self._ended.done():
            self._ended.set_result(None)
        self._wake()

    def pause_writing(self) -> None:
        """Start no other request: the peer does not read the answers."""
        self._paused = True
        self.deadline = self._loop.time() + self._limits.write_seconds

    def resume_writing(self) -> None:
        """Continue."""
        self._paused = False
        self.deadline = _NEVER
        if self.idle:
            self._become_idle()
        self._wake()

    # --- callbacks of the parser -------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._in_head = True
        if not self._paused:
            self.deadline = self._loop.time() + self._limits.head_seconds
        self._reset()

    def on_url(self, url: bytes) -> None:
        """Take a part of the URL."""
        self._url += url
        self._measure_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        self._measure_head(len(name) + len(value))
        if len(self._headers) == self._limits.max_headers:
            self._refuse(problem(431, f"at most {self._limits.max_headers:,} headers"))
        name = name.lower()
        self._headers.append((name, value))
        if name == b"content-length":
            self._measure_body(int(value))

    def on_headers_complete(self) -> None:
        """Begin the body; a request whose body is a stream is answered from here on."""
        self._head_fed_bytes = 0
        self._in_head = False
        if self._closing:
            return
        self._in_body = True
        self._body_began = self._loop.time()
        self._move_body_deadline()
        expected = any(name == b"expect" for name, _value in self._headers)
        if isinstance(self._handler, AsgiHandler):
            self._stream = RequestBody(self.resume_body, self._continue if expected else None)
            self._requests.append((self._request(b""), self._stream))
            self._wake()
        elif expected:
            self._continue()

    def on_body(self, part: bytes) -> None:
        """Take a part of the body."""
        self._body_bytes += len(part)
        self._chunks += 1
        self._measure_body(self._body_bytes)
        if self._chunks > _FREE_CHUNKS + self._body_bytes / _SMALLEST_CHUNK_BYTES:
            self._refuse(problem(400, "the chunks of the body are too small"))
        if self._closing:
            return
        self._move_body_deadline()
        if self._stream is None:
            self._body += part
        elif self._stream.feed(part):
            self._pause_reading(_UNREAD_BODY)

    def on_message_complete(self) -> None:
        """Queue the request, or end its stream."""
        self._in_body = False
        if self._closing:
            return
        if not self._paused:
            self.deadline = _NEVER
        if self._stream is not None:
            self._stream.end()
            self._stream = None
        else:
            self._requests.append((self._request(bytes(self._body)), None))
        if len(self._requests) > self._limits.max_pipelined:
            self._pause_reading(_PIPELINED)
        self._wake()

    # --- within limits -----------------------------------------------------------------------

    def _reset(self) -> None:
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._body = bytearray()
        self._head_bytes = self._body_bytes = self._chunks = 0
        self._in_body = False
        self._body_began = 0.0

    def _feed(self, nbytes: int) -> None:
        # The parser reports a header when it is complete, and has it in memory until then.
        self._head_fed_bytes += nbytes
        try:
            self._parser.feed_data(self._view[:nbytes])
        except (HttpParserError, HttpParserUpgrade) as error:
            self._refuse(problem(400, f"this is not HTTP/1.1: {error}"))
        if not self._in_head:
            self._head_fed_bytes = 0
        elif self._head_fed_bytes > self._limits.max_head_bytes + self._limits.buffer_bytes:
            self._measure_head(self._head_fed_bytes)

    def _measure_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > (most := self._limits.max_head_bytes):
            self._refuse(problem(431, f"a request has at most {most:,} bytes of headers"))

    def _measure_body(self, size: int) -> None:
        if size > (most := self._limits.max_body_bytes):
            self._refuse(problem(413, f"a body has at most {most:,} bytes: send less at once"))

    def _move_body_deadline(self) -> None:
        if not self._paused:
            slowest = self._limits.min_body_bytes_per_second
            seconds = self._limits.body_seconds + self._body_bytes / slowest
            self.deadline = self._body_began + seconds

    def _pause_reading(self, reason: int) -> None:
        self._reading_paused_for |= reason
        self.transport.pause_reading()

    def _resume_reading(self, reason: int) -> None:
        self._reading_paused_for &= ~reason
        if not self._reading_paused_for and not self.transport.is_closing():
            self.transport.resume_reading()

    def resume_body(self) -> None:
        """Read on: the application has taken the body so far."""
        if self._reading_paused_for & _UNREAD_BODY:
            # What it took to read is not the peer's fault.
            self._body_began = self._loop.time()
            self._move_body_deadline()
        self._resume_reading(_UNREAD_BODY)

    def _refuse(self, response: HttpResponse) -> None:
        """Close; send this response if no other one is due before it."""
        if not self._closing and not self._answering:
            self._write(response, keep_alive=False)
        self._closing = True
        if self._stream is not None:
            self._stream.disconnect()
        self.deadline = self._loop.time() + _LINGER_SECONDS
        self.transport.close()

    def _become_idle(self) -> None:
        self.idle_since = self._loop.time()
        if not self._paused:
            self.deadline = self.idle_since + self._limits.idle_seconds

    # --- answering ---------------------------------------------------------------------------

    def _request(self, body: bytes) -> HttpRequest:
        return HttpRequest(
            self._parser.get_method().decode(),
            self._url,
            self._headers,
            self._parser.get_http_version(),
            self._parser.should_keep_alive(),
            body,
        )

    def _wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    async def _serve(self) -> None:
        """Answer requests until the connection closes."""
        while not self._closing:
            if self._paused or not self._requests:
                await self._next_event()
                continue
            if (budget := self._server.budget) is not None:
                await budget.wait()
            if len(self._requests) == self._limits.max_pipelined:
                self._resume_reading(_PIPELINED)
            self._answering = True
            self._server.tasks.add(self._task)
            await self._answer(*self._requests.popleft())
            self._server.tasks.discard(self._task)
            self._answering = False
            if self._requests:
                await asyncio.sleep(0)  # others have their turn
            elif self.idle:
                self._become_idle()
        self.transport.close()

    async def _next_event(self) -> None:
        self._wakeup = self._loop.create_future()
        await self._wakeup

    async def _answer(self, request: HttpRequest, body: RequestBody | None) -> None:
        if isinstance(self._handler, AsgiHandler) and body is not None:
            exchange = AsgiExchange(request, body, self, self._disconnected)
            await exchange.run(self._handler)
            if not exchange.keep_alive:
                self._closing = True
        elif not isinstance(self._handler, AsgiHandler):
            response = await self._handler.handle(request, self._disconnected)
            if not request.keep_alive:
                self._closing = True
            if not self.transport.is_closing():
                self._write(response, keep_alive=not self._closing, bare=request.method == "HEAD")
        if self._server.budget is not None:
            self._server.budget.charge(CALLBACK_SECONDS)

    async def _disconnected(self) -> None:
        await asyncio.shield(self._ended)

    def _continue(self) -> None:
        if not self._closing:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _write(self, response: HttpResponse, *, keep_alive: bool, bare: bool = False) -> None:
        self.transport.write(response_bytes(response, keep_alive=keep_alive, bare=bare))

    # --- for an ASGI exchange ----------------------------------------------------------------

    @property
    def closing(self) -> bool:
        """Whether nothing more can be sent, or no other request is to be answered."""
        return self._closing

    async def send(self, data: bytes) -> None:
        """Send a part of a response, when the peer has taken the parts before it."""
        while self._paused and not self.transport.is_closing():
            await self._next_event()
        if self.transport.is_closing():
            raise ConnectionResetError("the peer has disconnected")
        self.transport.write(data)
