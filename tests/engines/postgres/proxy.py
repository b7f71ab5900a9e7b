"""A connection that fails: a proxy before PostgreSQL that knows where messages end.

It listens on a free port of the loopback, whatever way the server itself is reached. A fault is
armed for the next connection with traffic; it strikes once.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import TracebackType
from typing import Literal

from psycopg.conninfo import conninfo_to_dict

Side = Literal["request", "answer"]
How = Literal["end", "reset", "hang", "hold"]
"""The connection is ended, is reset, stays open and silent, or delivers everything later."""
READY, GOODBYE = b"Z", b"X"


class Fault:
    """Lets ``after`` messages of one side pass, and strikes at the next."""

    def __init__(self, side: Side, after: int, how: How) -> None:
        self.side = side
        self.left = after
        self.how = how
        self.struck = asyncio.Event()
        self.link: Link | None = None

    def strikes(self, link: Link) -> bool:
        """Count a message of this side; return whether the fault strikes at it."""
        if self.link not in (None, link) or self.struck.is_set():
            return False
        self.link = link
        self.left -= 1
        if self.left >= 0:
            return False
        self.struck.set()
        return True


class Link:
    """The connection of one client, and its connection to the server."""

    def __init__(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self.from_client, self.to_client = client
        self.from_server, self.to_server = server
        self.ready = False
        self.how: How | None = None
        """The fault that has struck it."""
        self.deaf = False
        """Whether the server gets no more messages."""
        self.held: list[bytes] = []
        self.finished = asyncio.Event()
        """The server has ended the connection."""

    def cut(self) -> None:
        """Abort both connections."""
        if self.how == "reset":
            sock = self.to_client.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.to_client.transport.abort()
        self.to_server.transport.abort()

    async def release(self) -> None:
        """Send the held messages to the server; wait until it has closed the connection."""
        for message in self.held:
            self.to_server.write(message)
        self.to_server.write_eof()
        await self.finished.wait()


class Proxy:
    """Listens for clients of one server. Use it as a context manager."""

    def __init__(self, url: str, delay: Callable[[], float] | None = None) -> None:
        """Take the server's URL; ``delay`` is how many seconds each message takes."""
        self._parts = conninfo_to_dict(url)
        self._delay = delay
        self._fault: Fault | None = None
        self._links: set[asyncio.Task[None]] = set()
        self._open: set[Link] = set()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """The URL for clients."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        user, database = self._parts.get("user", ""), self._parts.get("dbname", "")
        password = f":{self._parts['password']}" if "password" in self._parts else ""
        where = f"{user}{password}@127.0.0.1:{port}/{database}"
        return f"postgresql://{where}?sslmode=disable&gssencmode=disable"

    def arm(self, fault: Fault | None) -> None:
        """Have this happen to the next connection with traffic."""
        self._fault = fault

    def cut(self) -> None:
        """Abort every connection."""
        for link in self._open:
            link.cut()

    def refuse(self) -> None:
        """Refuse new connections; existing ones stay."""
        assert self._server is not None
        self._server.close()

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._links:
            task.cancel()
        if self._links:
            await asyncio.wait(self._links)
        await asyncio.sleep(0)  # what was aborted is closed in the next round of the loop

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._links.add(task)
        task.add_done_callback(self._links.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link: Link | None = None
        pumps: list[asyncio.Future[None]] = []
        try:
            link = Link((reader, writer), await self._connect())
            self._open.add(link)
            pumps += map(asyncio.ensure_future, (self._requests(link), self._answers(link)))
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            if link.how == "hold":
                await asyncio.wait(pumps)  # the client has left; the server may still get the data
        except OSError:
            pass  # the server is down
        finally:
            for pump in pumps:
                pump.cancel()
            if link is None:
                writer.transport.abort()
            else:
                self._open.discard(link)
                link.cut()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = str(self._parts.get("host", "")), int(self._parts.get("port") or 5432)
        if host.startswith("/"):
            return await asyncio.open_unix_connection(str(Path(host) / f".s.PGSQL.{port}"))
        return await asyncio.open_connection(host, port)

    async def _requests(self, link: Link) -> None:
        async for kind, message in _messages(link.from_client, untyped_first=True):
            if kind != GOODBYE and self._strikes("request", link):
                if link.how in ("end", "reset"):
                    return
                link.deaf = True
            if not link.deaf:
                await self._pass(link.to_server, message)
            elif link.how == "hold":
                link.held.append(message)

    async def _answers(self, link: Link) -> None:
        """Pass on what the server sends. It finishes what it does when the fault strikes."""
        async for kind, message in _messages(link.from_server, untyped_first=False):
            self._strikes("answer", link)
            if link.how is not None:
                if kind == READY and link.how in ("end", "reset"):
                    return
                continue
            await self._pass(link.to_client, message)
            link.ready = link.ready or kind == READY
        link.finished.set()

    def _strikes(self, side: Side, link: Link) -> bool:
        fault = self._fault
        if fault is None or fault.side != side or not link.ready or not fault.strikes(link):
            return False
        link.how = fault.how
        return True

    async def _pass(self, writer: asyncio.StreamWriter, message: bytes) -> None:
        if self._delay is not None:
            await asyncio.sleep(self._delay())
        writer.write(message)
        with contextlib.suppress(ConnectionError):
            await writer.drain()


async def _messages(
    reader: asyncio.StreamReader, *, untyped_first: bool
) -> AsyncIterator[tuple[bytes, bytes]]:
    """Yield the type and the bytes of each message until there are no more."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            kind = b"" if untyped_first else await reader.readexactly(1)
            untyped_first = False
            length = await reader.readexactly(4)
            rest = await reader.readexactly(int.from_bytes(length, "big") - 4)
            yield kind, kind + length + rest
