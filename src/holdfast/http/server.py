"""Serves an application on bound sockets, inside the running event loop."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
import stat
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, runtime_checkable

import uvicorn

from holdfast.model.errors import DirectoryInUse, InvalidInput, StorageError

from .app import Receive, RequestScope, RpcApp, Send
from .http_protocol import HttpProtocol, ServerState

GRACE_SECONDS = 1
"""How long requests in progress may take once the server shuts down."""

BACKLOG = 2_048
"""How many connections may wait to be accepted: uvicorn's own number."""

IDLE_SECONDS = 24 * 3_600
"""Clients keep their connection: one that the server closes may lose a reply."""


class AsgiApp(Protocol):
    """An ASGI application."""

    async def __call__(self, scope: RequestScope, receive: Receive, send: Send) -> None:
        """Answer one request."""


@runtime_checkable
class Stoppable(Protocol):
    """An application that is stopped before the server shuts down."""

    def stop(self) -> None:
        """End requests that could take long."""


@contextlib.asynccontextmanager
async def serving(app: AsgiApp, *, sockets: Sequence[socket.socket]) -> AsyncIterator[None]:
    """Serve the application while the context is open; it answers from the start.

    An ``RpcApp`` is served without ASGI, any other application with it. The sockets belong to the
    server: it closes them at the end, and removes Unix ones. It does not handle signals.
    """
    config = uvicorn.Config(
        app,
        interface="asgi3",
        http="httptools",
        ws="none",
        loop="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        date_header=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    config.load()
    if isinstance(app, RpcApp):
        config.http_protocol_class = partial(_connection, app)  # type: ignore[assignment]
    server = _Server(config)
    paths = [sock.getsockname() for sock in sockets if sock.family == socket.AF_UNIX]
    running = asyncio.ensure_future(server.serve(sockets=list(sockets)))
    try:
        await asyncio.wait((running, server.ready), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        yield
    finally:
        _remove(paths)
        if isinstance(app, Stoppable):
            app.stop()
        server.close()
        await running


def _connection(
    app: RpcApp,
    *,
    server_state: ServerState,
    **_rest: object,
) -> HttpProtocol:
    """Return the protocol of a new connection, for uvicorn."""
    return HttpProtocol(app, server_state)


class _Server(uvicorn.Server):
    """A uvicorn server with a ``ready`` future and ``close``, without signal handlers."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = loop.create_future()
        self._closing: asyncio.Future[None] = loop.create_future()

    def close(self) -> None:
        if not self._closing.done():
            self._closing.set_result(None)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set_result(None)

    async def main_loop(self) -> None:
        await self._closing

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self.server_state.tasks:
            # They were cancelled; nothing may use the engine after this.
            await asyncio.wait(list(self.server_state.tasks), timeout=GRACE_SECONDS)
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def bind_socket(path: str) -> socket.socket:
    """Return a Unix socket at this path that only this user can connect to.

    For the owner of the store: a file that an earlier owner left is replaced. Raise
    ``DirectoryInUse`` if a process listens there, or another ``StorageError``.
    """
    _remove_stale_socket(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # The file gets the mode of the socket where the system supports it. Elsewhere it is open
        # until chmod, but no process listens yet.
        with contextlib.suppress(OSError):
            os.fchmod(sock.fileno(), 0o600)
        sock.bind(path)
        Path(path).chmod(0o600)
    except OSError as error:
        sock.close()
        raise StorageError(f"no socket can be made at {path}: {error}") from error
    return sock


def bind_loopback(host: str, port: int) -> socket.socket:
    """Return a TCP socket that listens on an address of this machine; port 0 is any free one.

    Raise ``InvalidInput`` for an address that others can reach, or one that is taken.
    """
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise InvalidInput("host", f"{host!r} is not an IP address, nor localhost") from None
    if not address.is_loopback:
        raise InvalidInput("host", f"{host} can be reached from elsewhere: use 127.0.0.1 or ::1")
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((str(address), port))
        # Bound is not enough: until one of them listens, two processes can have the same address.
        sock.listen(BACKLOG)
    except (OSError, OverflowError, TypeError) as error:
        sock.close()
        raise InvalidInput("port", f"{host} port {port!r} cannot be used ({error})") from error
    return sock


def _remove_stale_socket(path: str) -> None:
    """Remove a socket on which no process listens."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise StorageError(f"no socket can be made at {path!r}: {error}") from error
    if not stat.S_ISSOCK(found.st_mode):
        raise StorageError(f"{path} is to be a socket, and something else is there: move it away")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0)
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            _remove([path])
            return
        except BlockingIOError:
            pass  # a process listens, and is busy
        except OSError as error:
            raise StorageError(f"{path} cannot be looked at: {error}") from error
    raise DirectoryInUse(
        f"another process listens on {path}, so it owns the store: stop it first, or be its client"
    )


def _remove(paths: Sequence[str]) -> None:
    for path in paths:
        Path(path).unlink(missing_ok=True)
