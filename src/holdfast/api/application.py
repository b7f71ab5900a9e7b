"""The API as an ASGI application: authenticates, finds the route, and writes the answer."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from datetime import UTC, datetime
from typing import cast
from urllib.parse import parse_qsl

import msgspec
from msgspec.structs import replace

from holdfast import __version__
from holdfast.engines.clock import SystemClock, monotonic
from holdfast.engines.contract import Engine
from holdfast.engines.entropy import random_bytes
from holdfast.engines.structured_log import StructuredLog
from holdfast.http.asgi import AsgiMessage, PeerGone, Receive, Send
from holdfast.http.credential_files import TokenFile
from holdfast.model.errors import AccessDenied, HoldfastError
from holdfast.model.job import MICROSECONDS
from holdfast.model.permissions import Permission
from holdfast.model.principal import Principal
from holdfast.operations.access.denials import DenialLog
from holdfast.operations.change_watch import ChangeWatch
from holdfast.operations.cursor_secret import CursorSecret
from holdfast.operations.once import OnceEngine
from holdfast.operations.operations import Operations
from holdfast.telemetry.http_metrics import HttpMetrics

from .authentication import Authenticator, has_token
from .call import MAX_BODY_BYTES, Answer, ApiCall
from .declarations import Declarations
from .deprecation import HEADERS as DEPRECATION
from .deprecation import deprecated, refuse_after_sunset
from .health import live, ready
from .idempotency import KeyedCall, idempotency_key
from .job_quota import QuotaEngine
from .limits import LimitOptions, RequestLimits, give_back, limit_headers
from .openapi import openapi_document
from .problems import RequestRefused, refusal_of
from .routing import METRICS_PATH, find_route, operation_of
from .streaming import BodyStream, StreamedAnswer, send_parts

log = StructuredLog("holdfast.api")

API_VERSION = "2"
_MAX_PARAMETERS = 1_000
_MAX_REQUEST_ID = 64
_NO_SNIFF = {
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}
Response = tuple[int, str, bytes, Mapping[str, str]]


class ApiApplication:
    """Answers every request: what goes wrong is an answer too."""

    def __init__(
        self,
        engine: Engine,
        *,
        default_max_attempts: int,
        limits: LimitOptions | None = None,
        declared: Declarations | None = None,
        metrics_token: TokenFile | None = None,
    ) -> None:
        """``engine`` is the store itself: every call goes through the checks of its key.

        Who has ``metrics_token`` may read the metrics of this process, and nothing else.
        """
        limits = limits or LimitOptions()
        self.draining = False
        self._engine = engine
        self._declared = declared or Declarations()
        self._default_max_attempts = default_max_attempts
        self._authenticator = Authenticator(engine)
        self._denials = DenialLog(engine)
        self._metrics = HttpMetrics()
        self._metrics_token = metrics_token
        self._limits = RequestLimits(limits)
        self._bounded = QuotaEngine(engine, limits.max_jobs) if limits.max_jobs else engine
        self._cursor_secret = CursorSecret(engine)
        self._watch = ChangeWatch(engine)

    def drain(self) -> None:
        """Have what waits end: streams at once."""
        self.draining = True
        self._watch.close()

    async def __call__(self, scope: AsgiMessage, receive: Receive, send: Send) -> None:
        """See ASGI: answer one request."""
        if scope["type"] != "http":
            raise RuntimeError("the API has no lifespan, and no sockets")
        headers = _headers(scope)
        request_id = _request_id(headers)
        began, metrics = monotonic(), self._metrics
        metrics.in_progress += 1
        try:
            status = await self._send_answer(scope, headers, request_id, receive, send)
        finally:
            metrics.in_progress -= 1
        if status:
            metrics.answered(operation_of(scope), status, monotonic() - began)

    async def _send_answer(
        self,
        scope: AsgiMessage,
        headers: Mapping[str, str],
        request_id: str,
        receive: Receive,
        send: Send,
    ) -> int:
        """Answer, whatever goes wrong; return the status, or 0 if the peer has gone."""
        body = BodyStream(receive)
        streamed: StreamedAnswer | None = None
        try:
            answer = await self._answer(scope, headers, body, request_id)
            if isinstance(answer, StreamedAnswer):
                streamed, kind, more = answer, answer.content_type, answer.headers
                status, content = 200, await anext(answer.parts, b"")
            else:
                status, kind, content, more = answer
        except RequestRefused as refused:
            streamed = None
            status, kind, content, more = _problem(refused, request_id)
        except HoldfastError as error:
            streamed = None
            told = refusal_of(error)
            if told.type.status == 500:
                log.emit("http.failed", route=_route(scope), request_id=request_id, error=error)
            status, kind, content, more = _problem(told, request_id)
        except PeerGone:
            return 0
        except Exception as error:  # noqa: BLE001 - it is logged, and is an answer
            streamed = None
            log.emit("http.failed", route=_route(scope), request_id=request_id, error=error)
            text = "a bug in Holdfast: the log of the server says more of this request"
            status, kind, content, more = _problem(RequestRefused("internal", text), request_id)
        sent = {**_NO_SNIFF, **more, "content-type": kind, "x-request-id": request_id}
        lines = [(name.encode(), value.encode("latin-1")) for name, value in sent.items()]
        await send({"type": "http.response.start", "status": status, "headers": lines})
        if streamed is None:
            await send({"type": "http.response.body", "body": content})
        elif scope["method"] == "HEAD":
            await streamed.parts.aclose()
            await send({"type": "http.response.body", "body": b""})
        else:
            sending = send_parts(content, streamed.parts, body, send)
            await self._send_rest(scope, request_id, sending)
        return status

    @staticmethod
    async def _send_rest(scope: AsgiMessage, request_id: str, sending: Awaitable[None]) -> None:
        """Send what follows; if it fails, the connection is cut: so the peer knows."""
        try:
            await sending
        except PeerGone:
            return
        except Exception as error:
            log.emit("http.failed", route=_route(scope), request_id=request_id, error=error)
            raise

    async def _answer(
        self, scope: AsgiMessage, headers: Mapping[str, str], stream: BodyStream, request_id: str
    ) -> Response | StreamedAnswer:
        method, raw_path = cast(str, scope["method"]), cast(bytes, scope["raw_path"])
        if method in ("GET", "HEAD"):
            if raw_path == b"/health/live":
                return _plain(*live())
            if raw_path == b"/health/ready":
                return _plain(*await ready(self._engine, draining=self.draining))
            if raw_path == b"/v2/openapi.json":
                return _plain(200, openapi_document())
            if raw_path == METRICS_PATH:
                return await self._scrape(scope, headers, request_id)
            if raw_path == b"/v1/openapi.json":
                return _plain(200, openapi_document("v1"))
        if not raw_path.startswith(b"/v1/"):
            return await self._routed(scope, headers, stream, request_id)
        try:
            refuse_after_sunset()
            answer = await self._routed(scope, headers, stream, request_id)
        except RequestRefused as refused:
            raise deprecated(refused) from None
        except HoldfastError as error:
            if (told := refusal_of(error)).type.status == 500:
                raise
            raise deprecated(told) from None
        if isinstance(answer, StreamedAnswer):
            return replace(answer, headers={**DEPRECATION, **answer.headers})
        status, kind, content, more = answer
        return status, kind, content, {**DEPRECATION, **more}

    async def _routed(
        self, scope: AsgiMessage, headers: Mapping[str, str], stream: BodyStream, request_id: str
    ) -> Response | StreamedAnswer:
        match = find_route(cast(str, scope["method"]), cast(bytes, scope["raw_path"]))

        def authenticate() -> Awaitable[Principal]:
            return self._principal(scope, headers, match.tenant, request_id)

        principal = await authenticate()
        taken = self._limits.admit(principal)
        body = b"" if match.route.streams_body else await _whole(stream, headers)
        key = idempotency_key(match.route, headers)
        once = None if key is None else OnceEngine(self._bounded)
        operations = Operations(
            once or self._bounded,
            default_max_attempts=self._default_max_attempts,
            principal=principal,
            denials=self._denials,
        )
        call = ApiCall(
            operations,
            principal,
            self._denials,
            self._cursor_secret,
            operation_id=match.route.operation_id,
            path=match.path,
            query=_query(cast(bytes, scope["query_string"])),
            headers=headers,
            body=body,
            stream=stream,
            watch=self._watch,
            authenticate_again=authenticate,
            draining=lambda: self.draining,
            declared=self._declared,
        )
        if match.route.permission is not None:
            await call.require(match.route.permission, everything=match.route.everything)
        call.check_parameters(match.route.parameters)
        if once is None or key is None:
            answer = await match.route.handle(call)
        else:
            answer = await KeyedCall(once, call, match.route, key, request_id).answer()
        if isinstance(answer, StreamedAnswer):
            return replace(answer, headers={**answer.headers, **limit_headers(taken)})
        if answer.status == 304:
            give_back(taken)
        told = {**answer.headers, **limit_headers(taken)}
        return _success(replace(answer, headers=told), request_id)

    async def _principal(
        self, scope: AsgiMessage, headers: Mapping[str, str], tenant: str | None, request_id: str
    ) -> Principal:
        client = cast("tuple[str, int] | None", scope.get("client"))
        authorization = headers.get("authorization")
        self._limits.check_key(authorization)
        return await self._authenticator.principal(
            authorization,
            tenant,
            client[0] if client else "",
            request_id,
            deprecated=cast(bytes, scope["raw_path"]).startswith(b"/v1/"),
        )

    async def _scrape(
        self, scope: AsgiMessage, headers: Mapping[str, str], request_id: str
    ) -> Response:
        """Return the metrics, to who has the token, or may see counts of every tenant."""
        if not has_token(headers.get("authorization"), self._metrics_token):
            principal = await self._principal(scope, headers, None, request_id)
            needed = Permission.COUNTS_READ
            if not (principal.may(needed) and principal.caller.unlimited):
                await self._denials.denied(principal, needed)
                principal.require(needed)
                raise AccessDenied("everything", needed.value)
        kind, text = self._metrics.exposition(__version__)
        return 200, kind, text, {}


def _success(answer: Answer, request_id: str) -> Response:
    if answer.status == 304:
        return 304, "application/json", b"", answer.headers
    envelope = {"data": answer.data, "meta": {**_meta(request_id), **answer.meta}, "errors": []}
    return answer.status, "application/json", msgspec.json.encode(envelope), answer.headers


def _problem(refused: RequestRefused, request_id: str) -> Response:
    kind = refused.type
    document = {
        "type": kind.uri,
        "title": kind.title,
        "status": kind.status,
        "detail": refused.detail,
        "instance": request_id,
        "retryable": kind.retryable,
        "data": None,
        "meta": _meta(request_id, refused.api_version or API_VERSION),
        "errors": refused.fields,
        **refused.extra,
    }
    content = msgspec.json.encode(document)
    return kind.status, "application/problem+json", content, refused.headers


def _plain(status: int, document: object) -> Response:
    return status, "application/json", msgspec.json.encode(document), {}


def _meta(request_id: str, version: str = API_VERSION) -> dict[str, object]:
    now = datetime.fromtimestamp(SystemClock().now_us() / MICROSECONDS, UTC)
    return {"api_version": version, "timestamp": now, "request_id": request_id}


def _headers(scope: AsgiMessage) -> dict[str, str]:
    """Return the headers by name; of one that is sent twice, both values with a comma."""
    found: dict[str, str] = {}
    for name, value in cast("Sequence[tuple[bytes, bytes]]", scope["headers"]):
        text = value.decode("latin-1")
        key = name.decode("latin-1")
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


def _request_id(headers: Mapping[str, str]) -> str:
    """Return the id that the caller gave, if it can be one, or a new one."""
    given = headers.get("x-request-id", "")
    plain = given.replace("-", "").replace("_", "").replace(".", "")
    if 0 < len(given) <= _MAX_REQUEST_ID and plain.isascii() and plain.isalnum():
        return given
    return random_bytes(16).hex()


def _query(raw: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(
            raw.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=_MAX_PARAMETERS,
        )
    except ValueError:
        text = f"the query is not UTF-8 in percent encoding, or has over {_MAX_PARAMETERS} names"
        raise RequestRefused("unknown-parameter", text) from None


async def _whole(stream: BodyStream, headers: Mapping[str, str]) -> bytes:
    """Return the whole body; the front limits its time. One that is too large is not read."""
    length = headers.get("content-length", "")
    stream.most_bytes = MAX_BODY_BYTES
    if length.isdigit() and int(length) > MAX_BODY_BYTES:
        raise stream.too_large()
    return await stream.whole()


def _route(scope: AsgiMessage) -> str:
    return f"{scope['method']} {cast(bytes, scope['raw_path']).decode('latin-1')[:200]}"
