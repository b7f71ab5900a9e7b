"""The API as an ASGI application: authenticates, finds the route, and writes the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import cast
from urllib.parse import parse_qsl

import msgspec

from holdfast.engines.clock import SystemClock
from holdfast.engines.contract import Engine
from holdfast.engines.entropy import random_bytes
from holdfast.engines.structured_log import StructuredLog
from holdfast.http.asgi import AsgiMessage, PeerGone, Receive, Send
from holdfast.model.errors import HoldfastError
from holdfast.model.job import MICROSECONDS
from holdfast.operations.access.denials import DenialLog
from holdfast.operations.operations import Operations

from .authentication import Authenticator
from .call import Answer, ApiCall
from .engine_calls import EngineCalls, engine_path
from .forwarded import TrustedProxies
from .health import live, ready
from .openapi import openapi_document
from .problems import RequestRefused, refusal_of
from .routing import find_route

log = StructuredLog("holdfast.api")

API_VERSION = "2"
MAX_BODY_BYTES = 8 << 20
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
        self, engine: Engine, *, default_max_attempts: int, proxies: TrustedProxies | None = None
    ) -> None:
        """``engine`` is the store itself: every call goes through the checks of its key."""
        self.draining = False
        self._engine = engine
        self._default_max_attempts = default_max_attempts
        self._authenticator = Authenticator(engine)
        self._denials = DenialLog(engine)
        self._proxies = proxies or TrustedProxies()
        self._engine_calls = EngineCalls(engine, self._denials)

    def drain(self) -> None:
        """End what waits: the server is about to stop."""
        self.draining = True
        self._engine_calls.stop()

    async def __call__(self, scope: AsgiMessage, receive: Receive, send: Send) -> None:
        """See ASGI: answer one request."""
        if scope["type"] != "http":
            raise RuntimeError("the API has no lifespan, and no sockets")
        headers = _headers(scope)
        request_id = _request_id(headers)
        try:
            body = await _read_body(receive)
            status, kind, content, more = await self._answer(
                scope, headers, body, request_id, receive
            )
        except RequestRefused as refused:
            status, kind, content, more = _problem(refused, request_id)
        except HoldfastError as error:
            told = refusal_of(error)
            if told.type.status == 500:
                log.emit("http.failed", route=_route(scope), request_id=request_id, error=error)
            status, kind, content, more = _problem(told, request_id)
        except PeerGone:
            return
        except Exception as error:  # noqa: BLE001 - it is logged, and is an answer
            log.emit("http.failed", route=_route(scope), request_id=request_id, error=error)
            text = "a bug in Holdfast: the log of the server says more of this request"
            status, kind, content, more = _problem(RequestRefused("internal", text), request_id)
        sent = {**_NO_SNIFF, **more, "content-type": kind, "x-request-id": request_id}
        lines = [(name.encode(), value.encode("latin-1")) for name, value in sent.items()]
        await send({"type": "http.response.start", "status": status, "headers": lines})
        await send({"type": "http.response.body", "body": content})

    async def _answer(
        self,
        scope: AsgiMessage,
        headers: Mapping[str, str],
        body: bytes,
        request_id: str,
        receive: Receive,
    ) -> Response:
        method, raw_path = cast(str, scope["method"]), cast(bytes, scope["raw_path"])
        if method in ("GET", "HEAD"):
            if raw_path == b"/health/live":
                return _plain(*live())
            if raw_path == b"/health/ready":
                return _plain(*await ready(self._engine, draining=self.draining))
            if raw_path == b"/v2/openapi.json":
                return _plain(200, openapi_document())
        client = cast("tuple[str, int] | None", scope.get("client"))
        address = self._proxies.address(client[0] if client else "", headers)
        gone = lambda: _disconnected(receive)
        if (remote := engine_path(raw_path)) is not None:
            tenant, path = remote
            principal = await self._authenticator.principal(
                headers.get("authorization"), tenant, address, request_id
            )
            answer = await self._engine_calls.answer(method, path, body, principal, gone)
            return *answer, {}
        match = find_route(method, raw_path)
        principal = await self._authenticator.principal(
            headers.get("authorization"), match.tenant, address, request_id
        )
        operations = Operations(
            self._engine,
            default_max_attempts=self._default_max_attempts,
            principal=principal,
            denials=self._denials,
        )
        call = ApiCall(
            operations,
            principal,
            self._denials,
            path=match.path,
            query=_query(cast(bytes, scope["query_string"])),
            headers=headers,
            body=body,
            draining=lambda: self.draining,
            disconnected=gone,
        )
        if match.route.permission is not None:
            await call.require(match.route.permission)
        call.check_parameters(match.route.parameters)
        return _success(await match.route.handle(call), request_id)


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
        "meta": _meta(request_id),
        "errors": refused.fields,
        **refused.extra,
    }
    content = msgspec.json.encode(document)
    return kind.status, "application/problem+json", content, refused.headers


def _plain(status: int, document: object) -> Response:
    return status, "application/json", msgspec.json.encode(document), {}


def _meta(request_id: str) -> dict[str, object]:
    now = datetime.fromtimestamp(SystemClock().now_us() / MICROSECONDS, UTC)
    return {"api_version": API_VERSION, "timestamp": now, "request_id": request_id}


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


async def _read_body(receive: Receive) -> bytes:
    """Return the whole body; the front has limited its size and time already."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise PeerGone("the peer has gone")
        parts.append(cast(bytes, message.get("body", b"")))
        size += len(parts[-1])
        if size > MAX_BODY_BYTES:
            raise RequestRefused("too-large", f"a body has at most {MAX_BODY_BYTES:,} bytes")
        if not message.get("more_body", False):
            return b"".join(parts)


async def _disconnected(receive: Receive) -> None:
    """Return when the peer has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _route(scope: AsgiMessage) -> str:
    return f"{scope['method']} {cast(bytes, scope['raw_path']).decode('latin-1')[:200]}"
