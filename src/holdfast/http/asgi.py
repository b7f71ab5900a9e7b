"""ASGI on top of a connection: one request, its body as a stream, its response in parts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Protocol, cast
from urllib.parse import unquote_to_bytes

from holdfast.engines.entropy import random_bytes
from holdfast.engines.structured_log import StructuredLog

from .exchange import (
    HttpRequest,
    HttpResponse,
    problem,
    response_bytes,
    status_line,
    typed_problem,
)

log = StructuredLog("holdfast.http")

AsgiMessage = MutableMapping[str, object]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
AsgiApp = Callable[[AsgiMessage, Receive, Send], Awaitable[None]]

_MAX_UNREAD_BYTES = 64 * 1024
"""Of a body: what has arrived and the application has not taken. Then reading pauses."""
_NO_CONTENT = (204, 304)


ASGI = {"version": "3.0", "spec_version": "2.4"}


class AsgiHandler:
    """An ASGI application, and what its lifespan left for its requests.

    ``problem_types`` are the types of the problems that the server answers itself, by status.
    """

    def __init__(self, app: AsgiApp, problem_types: Mapping[int, str] | None = None) -> None:
        self.app = app
        self.state: dict[str, object] = {}
        self._problem_types = problem_types or {}

    def typed(self, response: HttpResponse) -> HttpResponse:
        """Return a problem of the server with the type that the application has for it."""
        return typed_problem(response, self._problem_types.get(response.status, ""))


class PeerGone(ConnectionResetError):
    """The peer has disconnected: nothing can be sent to it."""


class PeerConnection(Protocol):
    """The connection, as an exchange sees it."""

    transport: asyncio.Transport

    @property
    def closing(self) -> bool:
        """Whether the connection closes after this response."""

    async def send(self, data: bytes) -> None:
        """Send a part of a response; raise ``PeerGone`` if it has disconnected."""


class RequestBody:
    """The body of a request while it arrives."""

    def __init__(self, resume: Callable[[], None], expected: Callable[[], None] | None) -> None:
        """``resume`` has more read; ``expected`` says that the peer may send, if it waits."""
        self._resume = resume
        self._expected = expected
        self._unread = bytearray()
        self._arrived = asyncio.Event()
        self.complete = False
        self.disconnected = False
        self.refusal: HttpResponse | None = None
        """What the peer is to be told, if its body was refused."""

    def feed(self, part: bytes) -> bool:
        """Take a part; return whether reading has to pause."""
        self._unread += part
        self._arrived.set()
        return len(self._unread) > _MAX_UNREAD_BYTES

    def end(self) -> None:
        """All of it has arrived."""
        self.complete = True
        self._arrived.set()

    def disconnect(self) -> None:
        """The peer has gone: no more will come."""
        self.disconnected = True
        self._arrived.set()

    def refuse(self, response: HttpResponse) -> None:
        """The body broke a limit: no more will be taken."""
        self.refusal = response
        self.disconnect()

    async def read(self) -> tuple[bytes, bool] | None:
        """Return the next part and whether more may come; None if the peer has gone."""
        if self._expected is not None and not self.complete:
            expected, self._expected = self._expected, None
            expected()
        while not (self._unread or self.complete or self.disconnected):
            self._arrived.clear()
            await self._arrived.wait()
        if self.disconnected and not self.complete:
            return None
        part = bytes(self._unread)
        self._unread.clear()
        if not self.complete:
            self._resume()
        return part, not self.complete


class AsgiExchange:
    """One request and its response."""

    def __init__(
        self,
        request: HttpRequest,
        body: RequestBody,
        peer: PeerConnection,
        disconnected: Callable[[], Awaitable[None]],
    ) -> None:
        self.keep_alive = request.keep_alive
        self._request = request
        self._body = body
        self._peer = peer
        self._disconnected = disconnected
        self._body_read = False
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_sent = self._chunked = self._ended = False
        self._left_bytes: int | None = None
        """Of the length that the application gave."""

    async def run(self, handler: AsgiHandler) -> None:
        """Have the application answer; whatever it raises is an answer too."""
        failure = problem(500, "the application did not answer")
        try:
            await handler.app(self._scope(handler), self._receive, self._send)
        except asyncio.CancelledError:
            failure = problem(503, "the server is closing")
        except Exception as error:  # noqa: BLE001 - it is logged, and is an answer
            if not (self._peer.transport.is_closing() or self._body.disconnected):
                request_id = random_bytes(8).hex()
                route = f"{self._request.method} {self._request.path}"
                log.emit("http.failed", route=route, request_id=request_id, error=error)
                text = f"a bug in Holdfast: its log says more of request {request_id}"
                failure = problem(500, text)
        if not self._ended:
            await self._fail(handler.typed(self._body.refusal or failure))
        if not self._body.complete:
            self.keep_alive = False  # the rest of the body is not read as a request

    def _scope(self, handler: AsgiHandler) -> AsgiMessage:
        raw_path, _mark, query = self._request.target.partition(b"?")
        address = self._peer.transport.get_extra_info
        return {
            "type": "http",
            "asgi": ASGI,
            "http_version": self._request.http_version,
            "method": self._request.method,
            "scheme": "https" if address("sslcontext") else "http",
            "path": unquote_to_bytes(raw_path).decode("utf-8", "replace"),
            "raw_path": raw_path,
            "query_string": query,
            "root_path": "",
            "headers": list(self._request.headers),
            "client": _address(address("peername")),
            "server": _address(address("sockname")),
            "state": dict(handler.state),
        }

    async def _receive(self) -> AsgiMessage:
        if not self._body_read:
            part = await self._body.read()
            if part is not None:
                body, more = part
                self._body_read = not more
                return {"type": "http.request", "body": body, "more_body": more}
        if not self._ended and not self._body.disconnected:
            await self._disconnected()
        return {"type": "http.disconnect"}

    async def _send(self, message: AsgiMessage) -> None:
        kind = message["type"]
        if kind == "http.response.start" and not self._status:
            self._status = cast(int, message["status"])
            given = cast("Iterable[tuple[bytes, bytes]]", message.get("headers", ()))
            self._headers = [_checked(name, value) for name, value in given]
        elif kind == "http.response.body" and self._status and not self._ended:
            body = cast(bytes, message.get("body", b""))
            await self._send_part(bytes(body), more=bool(message.get("more_body", False)))
        else:
            raise RuntimeError(f"an ASGI application sent {kind} out of turn")

    async def _send_part(self, part: bytes, *, more: bool) -> None:
        bare = self._request.method == "HEAD" or self._status in _NO_CONTENT
        data = b"" if self._head_sent else self._head(None if more else len(part))
        if bare:
            part = b""
        elif self._left_bytes is not None:
            self._left_bytes -= len(part)
            if self._left_bytes < 0 or (self._left_bytes and not more):
                raise RuntimeError("the body of a response differs from its content-length")
        elif self._chunked:
            part = b"%x\r\n%b\r\n" % (len(part), part) if part else b""
            part += b"" if more else b"0\r\n\r\n"
        self._head_sent = True
        self._ended = not more
        if data or part:
            await self._peer.send(data + part)

    def _head(self, length: int | None) -> bytes:
        """Return the head of the response; ``length`` is that of the body, if it is known."""
        names = dict(self._headers)
        if b"connection" in names or b"transfer-encoding" in names:
            raise RuntimeError("an ASGI application must leave the connection to the server")
        lines = [status_line(self._status)]
        lines += [b"%b: %b\r\n" % header for header in self._headers]
        if self._status not in _NO_CONTENT:
            if b"content-length" in names:
                self._left_bytes = int(names[b"content-length"])
            elif length is not None:
                lines.append(b"content-length: %d\r\n" % length)
            elif self._request.http_version == "1.1":
                self._chunked = True
                lines.append(b"transfer-encoding: chunked\r\n")
            else:
                self.keep_alive = False  # the end of the connection is the end of the body
        if not self._body.complete or self._peer.closing:
            self.keep_alive = False
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        return b"".join([*lines, b"\r\n"])

    async def _fail(self, response: HttpResponse) -> None:
        """Send this response if nothing was sent yet; close the connection in any case."""
        self.keep_alive = False
        self._ended = True
        if self._head_sent:
            self._peer.transport.abort()  # so the peer knows that the response is not whole
            return
        self._head_sent = True
        bare = self._request.method == "HEAD"
        with contextlib.suppress(PeerGone):
            await self._peer.send(response_bytes(response, keep_alive=False, bare=bare))


def _checked(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Return a header of a response, or raise: a line break in it would begin another header."""
    if any(byte in b"\r\n\0" for byte in name + value):
        raise ValueError(f"a header has a line break: {name[:40]!r}")
    return name.lower(), value


def _address(found: object) -> tuple[str, int] | None:
    if isinstance(found, tuple) and len(found) >= 2:
        return str(found[0]), int(found[1])
    return None
