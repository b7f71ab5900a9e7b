"""A request as it came, and a response as it is written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from http import HTTPStatus
from typing import NamedTuple, Protocol

import msgspec

JSON = "application/json"
PROBLEM_JSON = "application/problem+json"

Disconnected = Callable[[], Awaitable[None]]
"""Returns when the peer has gone."""


class HttpRequest(msgspec.Struct):
    """One request, with its body if that is not read as a stream."""

    method: str
    target: bytes
    """The path and the query, as they were sent."""
    headers: Sequence[tuple[bytes, bytes]]
    """Names in lower case."""
    http_version: str
    keep_alive: bool
    body: bytes = b""

    @property
    def path(self) -> str:
        """The path as it was sent, without the query."""
        return self.target.partition(b"?")[0].decode("latin-1")

    def values(self, name: bytes) -> list[bytes]:
        """Return the values of the headers of this name."""
        return [value for found, value in self.headers if found == name]


class HttpResponse(NamedTuple):
    """A response."""

    status: int
    kind: str
    body: bytes
    headers: Sequence[tuple[str, str]] = ()


class Handler(Protocol):
    """Answers whole requests."""

    def handle(self, request: HttpRequest, disconnected: Disconnected) -> Awaitable[HttpResponse]:
        """Answer one request; an error is an answer too."""


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is wrong with a request (RFC 9457). Without a type the status says it."""

    title: str
    status: int
    detail: str
    type: str = ""


def problem(status: int, detail: str, headers: Sequence[tuple[str, str]] = ()) -> HttpResponse:
    """Return the response to a request that is wrong."""
    found = Problem(HTTPStatus(status).phrase, status, detail)
    return HttpResponse(status, PROBLEM_JSON, msgspec.json.encode(found), headers)


def typed_problem(response: HttpResponse, name: str) -> HttpResponse:
    """Return a problem with its type; without one, as it is."""
    if not name:
        return response
    found = msgspec.json.decode(response.body, type=Problem)
    typed = msgspec.structs.replace(found, type=name)
    return response._replace(body=msgspec.json.encode(typed))


def response_bytes(response: HttpResponse, *, keep_alive: bool, bare: bool) -> bytes:
    """Return a response as it is sent; ``bare``: without its body, as for HEAD."""
    head = b"%b%d\r\n" % (_head(response.status, response.kind), len(response.body))
    for name, value in response.headers:
        head += f"{name}: {value}\r\n".encode("latin-1")
    head += b"\r\n" if keep_alive else b"connection: close\r\n\r\n"
    return head if bare else head + response.body


@cache
def status_line(status: int) -> bytes:
    """Return the first line of a response."""
    return f"HTTP/1.1 {status} {_PHRASES.get(status, '')}\r\n".encode()


@cache
def _head(status: int, kind: str) -> bytes:
    return status_line(status) + f"content-type: {kind}\r\ncontent-length: ".encode()


_PHRASES = {status.value: status.phrase for status in HTTPStatus}
