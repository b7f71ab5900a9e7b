"""HTTP/1.1 for an ``RpcApp``, without ASGI in between.

A small call costs less than half of what it costs by way of a general server: one read into a
buffer that is there already, one task, one write.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import cache
from http import HTTPStatus
from typing import NamedTuple, Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from holdfast.engines.protocol import messages

from .app import HttpResponse, RpcApp, problem

BUFFER_BYTES = 64 * 1024
MAX_HEAD_BYTES = 32 * 1024
MAX_LINED_UP = 16
"""How many requests a connection may send ahead before it is read no further."""


class ServerState(Protocol):
    """What a server knows of its connections, and of the requests under way."""

    @property
    def connections(self) -> set[HttpProtocol]:
        """Everything that is connected."""

    @property
    def tasks(self) -> set[asyncio.Task[None]]:
        """Everything that is being answered."""


class HttpRequest(NamedTuple):
    """One request, whole."""

    method: str
    path: str
    body: bytes
    keep_alive: bool


class HttpProtocol(asyncio.BufferedProtocol):
    """One connection. Its requests are answered one after another, by a task of its own."""

    def __init__(self, app: RpcApp, served: ServerState) -> None:
        self._app = app
        self._served = served
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._view = memoryview(bytearray(BUFFER_BYTES))
        self._parser = HttpRequestParser(self)
        self._requests: deque[HttpRequest] = deque()
        self._nudge: asyncio.Future[None] | None = None
        """Whatever the task waits for between two requests."""
        self._answering = False
        self._clogged = False
        self._leaving = False
        self.on_message_begin()

    def shutdown(self) -> None:
        """Close, after the answer that is under way if there is one."""
        self._leaving = True
        if not self._answering:
            self.transport.close()

    # --- what asyncio tells ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Be ready."""
        # Not every loop's transports are subclasses: uvloop's are not.
        self.transport = cast(asyncio.Transport, transport)
        self._served.connections.add(self)
        self._task = self._loop.create_task(self._serve())

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's contract
        """Return where to put what comes."""
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        """Read on."""
        try:
            self._parser.feed_data(self._view[:nbytes])
        except (HttpParserError, HttpParserUpgrade) as error:
            self._refuse(problem(messages.BAD_REQUEST, f"this is not HTTP/1.1: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's contract
        """Let whoever waits know that nobody wants the answer any more."""
        self._leaving = True
        self._served.connections.discard(self)
        if not self._ended.done():
            self._ended.set_result(None)
        self._wake()

    def pause_writing(self) -> None:
        """Begin no other request: nobody takes the answers."""
        self._clogged = True

    def resume_writing(self) -> None:
        """Go on."""
        self._clogged = False
        self._wake()

    # --- what the parser tells ---------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._url = b""
        self._parts: list[bytes] = []
        self._head_bytes = 0
        self._body_bytes = 0

    def on_url(self, url: bytes) -> None:
        """Take a part of the address."""
        self._url += url
        self._measure_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header: two of them matter."""
        self._measure_head(len(name) + len(value))
        if len(name) == _LENGTH and name.lower() == b"content-length":
            self._measure_body(int(value))
        elif len(name) == _EXPECT and name.lower() == b"expect":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, part: bytes) -> None:
        """Take a part of the body."""
        self._body_bytes += len(part)
        self._measure_body(self._body_bytes)
        if not self._leaving:
            self._parts.append(part)

    def on_message_complete(self) -> None:
        """Answer the request, or line it up."""
        if self._leaving:
            return
        parts = self._parts
        self._requests.append(
            HttpRequest(
                self._parser.get_method().decode(),
                self._url.partition(b"?")[0].decode("latin-1"),
                parts[0] if len(parts) == 1 else b"".join(parts),
                self._parser.should_keep_alive(),
            )
        )
        if len(self._requests) > MAX_LINED_UP:
            self.transport.pause_reading()
        self._wake()

    # --- answering ---------------------------------------------------------------------------

    def _measure_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(problem(431, f"a request has at most {MAX_HEAD_BYTES:,} bytes of headers"))

    def _measure_body(self, size: int) -> None:
        if size > self._app.max_body_bytes:
            self._refuse(self._app.too_large())

    def _refuse(self, response: HttpResponse) -> None:
        """Close; say why if no answer is due before that."""
        if not self._leaving and not self._answering:
            self._write(response, keep_alive=False)
        self._leaving = True
        self.transport.close()

    def _wake(self) -> None:
        if self._nudge is not None and not self._nudge.done():
            self._nudge.set_result(None)

    async def _serve(self) -> None:
        """Answer what comes, for as long as the connection lasts."""
        while not self._leaving:
            if self._clogged or not self._requests:
                self._nudge = self._loop.create_future()
                await self._nudge
                continue
            if len(self._requests) == MAX_LINED_UP:
                self.transport.resume_reading()
            self._answering = True
            self._served.tasks.add(self._task)
            await self._answer(self._requests.popleft())
            self._served.tasks.discard(self._task)
            self._answering = False
        self.transport.close()

    async def _answer(self, request: HttpRequest) -> None:
        response = await self._app.respond(
            request.method, request.path, request.body, self._departure
        )
        if not request.keep_alive:
            self._leaving = True
        if not self.transport.is_closing():
            self._write(response, keep_alive=not self._leaving, bare=request.method == "HEAD")

    async def _departure(self) -> None:
        await asyncio.shield(self._ended)

    def _write(self, response: HttpResponse, *, keep_alive: bool, bare: bool = False) -> None:
        head = b"%b%d\r\n" % (_head(response.status, response.kind), len(response.body))
        for name, value in response.headers:
            head += f"{name}: {value}\r\n".encode()
        head += b"\r\n" if keep_alive else b"connection: close\r\n\r\n"
        self.transport.write(head if bare else head + response.body)


@cache
def _head(status: int, kind: str) -> bytes:
    phrase = _PHRASES.get(status, "")
    return f"HTTP/1.1 {status} {phrase}\r\ncontent-type: {kind}\r\ncontent-length: ".encode()


_LENGTH, _EXPECT = len(b"content-length"), len(b"expect")
_PHRASES = {status.value: status.phrase for status in HTTPStatus}
