"""A request of the API as it came: method, path, headers, body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast
from urllib.parse import parse_qsl

from holdfast.engines.entropy import random_bytes
from holdfast.http.asgi import AsgiMessage, Receive

from .call import MAX_BODY_BYTES
from .problems import RequestRefused
from .streaming import BodyStream

_MAX_PARAMETERS = 1_000
_MAX_REQUEST_ID = 64


class ApiRequest:
    """What a client sent."""

    def __init__(self, scope: AsgiMessage, receive: Receive) -> None:
        """``scope`` and ``receive`` are those of ASGI."""
        self.method = cast(str, scope["method"])
        self.raw_path = cast(bytes, scope["raw_path"])
        self.headers = _headers(scope)
        self.id = _request_id(self.headers)
        client = cast("tuple[str, int] | None", scope.get("client"))
        self.peer = client[0] if client else ""
        """The address of who is connected: of a proxy, if there is one."""
        self.body = BodyStream(receive)
        self._query = cast(bytes, scope["query_string"])

    @property
    def route_shown(self) -> str:
        """The method and the path for the log, without parameters."""
        return f"{self.method} {self.raw_path.decode('latin-1')[:200]}"

    def query(self) -> list[tuple[str, str]]:
        """Return the parameters in their order; raise ``RequestRefused``."""
        try:
            return parse_qsl(
                self._query.decode("ascii"),
                keep_blank_values=True,
                errors="strict",
                max_num_fields=_MAX_PARAMETERS,
            )
        except ValueError:
            text = (
                f"the query is not UTF-8 in percent encoding, or has over {_MAX_PARAMETERS} names"
            )
            raise RequestRefused("unknown-parameter", text) from None

    async def whole_body(self) -> bytes:
        """Return the whole body; the front limits its time. One that is too large is not read."""
        length = self.headers.get("content-length", "")
        self.body.most_bytes = MAX_BODY_BYTES
        if length.isdigit() and int(length) > MAX_BODY_BYTES:
            raise self.body.too_large()
        return await self.body.whole()


def _headers(scope: AsgiMessage) -> Mapping[str, str]:
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
