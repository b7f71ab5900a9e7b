"""The engine over HTTP, for clients on this machine: a plain ASGI application.

``holdfast.engines.wire`` is the protocol. Other routes (health, metrics) are handed in.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, TypedDict

from holdfast.engines import wire
from holdfast.engines.base import Engine

from .served import ServedEngine, request_problem

logger = logging.getLogger("holdfast.http")

Route = Callable[[bytes], Awaitable[tuple[int, str, bytes]]]
"""Takes the body of a request; returns a status, a content type and a body."""


class Scope(TypedDict):
    """What is known of a request before its body is read."""

    type: str
    method: str
    path: str
    headers: list[tuple[bytes, bytes]]


class Event(TypedDict, total=False):
    """What the server has to say of a request under way."""

    type: str
    body: bytes
    more_body: bool


Receive = Callable[[], Awaitable[Event]]
Send = Callable[[dict[str, object]], Awaitable[None]]


class Response(NamedTuple):
    """What is sent back."""

    status: int
    kind: bytes
    body: bytes
    headers: Sequence[tuple[bytes, bytes]] = ()


class EngineApp:
    """Serves an engine's verbs, and these routes, which are named as in ``"GET /health/live"``.

    Without an engine it serves the routes alone. ``stop`` ends the claims that wait.
    """

    def __init__(
        self,
        engine: Engine | None,
        routes: Mapping[str, Route] | None = None,
        *,
        max_body_bytes: int = wire.MAX_BODY_BYTES,
    ) -> None:
        self._served = None if engine is None else ServedEngine(engine)
        self._routes = dict(routes or {})
        self._max_body_bytes = max_body_bytes

    def stop(self) -> None:
        """Send claims that wait away, and those to come: the server is about to shut down."""
        if self._served is not None:
            self._served.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        try:
            response = await self._respond(scope, receive)
        except asyncio.CancelledError:
            # Only a server that shuts down does this; it wants an answer, not an exception.
            response = _problem(wire.UNAVAILABLE, "the owner of the store is closing")
        except Exception:
            logger.exception("http.failed path=%s", scope["path"])
            response = _problem(500, "a bug in Holdfast: the owner's log says more")
        headers = [
            (b"content-type", response.kind),
            (b"content-length", b"%d" % len(response.body)),
            *response.headers,
        ]
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": response.body})

    async def _respond(self, scope: Scope, receive: Receive) -> Response:
        path, method = scope["path"], scope["method"]
        if self._served is not None and path.startswith(wire.PREFIX):
            if method != "POST":
                return _wrong_method(method, ["POST"])
            body = await self._read(scope, receive)
            return self._too_large() if body is None else await self._verb(path, body, receive)
        route = self._routes.get(f"{method} {path}")
        if route is None:
            return self._nothing_there(method, path)
        body = await self._read(scope, receive)
        if body is None:
            return self._too_large()
        status, kind, answer = await route(body)
        return Response(status, kind.encode(), answer)

    async def _verb(self, path: str, body: bytes, receive: Receive) -> Response:
        async def departure() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        if self._served is None:
            return _problem(wire.NOT_FOUND, "no engine is served here")
        if path == wire.CALLS_PATH:
            answer = await self._served.answer_all(body)
        else:
            verb = path.removeprefix(wire.PREFIX)
            answer = await self._served.answer(verb, body, departure)
        return _response(answer)

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        """Return the body, or None if it is too large."""
        for name, value in scope["headers"]:
            if name == b"content-length" and int(value) > self._max_body_bytes:
                return None
        event = await receive()
        body = event.get("body", b"")
        if not event.get("more_body"):
            return body if len(body) <= self._max_body_bytes else None
        parts, size = [body], len(body)
        while event.get("more_body") and size <= self._max_body_bytes:
            event = await receive()
            parts.append(event.get("body", b""))
            size += len(parts[-1])
        return b"".join(parts) if size <= self._max_body_bytes else None

    def _too_large(self) -> Response:
        detail = f"a body has at most {self._max_body_bytes:,} bytes: send less at once"
        # The rest of it is not waited for.
        return _problem(wire.BODY_TOO_LARGE, detail, [(b"connection", b"close")])

    def _nothing_there(self, method: str, path: str) -> Response:
        others = [name.split()[0] for name in self._routes if name.split()[1] == path]
        if others:
            return _wrong_method(method, others)
        if self._served is not None and path.startswith(wire.ROOT):
            detail = f"{path} is of another version of the protocol; spoken is {wire.VERSION}"
            return _response(request_problem(wire.NOT_FOUND, detail, (wire.VERSION,)))
        return _problem(wire.NOT_FOUND, f"there is nothing at {path}")


def _response(answer: wire.Answer) -> Response:
    packed = answer.status in (wire.OK, wire.REFUSED)
    return Response(answer.status, _MSGPACK if packed else _PROBLEM_JSON, answer.body)


def _problem(status: int, detail: str, headers: Sequence[tuple[bytes, bytes]] = ()) -> Response:
    return Response(status, _PROBLEM_JSON, request_problem(status, detail).body, headers)


def _wrong_method(method: str, allowed: Sequence[str]) -> Response:
    names = ", ".join(sorted(allowed))
    detail = f"{method} is not for this: use {names}"
    return _problem(wire.WRONG_METHOD, detail, [(b"allow", names.encode())])


_MSGPACK = wire.MSGPACK.encode()
_PROBLEM_JSON = wire.PROBLEM_JSON.encode()
