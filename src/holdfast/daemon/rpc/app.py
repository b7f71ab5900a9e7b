"""The HTTP application: the engine's verbs for clients on this machine, and other routes.

``engines.protocol.messages`` is the protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from holdfast.engines.contract import Engine
from holdfast.engines.entropy import random_bytes
from holdfast.engines.protocol import messages
from holdfast.engines.structured_log import StructuredLog
from holdfast.http.exchange import HttpRequest, HttpResponse

from .dispatch import Disconnected, Dispatcher, request_problem

log = StructuredLog("holdfast.http")

Route = Callable[[bytes], Awaitable[tuple[int, str, bytes]]]
"""Takes the body of a request; returns a status, a content type and a body."""


class RpcApp:
    """Serves an engine's verbs, and routes, keyed by method and path: ``"GET /health/live"``.

    Without an engine it serves the routes alone. ``stop`` ends the claims that wait.
    """

    def __init__(self, engine: Engine | None, routes: Mapping[str, Route] | None = None) -> None:
        self._dispatcher = None if engine is None else Dispatcher(engine)
        self._routes = dict(routes or {})

    def stop(self) -> None:
        """End the claims that wait, and refuse new ones: the server is about to shut down."""
        if self._dispatcher is not None:
            self._dispatcher.stop()

    def handle(self, request: HttpRequest, disconnected: Disconnected) -> Awaitable[HttpResponse]:
        """Answer one request; an error is an answer too."""
        return self.respond(request.method, request.path, request.body, disconnected)

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
            return _problem(messages.UNAVAILABLE, "the owner of the store is closing")
        except Exception as error:  # noqa: BLE001 - it is logged, and is an answer
            request_id = random_bytes(8).hex()
            log.emit("http.failed", route=f"{method} {path}", request_id=request_id, error=error)
            return _problem(
                500, f"a bug in Holdfast: the owner's log says more of request {request_id}"
            )

    def _not_found(self, method: str, path: str) -> HttpResponse:
        others = [name.split()[0] for name in self._routes if name.split()[1] == path]
        if others:
            return _wrong_method(method, others)
        if self._dispatcher is not None and path.startswith(messages.ROOT):
            detail = f"{path} is of another version of the protocol than {messages.VERSION}"
            return _response(request_problem(messages.NOT_FOUND, detail, (messages.VERSION,)))
        return _problem(messages.NOT_FOUND, f"there is nothing at {path}")


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


def _problem(status: int, detail: str, headers: Sequence[tuple[str, str]] = ()) -> HttpResponse:
    answer = request_problem(status, detail)
    return HttpResponse(answer.status, messages.PROBLEM_JSON, answer.body, headers)


def _wrong_method(method: str, allowed: Sequence[str]) -> HttpResponse:
    names = ", ".join(sorted(allowed))
    return _problem(
        messages.WRONG_METHOD, f"{method} is not for this: use {names}", [("allow", names)]
    )
