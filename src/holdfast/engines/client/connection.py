"""One connection to the owner of a store: HTTP/1.1 over a Unix socket, one request at a time."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from holdfast.model.errors import EngineClosed, NoOwner, Unavailable

FIRST_PAUSE_SECONDS = 0.005
LONGEST_PAUSE_SECONDS = 0.25
BUFFER_BYTES = 64 * 1024


class ConnectionBroken(Exception):
    """The connection ended before the answer came: nobody here knows what was done."""


class ReplyListener(Protocol):
    """Who is told what comes of a request."""

    def replied(self, status: int, body: bytes) -> None:
        """Take the reply; the connection is free again, if it is still ``usable``."""

    def broke(self) -> None:
        """Take note that the connection has ended; no reply comes any more."""


class Connection(asyncio.BufferedProtocol):
    """A connection that is kept alive between requests. Use ``dial`` to get one."""

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

    def request(self, path: str, body: bytes) -> None:
        """Send a request; the listener is told what comes of it."""
        self._waiting = True
        head = f"POST {path} HTTP/1.1\r\nHost: holdfast\r\nContent-Length: {len(body)}\r\n\r\n"
        self._transport.write(head.encode() + body)

    def give_up(self) -> None:
        """Let the other side know that nobody waits any more; what was on its way still comes."""
        self.usable = False
        if self._transport.can_write_eof() and not self._transport.is_closing():
            self._transport.write_eof()

    def close(self) -> None:
        """End the connection, whatever is on its way."""
        self.usable = False
        self._transport.abort()

    # --- what asyncio tells ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Be ready."""
        # Not every loop's transports are subclasses: uvloop's are not.
        self._transport = cast(asyncio.Transport, transport)
        self.usable = True

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's contract
        """Return where to put what comes: asyncio's own way makes a large buffer for each read."""
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        """Read on."""
        try:
            self._parser.feed_data(self._view[:nbytes])
        except (HttpParserError, HttpParserUpgrade):
            # Not HTTP, or cut in the middle: whatever it meant to say is lost.
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's contract
        """Tell whoever waits."""
        self.usable = self._waiting = False
        if not self.ended.done():
            self.ended.set_result(None)
        if self.listener is not None:
            self.listener.broke()

    # --- what the parser tells ---------------------------------------------------------------

    def on_body(self, part: bytes) -> None:
        """Keep a part of the reply."""
        self._parts.append(part)

    def on_message_complete(self) -> None:
        """Hand the reply over."""
        parts, self._parts = self._parts, []
        if not self._waiting or self.listener is None:
            self.close()  # nobody asked
            return
        self._waiting = False
        if not self._parser.should_keep_alive():
            self.usable = False
            self._transport.close()
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        self.listener.replied(self._parser.get_status_code(), body)


async def dial(path: str, until: float, closing: asyncio.Future[None]) -> Connection:
    """Connect to the owner that listens on this path, trying until this time of the loop.

    Raise ``NoOwner`` if nobody listened, ``Unavailable`` if it makes no sense to try on, and
    ``EngineClosed`` as soon as ``closing`` is done.
    """
    loop = asyncio.get_running_loop()
    pauses = Backoff()
    while not closing.done():
        connection = Connection(loop.create_future())
        try:
            await loop.create_unix_connection(partial(_same, connection), path)
        except (FileNotFoundError, ConnectionError, BlockingIOError):
            pass  # nobody there yet, or no more
        except (OSError, ValueError) as error:
            raise Unavailable(
                f"the owner of the store cannot be reached on {path} ({error}): run this as the "
                "user that runs the owner, or remove what is in its place"
            ) from error
        if connection.usable:
            return connection
        left = until - loop.time()
        if left <= 0:
            raise NoOwner(
                f"no process owns the store: nobody answers on {path}. Start one with "
                "`holdfast run`, for the same store"
            )
        await asyncio.wait([closing], timeout=min(pauses.next(), left))
    raise closed()


def closed() -> EngineClosed:
    """Return what is said to whoever calls a closed engine."""
    return EngineClosed("this engine was closed: open another one")


class Backoff:
    """How long to wait before the next try: ever longer, and never in step with others."""

    def __init__(self) -> None:
        self._seconds = FIRST_PAUSE_SECONDS

    def next(self) -> float:
        """Return the next pause in seconds."""
        pause = self._seconds * (0.5 + random.random())
        self._seconds = min(2 * self._seconds, LONGEST_PAUSE_SECONDS)
        return pause


def _same(connection: Connection) -> Connection:
    return connection
