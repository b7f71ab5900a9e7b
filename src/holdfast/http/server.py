"""Serves an application on bound sockets, inside the running event loop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Protocol, runtime_checkable

from holdfast.engines.structured_log import StructuredLog

from .allowed_hosts import AllowedHosts
from .asgi import AsgiHandler
from .connection import HttpConnection
from .cpu_budget import CpuBudget
from .credential_files import TlsFiles
from .exchange import Handler
from .lifespan import lifespan
from .limits import HttpLimits
from .listeners import remove_sockets

log = StructuredLog("holdfast.http")

GRACE_SECONDS = 1.0
"""How long requests in progress may take once the server shuts down."""
SWEEP_SECONDS = 1.0
"""How often deadlines of connections are looked at."""
ACCEPT_AGAIN_SECONDS = 1.0
"""The pause after a connection could not be accepted: the process has no descriptor left."""
HANDSHAKE_SECONDS = 10.0
TLS_CLOSE_SECONDS = 2.0
"""How long a peer may take to agree that a TLS connection ends: an idle one may never read."""
_CONNECTION_CPU_SECONDS = 0.000_45
"""What it costs, about, to accept a connection and to close it; it cannot be measured."""
_HANDSHAKE_CPU_SECONDS = 0.002
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
        hosts: AllowedHosts | None = None,
    ) -> None:
        loop = self._loop = asyncio.get_running_loop()
        self.connections: set[HttpConnection] = set()
        self._cut_off: set[asyncio.Task[None]] = set()
        """The tasks of requests whose connection is closed already."""
        share = limits.cpu_share
        self.budget = None if share is None else CpuBudget(share, loop.time)
        self._handler = handler
        self._limits = limits
        self._tls = tls
        self._hosts = hosts
        self._listeners: list[socket.socket] = []
        self._acceptors: list[asyncio.Task[None]] = []
        self._opening: dict[asyncio.Task[None], None] = {}
        """The oldest first. With TLS a handshake is part of it."""
        self._changed = asyncio.Event()
        """Set when a connection is closed."""
        self._sweeper = loop.call_later(SWEEP_SECONDS, self._sweep)

    @property
    def tasks(self) -> set[asyncio.Task[None]]:
        """The tasks of requests in progress."""
        found = {task for one in self.connections if (task := one.answering) is not None}
        return found | self._cut_off

    def listen(self, sockets: Sequence[socket.socket]) -> None:
        """Accept connections on these sockets."""
        for sock in sockets:
            self._listeners.append(sock)
            sock.listen(self._limits.backlog)
            sock.setblocking(False)  # noqa: FBT003 - the library's name for it
            self._acceptors.append(self._loop.create_task(self._accept(sock)))

    async def close(self, grace_seconds: float) -> None:
        """Stop listening, finish requests in progress within this time, close the rest."""
        self._sweeper.cancel()
        ending = [*self._acceptors, *self._opening]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        for sock in self._listeners:
            sock.close()
        for connection in list(self.connections):
            connection.shutdown()
        give_up = self._loop.time() + grace_seconds
        while self.connections and (left := give_up - self._loop.time()) > 0:
            await self._wait_for_change(left)
        running = self.tasks
        for task in running:
            task.cancel()
        if running:
            # Nothing may use the engine after this.
            await asyncio.wait(running, timeout=grace_seconds)
        for connection in list(self.connections):
            connection.transport.abort()
        await asyncio.sleep(0)  # they are told

    # --- for connections ---------------------------------------------------------------------

    def opened(self, connection: HttpConnection) -> None:
        """Keep a connection."""
        self.connections.add(connection)

    def closed(self, connection: HttpConnection) -> None:
        """Forget a connection: there is room for another one."""
        self.connections.discard(connection)
        if (task := connection.answering) is not None:
            self._cut_off.add(task)
            task.add_done_callback(self._cut_off.discard)
        self._changed.set()

    # --- accepting ---------------------------------------------------------------------------

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            await self._wait_for_room()
            try:
                # Not sock_accept: a task that is cancelled at that moment loses the connection.
                sock, _address = listener.accept()
            except BlockingIOError:
                await self._wait_for_peer(listener)
                continue
            except OSError as error:
                if error.errno in _NO_DESCRIPTOR:
                    log.emit("http.accept_failed", error=error)
                    await asyncio.sleep(ACCEPT_AGAIN_SECONDS)
                continue  # another error is of the peer: it has gone already
            sock.setblocking(False)  # noqa: FBT003 - the library's name for it
            if self.budget is not None:
                handshake = 0.0 if self._tls is None else _HANDSHAKE_CPU_SECONDS
                self.budget.charge(_CONNECTION_CPU_SECONDS + handshake)
            opening = self._loop.create_task(self._open(sock))
            self._opening[opening] = None
            opening.add_done_callback(partial(self._opened, sock))
            await asyncio.sleep(0)  # others have their turn

    async def _wait_for_peer(self, listener: socket.socket) -> None:
        came = asyncio.Event()
        self._loop.add_reader(listener, came.set)
        try:
            await came.wait()
        finally:
            self._loop.remove_reader(listener)

    async def _open(self, sock: socket.socket) -> None:
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await self._loop.connect_accepted_socket(
            lambda: HttpConnection(self._handler, self, self._limits, self._hosts),
            sock,
            ssl=None if self._tls is None else self._tls.context,
            ssl_handshake_timeout=None if self._tls is None else HANDSHAKE_SECONDS,
            ssl_shutdown_timeout=None if self._tls is None else TLS_CLOSE_SECONDS,
        )

    def _opened(self, sock: socket.socket, opening: asyncio.Task[None]) -> None:
        del self._opening[opening]
        self._changed.set()
        # If it failed, the peer has gone, or does not speak TLS.
        if opening.cancelled() or opening.exception() is not None:
            sock.close()

    async def _wait_for_room(self) -> None:
        """Return when one more connection may be accepted."""
        if self.budget is not None:
            await self.budget.wait()
        while len(self.connections) + len(self._opening) >= self._limits.max_connections:
            if self._limits.evict:
                self._evict()
            await self._wait_for_change(SWEEP_SECONDS)

    async def _wait_for_change(self, seconds: float) -> None:
        self._changed.clear()
        # Not wait_for: if the event and a cancellation come together, it loses the cancellation.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def _evict(self) -> None:
        """Close the connection that has waited for its peer for longest."""
        waiting = [one for one in self.connections if one.waits_for_peer]
        if waiting:
            min(waiting, key=lambda one: one.waits_since).transport.abort()
        elif self._opening and self._tls is not None:
            next(iter(self._opening)).cancel()

    def _sweep(self) -> None:
        now = self._loop.time()
        for connection in list(self.connections):
            connection.check_deadlines(now)
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
    hosts: AllowedHosts | None = None,
    grace_seconds: float | None = None,
) -> AsyncIterator[HttpServer]:
    """Serve while the context is open; it answers from the start.

    The sockets belong to the server: it closes them at the end, and removes Unix ones. Without
    ``grace_seconds`` it is ``GRACE_SECONDS``.
    """
    grace_seconds = GRACE_SECONDS if grace_seconds is None else grace_seconds
    paths = [sock.getsockname() for sock in sockets if sock.family == socket.AF_UNIX]
    async with contextlib.AsyncExitStack() as stack:
        for sock in sockets:
            stack.callback(sock.close)
        if isinstance(handler, AsgiHandler):
            await stack.enter_async_context(lifespan(handler, grace_seconds))
        server = HttpServer(handler, limits, tls, hosts)
        server.listen(sockets)
        try:
            yield server
        finally:
            remove_sockets(paths)
            if isinstance(handler, Stoppable):
                handler.stop()
            await server.close(grace_seconds)
