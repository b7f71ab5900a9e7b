"""Answers that are sent while they are made, and bodies that are read while they arrive."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import cast

import msgspec

from holdfast.http.asgi import PeerGone, Receive, Send

from .problems import RequestRefused

MAX_STREAMED_BYTES = 1 << 30
"""Of a body that is read while it arrives."""
Parts = AsyncGenerator[bytes, None]


class StreamedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer in parts. What goes wrong before the first part is a problem, as ever."""

    content_type: str
    parts: Parts
    headers: Mapping[str, str] = {}


class BodyStream:
    """The body of a request while it arrives. What is not read is not sent: back-pressure."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.most_bytes = MAX_STREAMED_BYTES
        self._read_bytes = 0
        self.complete = False

    async def read(self) -> bytes:
        """Return the next part, empty at the end; raise ``PeerGone`` or ``RequestRefused``.

        It may be cancelled: then nothing is lost.
        """
        while not self.complete:
            message = await self._receive()
            if message["type"] != "http.request":
                raise PeerGone("the peer has gone")
            part = cast(bytes, message.get("body", b""))
            self.complete = not message.get("more_body", False)
            self._read_bytes += len(part)
            if self._read_bytes > self.most_bytes:
                raise self.too_large()
            if part:
                return part
        return b""

    async def whole(self) -> bytes:
        """Return all of it."""
        parts: list[bytes] = []
        while part := await self.read():
            parts.append(part)
        return b"".join(parts)

    def too_large(self) -> RequestRefused:
        """Return the refusal of a body that is over the limit."""
        return RequestRefused("too-large", f"a body here has at most {self.most_bytes:,} bytes")

    async def gone(self) -> None:
        """Return when the peer has gone; nothing may read meanwhile."""
        while (await self._receive())["type"] == "http.request":
            pass


async def send_parts(first: bytes, parts: Parts, body: BodyStream, send: Send) -> None:
    """Send an answer in parts, each when the peer has taken the one before.

    The work stops when the peer goes away: while it is sent to, and while nothing is sent.
    """

    async def produce() -> None:
        await send({"type": "http.response.body", "body": first, "more_body": True})
        async for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    try:
        if not body.complete:
            await produce()  # it reads the body itself, and so notices
            return
        producing = asyncio.create_task(produce())
        leaving = asyncio.create_task(body.gone())
        try:
            await asyncio.wait({producing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not producing.done():
                raise PeerGone("the peer has gone")
            producing.result()
        finally:
            for task in (producing, leaving):
                task.cancel()
            await asyncio.gather(producing, leaving, return_exceptions=True)
    finally:
        with contextlib.suppress(PeerGone):
            await parts.aclose()


async def buffered(parts: Parts, most_bytes: int) -> Parts:
    """Yield the same, and make up to so many bytes ahead of who takes them.

    Many clients read no answer before they have sent everything: both sides would wait for ever.
    """
    ready: list[bytes] = []
    came, taken = asyncio.Event(), asyncio.Event()
    taken.set()

    async def produce() -> None:
        try:
            async for part in parts:
                ready.append(part)
                came.set()
                if sum(map(len, ready)) > most_bytes:
                    taken.clear()
                    await taken.wait()
        finally:
            came.set()

    producing = asyncio.create_task(produce())
    try:
        while True:
            await came.wait()
            came.clear()
            part = b"".join(ready)
            ready.clear()
            taken.set()
            if part:
                yield part
            if producing.done() and not ready:
                producing.result()
                return
            if producing.done():
                came.set()
    finally:
        producing.cancel()
        await asyncio.gather(producing, return_exceptions=True)
        await parts.aclose()
