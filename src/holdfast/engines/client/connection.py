"""One connection to the owner of a store: HTTP/1.1, one request at a time."""

from __future__ import annotations

import asyncio
import random
from typing import Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from holdfast.model.errors import EngineClosed, Unavailable

FIRST_PAUSE_SECONDS = 0.005
LONGEST_PAUSE_SECONDS = 0.25
BUFFER_BYTES = 64 * 1024
_LEAST_CONNECT_SECONDS = 0.05


class ConnectionBroken(Exception):
    """The connection ended before the reply came: the outcome of the request is unknown."""


class ReplyListener(Protocol):
    """Receives the outcome of a request."""

    def on_reply(self, status: int, body: bytes) -> None:
        """Take the reply; the connection is free again, if it is still ``usable``."""

    def on_broken(self) -> None:
        """The connection has ended: no reply will come."""


class Connection(asyncio.BufferedProtocol):
    """A connection that is kept alive between requests. Made by ``connect``."""

    def __init__(self, ended: asyncio.Future[None]) -> None:
        self.listener: ReplyListener | None = None
        self.ended = ended
        """Done when the connection has ended."""
        self.usable = False
        """Whether another request may be sent."""
        self._view = memoryview(bytearray(BUFFER_BYTES))
        self._parser = HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._waiting = False

    def request(self, message: bytes) -> None:
        """Send a request, head and body; its outcome goes to the listener."""
        self._waiting = True
        self._transport.write(message)

    def cancel_request(self, *, closing: bool = False) -> None:
        """Tell the server that the reply is not needed; one that is on its way still arrives.

        TLS cannot say so: there the reply is awaited, or with ``closing`` the connection ended.
        """
        self.usable = False
        if self._transport.is_closing():
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        elif closing:
            self._transport.abort()

    def close(self) -> None:
        """End the connection at once."""
        self.usable = False
        self._transport.abort()

    # --- asyncio.BufferedProtocol ------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.BufferedProtocol``."""
        # Not every loop's transports are subclasses: uvloop's are not.
        self._transport = cast(asyncio.Transport, transport)
        self.usable = True

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's contract
        """Return one buffer for every read: asyncio's own way allocates a large one each time."""
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        """Parse what was read."""
        try:
            self._parser.feed_data(self._view[:nbytes])
        except (HttpParserError, HttpParserUpgrade):
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's contract
        """See ``asyncio.BufferedProtocol``."""
        self.usable = self._waiting = False
        if not self.ended.done():
            self.ended.set_result(None)
        if self.listener is not None:
            self.listener.on_broken()

    # --- callbacks of the parser -------------------------------------------------------------

    def on_body(self, part: bytes) -> None:
        """Keep a part of the reply."""
        self._parts.append(part)

    def on_message_complete(self) -> None:
        """Deliver the reply."""
        parts, self._parts = self._parts, []
        if not self._waiting or self.listener is None:
            self.close()  # a reply without a request
            return
        self._waiting = False
        if not self._parser.should_keep_alive():
            self.usable = False
            self._transport.close()
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        self.listener.on_reply(self._parser.get_status_code(), body)


class Endpoint(Protocol):
    """Where an owner answers: how to connect to it, and what each request begins with."""

    shown: str
    """As messages name it."""

    @property
    def max_body_bytes(self) -> int:
        """The limit of a request."""

    def head(self, path: str, length: int) -> bytes:
        """Return the head of a request with a body of this length."""

    async def open(self, seconds: float) -> Connection:
        """Connect within this time. Raise ``OSError`` or ``ValueError`` if that fails."""

    def may_come(self, error: Exception) -> bool:
        """Whether another try may succeed after this error."""

    def unreachable(self, error: Exception) -> Unavailable:
        """Return the error for a place that no other try will reach."""

    def silent(self) -> Unavailable:
        """Return the error for an owner that did not answer in time."""

    def closed(self, detail: str) -> Unavailable:
        """Return the error for an owner that takes no more calls, and has done nothing."""


async def connect(endpoint: Endpoint, until: float, closing: asyncio.Future[None]) -> Connection:
    """Connect to the owner there, retrying until this loop time.

    Raise ``Unavailable`` as the endpoint names it, ``StoreNotOurs`` if a process of another user
    listens, and ``EngineClosed`` as soon as ``closing`` is done.
    """
    loop = asyncio.get_running_loop()
    backoff = Backoff()
    while not closing.done():
        try:
            connection = await endpoint.open(max(_LEAST_CONNECT_SECONDS, until - loop.time()))
            if connection.usable:
                return connection
        except (OSError, ValueError) as error:
            if not endpoint.may_come(error):
                raise endpoint.unreachable(error) from error
        left = until - loop.time()
        if left <= 0:
            raise endpoint.silent()
        await asyncio.wait([closing], timeout=min(backoff.next(), left))
    raise closed_error()


def closed_error() -> EngineClosed:
    """Return the error of calls to a closed engine."""
    return EngineClosed("this engine was closed: open another one")


class Backoff:
    """Pauses between tries: exponential, with jitter."""

    def __init__(self) -> None:
        self._seconds = FIRST_PAUSE_SECONDS

    def next(self) -> float:
        """Return the next pause in seconds."""
        pause = self._seconds * (0.5 + random.random())
        self._seconds = min(2 * self._seconds, LONGEST_PAUSE_SECONDS)
        return pause
