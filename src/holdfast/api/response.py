"""An answer as it is sent: in an envelope, as a problem, or plain."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from holdfast.engines.clock import SystemClock
from holdfast.model.job import MICROSECONDS

from .call import Answer
from .problems import RequestRefused

API_VERSION = "2"
_JSON = "application/json"


class Response(msgspec.Struct, frozen=True):
    """An answer that is sent in one part."""

    status: int
    content_type: str
    content: bytes
    headers: Mapping[str, str] = {}


def success(answer: Answer, request_id: str) -> Response:
    """Return what a handler answers, in the envelope."""
    if answer.status == 304:
        return Response(304, _JSON, b"", answer.headers)
    envelope = {"data": answer.data, "meta": {**_meta(request_id), **answer.meta}, "errors": []}
    return Response(answer.status, _JSON, msgspec.json.encode(envelope), answer.headers)


def problem(refused: RequestRefused, request_id: str) -> Response:
    """Return why there is no answer (RFC 9457), with the members of the envelope."""
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
    return Response(kind.status, "application/problem+json", content, refused.headers)


def plain(status: int, document: object) -> Response:
    """Return a document without an envelope."""
    return Response(status, _JSON, msgspec.json.encode(document))


def _meta(request_id: str, version: str = API_VERSION) -> dict[str, object]:
    now = datetime.fromtimestamp(SystemClock().now_us() / MICROSECONDS, UTC)
    return {"api_version": version, "timestamp": now, "request_id": request_id}
