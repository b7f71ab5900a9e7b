"""The API as an ASGI application: what goes wrong is an answer too."""

from __future__ import annotations

from holdfast.engines.clock import monotonic
from holdfast.engines.contract import Engine
from holdfast.engines.structured_log import StructuredLog
from holdfast.http.asgi import AsgiMessage, PeerGone, Receive, Send
from holdfast.model.errors import HoldfastError
from holdfast.telemetry.http_metrics import HttpMetrics

from .problems import RequestRefused, refusal_of
from .request import ApiRequest
from .request_handler import RequestHandler, ServiceOptions
from .response import Response, problem
from .routing import operation_of
from .streaming import StreamedAnswer, send_parts

log = StructuredLog("holdfast.api")

_NO_SNIFF = {
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}


class ApiApplication:
    """Answers every request, and counts them."""

    def __init__(
        self, engine: Engine, options: ServiceOptions, looking: Engine | None = None
    ) -> None:
        """``engine`` is the store itself: every call goes through the checks of its key.

        ``looking`` is the same store for what only reads; None: there is no other way to it.
        """
        self._metrics = HttpMetrics()
        self._handler = RequestHandler(engine, looking or engine, options, self._metrics)

    def drain(self) -> None:
        """End what waits, streams at once: the server is about to stop."""
        self._handler.drain()

    async def __call__(self, scope: AsgiMessage, receive: Receive, send: Send) -> None:
        """See ASGI: answer one request."""
        if scope["type"] != "http":
            raise RuntimeError("the API has no lifespan, and no sockets")
        request = ApiRequest(scope, receive)
        began, metrics = monotonic(), self._metrics
        metrics.in_progress += 1
        try:
            status = await self._send_answer(request, send)
        finally:
            metrics.in_progress -= 1
        if status:
            metrics.answered(
                operation_of(request.method, request.raw_path), status, monotonic() - began
            )

    async def _send_answer(self, request: ApiRequest, send: Send) -> int:
        """Answer, whatever goes wrong; return the status, or 0 if the peer has gone."""
        try:
            answer = await self._handler.answer(request)
            first = await anext(answer.parts, b"") if isinstance(answer, StreamedAnswer) else b""
        except PeerGone:
            return 0
        except Exception as error:  # noqa: BLE001 - it is logged, and is an answer
            answer, first = self._refusal(request, error), b""
        status = answer.status if isinstance(answer, Response) else 200
        more = {"content-type": answer.content_type, "x-request-id": request.id}
        sent = {**_NO_SNIFF, **answer.headers, **more}
        lines = [(name.encode(), value.encode("latin-1")) for name, value in sent.items()]
        await send({"type": "http.response.start", "status": status, "headers": lines})
        if isinstance(answer, Response):
            await send({"type": "http.response.body", "body": answer.content})
        elif request.method == "HEAD":
            await answer.parts.aclose()
            await send({"type": "http.response.body", "body": b""})
        else:
            await self._send_rest(request, answer, first, send)
        return status

    @staticmethod
    def _refusal(request: ApiRequest, error: Exception) -> Response:
        if isinstance(error, RequestRefused):
            return problem(error, request.id)
        if isinstance(error, HoldfastError) and (told := refusal_of(error)).type.status != 500:
            return problem(told, request.id)
        log.emit("http.failed", route=request.route_shown, request_id=request.id, error=error)
        text = "a bug in Holdfast: the log of the server says more of this request"
        return problem(RequestRefused("internal", text), request.id)

    @staticmethod
    async def _send_rest(
        request: ApiRequest, answer: StreamedAnswer, first: bytes, send: Send
    ) -> None:
        """Send what follows; if it fails, the connection is cut: so the peer knows."""
        try:
            await send_parts(first, answer.parts, request.body, send)
        except PeerGone:
            return
        except Exception as error:
            log.emit("http.failed", route=request.route_shown, request_id=request.id, error=error)
            raise
