"""The HTTP application: the engine's verbs for clients on this machine, and other routes.

``engines.protocol.messages`` is the protocol. It is also a plain ASGI application.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, TypedDict

from holdfast.engines.contract import Engine
from holdfast.engines.entropy import random_bytes
from holdfast.engines.protocol import messages
from holdfast.engines.structured_log import StructuredLog

from .dispatch import Disconnected, Dispatcher, request_problem

log = StructuredLog("holdfast.http")

Route = Callable[[bytes], Awaitable[tuple[int, str, bytes]]]
"""Takes the body of a request; returns a status, a content type and a body."""


class RequestScope(TypedDict):
    """The head of a request."""

    type: str
    method: str
    path: str
    headers: list[tuple[bytes, bytes]]


class AsgiMessage(TypedDict, total=False):
    """An event of a request in progress."""

    type: str
    body: bytes
    more_body: bool


Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[dict[str, object]], Awaitable[None]]


class HttpResponse(NamedTuple):
    """A response."""

    status: int
    kind: str
    body: bytes
    headers: Sequence[tuple[str, str]] = ()


class RpcApp:
    """Serves an engine's verbs, and routes, keyed by method and path: ``"GET /health/live"``.

    Without an engine it serves the routes alone. ``stop`` ends the claims that wait.
    """

    def __init__(
        self,
        engine: Engine | None,
        routes: Mapping[str, Route] | None = None,
        *,
        max_body_bytes: int = messages.MAX_BODY_BYTES,
    ) -> None:
        self.max_body_bytes = max_body_bytes
        self._dispatcher = None if engine is None else Dispatcher(engine)
        self._routes = dict(routes or {})

    def stop(self) -> None:
        """End the claims that wait, and refuse new ones: the server is about to shut down."""
        if self._dispatcher is not None:
            self._dispatcher.stop()

    async def respond(
        self, method: str, path: str, body: bytes, disconnected: Disconnected
    ) -> HttpResponse:
        """Answer one request; an error is an answer too."""
        try:
            if self._dispatcher is not None and path.startswith(messages.PREFIX):
                return await _dispatch(self._dispatcher, method, path, body, disconnected)
            route = self._routes.get(f"{method} {path}")
            if route is not None:
                return HttpResponse(*await route(body))
            return self._not_found(method, path)
        except asyncio.CancelledError:
            # Only a server that shuts down cancels; it expects an answer, not an exception.
            return problem(messages.UNAVAILABLE, "the owner of the store is closing")
        except Exception as error:  # noqa: BLE001 - it is logged, and is an answer
            request_id = random_bytes(8).hex()
            log.emit("http.failed", route=f"{method} {path}", request_id=request_id, error=error)
            return problem(
                500, f"a bug in Holdfast: the owner's log says more of request {request_id}"
            )

    async def __call__(self, scope: RequestScope, receive: Receive, send: Send) -> None:
        """Answer one request of an ASGI server."""
        if scope["type"] != "http":
            return

        async def disconnected() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        body = await self._read(scope, receive)
        if body is None:
            response = self.too_large()._replace(headers=[("connection", "close")])
        else:
            response = await self.respond(scope["method"], scope["path"], body, disconnected)
        headers = [
            ("content-type", response.kind),
            ("content-length", str(len(response.body))),
            *response.headers,
        ]
        encoded = [(name.encode(), value.encode()) for name, value in headers]
        await send({"type": "http.response.start", "status": response.status, "headers": encoded})
        await send({"type": "http.response.body", "body": response.body})

    def too_large(self) -> HttpResponse:
        """Return the response to a body that is over the limit."""
        detail = f"a body has at most {self.max_body_bytes:,} bytes: send less at once"
        return problem(messages.BODY_TOO_LARGE, detail)

    async def _read(self, scope: RequestScope, receive: Receive) -> bytes | None:
        """Return the body, or None if it is too large."""
        for name, value in scope["headers"]:
            if name == b"content-length" and int(value) > self.max_body_bytes:
                return None
        parts: list[bytes] = []
        size, more = 0, True
        while more and size <= self.max_body_bytes:
            event = await receive()
            parts.append(event.get("body", b""))
            size += len(parts[-1])
            more = event.get("more_body", False)
        return b"".join(parts) if size <= self.max_body_bytes else None

    def _not_found(self, method: str, path: str) -> HttpResponse:
        others = [name.split()[0] for name in self._routes if name.split()[1] == path]
        if others:
            return _wrong_method(method, others)
        if self._dispatcher is not None and path.startswith(messages.ROOT):
            detail = f"{path} is of another version of the protocol than {messages.VERSION}"
            return _response(request_problem(messages.NOT_FOUND, detail, (messages.VERSION,)))
        return problem(messages.NOT_FOUND, f"there is nothing at {path}")


async def _dispatch(
    dispatcher: Dispatcher, method: str, path: str, body: bytes, disconnected: Disconnected
) -> HttpResponse:
    if method != "POST":
        return _wrong_method(method, ["POST"])
    if path == messages.CALLS_PATH:
        return _response(await dispatcher.answer_all(body))
    return _response(await dispatcher.answer(path[len(messages.PREFIX) :], body, disconnected))


def _response(answer: messages.BatchedAnswer) -> HttpResponse:
    packed = answer.status in (messages.OK, messages.REFUSED)
    return HttpResponse(
        answer.status, messages.MSGPACK if packed else messages.PROBLEM_JSON, answer.body
    )


def problem(status: int, detail: str, headers: Sequence[tuple[str, str]] = ()) -> HttpResponse:
    """Return the response to a request that is wrong."""
    answer = request_problem(status, detail)
    return HttpResponse(answer.status, messages.PROBLEM_JSON, answer.body, headers)


def _wrong_method(method: str, allowed: Sequence[str]) -> HttpResponse:
    names = ", ".join(sorted(allowed))
    return problem(
        messages.WRONG_METHOD, f"{method} is not for this: use {names}", [("allow", names)]
    )
