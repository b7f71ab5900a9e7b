"""Serving on sockets that are bound already, inside the running event loop."""

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
"""How long requests under way may take once the server shuts down."""

IDLE_SECONDS = 24 * 3_600
"""A client keeps its connection; one that was closed behind its back would cost it a doubt."""


class AsgiApp(Protocol):
    """An ASGI application."""

    async def __call__(self, scope: RequestScope, receive: Receive, send: Send) -> None:
        """Answer one request."""


@runtime_checkable
class Stoppable(Protocol):
    """An application that wants to know when the server is about to shut down."""

    def stop(self) -> None:
        """Bring requests that could take long to their end."""


@contextlib.asynccontextmanager
async def serving(app: AsgiApp, *, sockets: Sequence[socket.socket]) -> AsyncIterator[None]:
    """Serve the application while the context is open; it answers from the first moment.

    An ``RpcApp`` is served without ASGI in between, any other application with it. The sockets
    belong to the server: they are closed at the end, and Unix ones removed. Signals are left alone.
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
        server.leave()
        await running


def _connection(
    app: RpcApp,
    *,
    server_state: ServerState,
    **_rest: object,
) -> HttpProtocol:
    """Make what uvicorn wants for a new connection."""
    return HttpProtocol(app, server_state)


class _Server(uvicorn.Server):
    """Says when it is ready, stops when it is told, and leaves signals to others."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = loop.create_future()
        self._leaving: asyncio.Future[None] = loop.create_future()

    def leave(self) -> None:
        if not self._leaving.done():
            self._leaving.set_result(None)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set_result(None)

    async def main_loop(self) -> None:
        await self._leaving

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self.server_state.tasks:
            # They were told to end; nothing may use the engine once we have left.
            await asyncio.wait(list(self.server_state.tasks), timeout=GRACE_SECONDS)
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def bind_socket(path: str) -> socket.socket:
    """Return a Unix socket at this path that only this user can connect to.

    Call it as the owner of the store: a file that an earlier owner left behind is replaced. Raise
    ``DirectoryInUse`` if somebody listens there, or another ``StorageError``.
    """
    _make_way(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # The file is made with the mode of the socket, where the system lets it have one; where
        # not, nobody can connect in between, as nobody listens yet.
        with contextlib.suppress(OSError):
            os.fchmod(sock.fileno(), 0o600)
        sock.bind(path)
        Path(path).chmod(0o600)
    except OSError as error:
        sock.close()
        raise StorageError(f"no socket can be made at {path}: {error}") from error
    return sock


def bind_loopback(host: str, port: int) -> socket.socket:
    """Return a TCP socket on an address of this machine; port 0 is any free one.

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
    except (OSError, OverflowError, TypeError) as error:
        sock.close()
        raise InvalidInput("port", f"{host} port {port!r} cannot be used ({error})") from error
    return sock


def _make_way(path: str) -> None:
    """Remove a socket on which nobody listens."""
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
            pass  # somebody listens, and has a lot to do
        except OSError as error:
            raise StorageError(f"{path} cannot be looked at: {error}") from error
    raise DirectoryInUse(
        f"another process listens on {path}, so it owns the store: stop it first, or be its client"
    )


def _remove(paths: Sequence[str]) -> None:
    for path in paths:
        Path(path).unlink(missing_ok=True)
