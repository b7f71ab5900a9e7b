"""Serves an application on bound sockets, inside the running event loop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from typing import Protocol, runtime_checkable

from holdfast.engines.structured_log import StructuredLog

from .asgi import AsgiHandler
from .connection import HttpConnection
from .cpu_budget import CpuBudget
from .credential_files import TlsFiles
from .exchange import Handler
from .limits import HttpLimits
from .listeners import remove_sockets

log = StructuredLog("holdfast.http")

GRACE_SECONDS = 1
"""How long requests in progress may take once the server shuts down."""
SWEEP_SECONDS = 1.0
"""How often deadlines of connections are looked at."""
ACCEPT_AGAIN_SECONDS = 1.0
"""The pause after a connection could not be accepted: the process has no descriptor left."""
HANDSHAKE_SECONDS = 10.0
_HANDSHAKE_CPU_SECONDS = 0.002
"""What a TLS handshake costs, about; it happens where it cannot be measured."""
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@runtime_checkable
class Stoppable(Protocol):
    """An application that is stopped before the server shuts down."""

    def stop(self) -> None:
        """End requests that could take long."""


class HttpServer:
    """Accepts connections within limits, and closes those that take too long."""

    def __init__(
        self,
        handler: Handler | AsgiHandler,
        limits: HttpLimits,
        tls: TlsFiles | None = None,
    ) -> None:
        loop = self._loop = asyncio.get_running_loop()
        self.connections: set[HttpConnection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        share = limits.cpu_share
        self.budget = None if share is None else CpuBudget(share, loop.time)
        self._handler = handler
        self._limits = limits
        self._tls = tls
        self._handshakes: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()
        self._acceptors: list[asyncio.Task[None]] = []
        self._sweeper = loop.call_later(SWEEP_SECONDS, self._sweep)

    def listen(self, sockets: Sequence[socket.socket]) -> None:
        """Accept connections on these sockets, which belong to the server from now on."""
        for sock in sockets:
            sock.listen()
            sock.setblocking(False)  # noqa: FBT003 - the library's name for it
            self._acceptors.append(self._loop.create_task(self._accept(sock)))

    async def close(self) -> None:
        """Stop listening, finish requests in progress within ``GRACE_SECONDS``, close the rest."""
        self._sweeper.cancel()
        for task in (*self._acceptors, *self._handshakes):
            task.cancel()
        await asyncio.gather(*self._acceptors, *self._handshakes, return_exceptions=True)
        for connection in list(self.connections):
            connection.shutdown()
        if self.tasks:
            await asyncio.wait(list(self.tasks), timeout=GRACE_SECONDS)
        running = list(self.tasks)
        for task in running:
            task.cancel()
        if running:
            # Nothing may use the engine after this.
            await asyncio.wait(running, timeout=GRACE_SECONDS)
        await asyncio.sleep(0)  # answers that were written just now are sent
        for connection in list(self.connections):
            if not connection.transport.is_closing():
                connection.transport.abort()

    async def _accept(self, listener: socket.socket) -> None:
        with listener:
            while True:
                await self._wait_for_room()
                try:
                    sock, _address = await self._loop.sock_accept(listener)
                except OSError as error:
                    if error.errno in _NO_DESCRIPTOR:
                        log.emit("http.accept_failed", error=error)
                        await asyncio.sleep(ACCEPT_AGAIN_SECONDS)
                    continue  # another error is of the peer: it has gone already
                if self.budget is not None:
                    self.budget.charge(0.0 if self._tls is None else _HANDSHAKE_CPU_SECONDS)
                opening = self._loop.create_task(self._open(sock))
                self._handshakes.add(opening)
                opening.add_done_callback(self._handshakes.discard)

    async def _wait_for_room(self) -> None:
        """Return when one more connection may be accepted."""
        if self.budget is not None:
            await self.budget.wait()
        while len(self.connections) + len(self._handshakes) >= self._limits.max_connections:
            if self._limits.evict_idle and self._evict():
                return
            self._room.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._room.wait(), SWEEP_SECONDS)

    def _evict(self) -> bool:
        """Close the connection that has been idle for longest; return whether there was one."""
        idle = [connection for connection in self.connections if connection.idle]
        if not idle:
            return False
        min(idle, key=lambda connection: connection.idle_since).transport.abort()
        return True

    async def _open(self, sock: socket.socket) -> None:
        try:
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(
                lambda: HttpConnection(self._handler, self, self._limits),
                sock,
                ssl=None if self._tls is None else self._tls.context,
                ssl_handshake_timeout=None if self._tls is None else HANDSHAKE_SECONDS,
            )
        except (OSError, ssl.SSLError):
            sock.close()  # the peer has gone, or does not speak TLS
        except asyncio.CancelledError:
            sock.close()
            raise

    def _sweep(self) -> None:
        now = self._loop.time()
        for connection in [one for one in self.connections if one.deadline <= now]:
            connection.expire()
        self._room.set()
        if self._tls is not None:
            self._tls.refresh()
        self._sweeper = self._loop.call_later(SWEEP_SECONDS, self._sweep)


@contextlib.asynccontextmanager
async def serving(
    handler: Handler | AsgiHandler,
    *,
    sockets: Sequence[socket.socket],
    limits: HttpLimits,
    tls: TlsFiles | None = None,
) -> AsyncIterator[HttpServer]:
    """Serve while the context is open; it answers from the start.

    The sockets belong to the server: it closes them at the end, and removes Unix ones.
    """
    paths = [sock.getsockname() for sock in sockets if sock.family == socket.AF_UNIX]
    server = HttpServer(handler, limits, tls)
    server.listen(sockets)
    try:
        yield server
    finally:
        remove_sockets(paths)
        if isinstance(handler, Stoppable):
            handler.stop()
        await server.close()
