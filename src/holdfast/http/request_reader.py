"""Bytes become requests, within limits on their size. It knows no time and no transport."""

from __future__ import annotations

from typing import Protocol

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from .exchange import HttpRequest, HttpResponse, problem
from .limits import HttpLimits

_BODY_BYTES_PER_FRAMING_BYTE = 4
"""Of a body in chunks: so that its chunks have 24 bytes or more on average."""


class Receiver(Protocol):
    """Takes what was read."""

    def request_begun(self) -> None:
        """Take note of the first bytes of a request."""

    def head_received(self, request: HttpRequest, *, expects_continue: bool) -> None:
        """Take the head of a request."""

    def body_received(self, part: bytes) -> None:
        """Take a part of its body."""

    def request_received(self) -> None:
        """Take note of the end of the request."""


class RequestReader:
    """Parses the requests of one connection. At the first that is wrong it stops."""

    in_head = in_body = False
    refusal: HttpResponse | None = None
    """What is wrong with the request."""

    def __init__(self, receiver: Receiver, limits: HttpLimits) -> None:
        self._receiver = receiver
        self._limits = limits
        self._parser = HttpRequestParser(self)
        self._reset()

    @property
    def body_bytes(self) -> int:
        """How much of the body has arrived."""
        return self._body_bytes

    def feed(self, data: memoryview) -> None:
        """Read on. Look at ``refusal`` afterwards."""
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._refuse(400, f"this is not HTTP/1.1: {error}")
        self._fed_bytes += len(data)
        if self.in_head or self.in_body:
            self._measure_framing()

    # --- callbacks of the parser -------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin a request."""
        self.in_head = True
        self._reset()
        self._receiver.request_begun()

    def on_url(self, url: bytes) -> None:
        """Take a part of the URL."""
        self._url += url
        self._measure_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or one that follows a body in chunks."""
        self._measure_head(len(name) + len(value))
        if self.in_body:
            return  # nobody asks for those, and they must not pass for headers
        name = name.lower()
        self._headers.append((name, value))
        if len(self._headers) > self._limits.max_headers:
            self._refuse(431, f"a request has at most {self._limits.max_headers:,} headers")
        elif name == b"content-length":
            self._measure_body(int(value))
        elif name == b"expect":
            self._expects_continue = value.lower() == b"100-continue"

    def on_headers_complete(self) -> None:
        """Begin the body."""
        self.in_head = False
        self.in_body = True
        if self.refusal is None:
            request = HttpRequest(
                self._parser.get_method().decode(),
                self._url,
                self._headers,
                self._parser.get_http_version(),
                self._parser.should_keep_alive(),
            )
            self._receiver.head_received(request, expects_continue=self._expects_continue)

    def on_body(self, part: bytes) -> None:
        """Take a part of the body."""
        self._body_bytes += len(part)
        self._measure_body(self._body_bytes)
        if self.refusal is None:
            self._receiver.body_received(part)

    def on_message_complete(self) -> None:
        """End the request."""
        self.in_body = False
        if self.refusal is None:
            self._receiver.request_received()

    def _reset(self) -> None:
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._expects_continue = False
        self._fed_bytes = self._head_bytes = self._body_bytes = 0

    # --- limits ------------------------------------------------------------------------------

    def _measure_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > (most := self._limits.max_head_bytes):
            self._refuse(431, f"a request has at most {most:,} bytes of headers")

    def _measure_body(self, size: int) -> None:
        if size > (most := self._limits.max_body_bytes):
            self._refuse(413, f"a body has at most {most:,} bytes: send less at once")

    def _measure_framing(self) -> None:
        """Measure all that is not body, in bytes as they came.

        The parser reports a header when it is whole, and keeps it until then; it does not report
        the sizes and extensions of chunks. The buffer may have begun with another request.
        """
        limits = self._limits
        most = limits.max_head_bytes + limits.buffer_bytes
        most += self._body_bytes // _BODY_BYTES_PER_FRAMING_BYTE
        if self._fed_bytes - self._body_bytes > most:
            if self.in_head:
                self._measure_head(self._fed_bytes)
            else:
                self._refuse(400, "the chunks of the body are too small")

    def _refuse(self, status: int, detail: str) -> None:
        if self.refusal is None:
            self.refusal = problem(status, detail)
