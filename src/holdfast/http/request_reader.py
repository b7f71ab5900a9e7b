"""Bytes become requests, within limits on their size. It knows no time and no transport."""

from __future__ import annotations

from typing import Protocol

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from .exchange import HttpRequest, HttpResponse, problem
from .limits import HttpLimits

_BODY_BYTES_PER_FRAMING_BYTE = 4
"""Of a body in chunks: so that its chunks have 24 bytes or more on average."""
_LENGTH, _EXPECT, _CONNECTION = b"content-length", b"expect", b"connection"


class Receiver(Protocol):
    """Takes what was read."""

    def head_received(self, request: HttpRequest, *, expects_continue: bool) -> None:
        """Take the head of a request."""

    def body_received(self, part: bytes) -> None:
        """Take a part of its body."""

    def request_received(self) -> None:
        """Take note of the end of the request."""


class RequestReader:
    """Parses the requests of one connection. At the first that is wrong it stops.

    A small request passes its limits by the size of what was read: nothing is added up for it.
    """

    body_bytes: int
    """How much of the body has arrived."""

    def __init__(self, receiver: Receiver, limits: HttpLimits) -> None:
        self.on_message_begin()
        self.in_head = self.in_body = False
        self.phase_begun = False
        """Whether a head or a body began in what was read last."""
        self.refusal: HttpResponse | None = None
        """What is wrong with the request."""
        self._receiver = receiver
        self._limits = limits
        self._parser = HttpRequestParser(self)

    def feed(self, data: memoryview) -> None:
        """Read on. Look at ``refusal`` afterwards."""
        self.phase_begun = False
        self._feeding_bytes = len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._refuse(400, f"this is not HTTP/1.1: {error}")
        if self.in_head or self.in_body:
            self._fed_bytes += self._feeding_bytes
            self._measure_framing()

    # --- callbacks of the parser -------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin a request."""
        self.in_head = self.phase_begun = True
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._expects_continue = self._connection_named = False
        self._fed_bytes = self.body_bytes = 0

    def on_url(self, url: bytes) -> None:
        """Take a part of the URL."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or one that follows a body in chunks."""
        if self.in_body:
            return  # nobody asks for those, and they must not pass for headers
        name = name.lower()
        self._headers.append((name, value))
        if name == _LENGTH:
            if int(value) > self._limits.max_body_bytes:
                self._refuse_body()
        elif name == _EXPECT:
            self._expects_continue = value.lower() == b"100-continue"
        elif name == _CONNECTION:
            self._connection_named = True

    def on_headers_complete(self) -> None:
        """Begin the body."""
        self.in_head = False
        self.in_body = self.phase_begun = True
        if self._fed_bytes + self._feeding_bytes > self._limits.max_head_bytes:
            self._measure_head()
        if len(self._headers) > self._limits.max_headers:
            self._refuse_headers()
        if self.refusal is None:
            parser = self._parser
            keep_alive = parser.should_keep_alive()
            # The parser is slow to tell. Only 1.1 keeps a connection that nothing is said about.
            plain = keep_alive and not self._connection_named
            request = HttpRequest(
                parser.get_method().decode(),
                self._url,
                self._headers,
                "1.1" if plain else parser.get_http_version(),
                keep_alive,
            )
            self._receiver.head_received(request, expects_continue=self._expects_continue)

    def on_body(self, part: bytes) -> None:
        """Take a part of the body."""
        self.body_bytes += len(part)
        if self.body_bytes > self._limits.max_body_bytes:
            self._refuse_body()
        if self.refusal is None:
            self._receiver.body_received(part)

    def on_message_complete(self) -> None:
        """End the request."""
        self.in_body = False
        if self.refusal is None:
            self._receiver.request_received()

    # --- limits ------------------------------------------------------------------------------

    def _measure_head(self) -> None:
        size = len(self._url) + sum(len(name) + len(value) for name, value in self._headers)
        if size > self._limits.max_head_bytes:
            self._refuse_head()

    def _measure_framing(self) -> None:
        """Measure all that is not body, in bytes as they came.

        The parser reports a header when it is whole, and keeps it until then; it does not report
        the sizes and extensions of chunks. The buffer may have begun with another request.
        """
        limits = self._limits
        most = limits.max_head_bytes + limits.buffer_bytes
        most += self.body_bytes // _BODY_BYTES_PER_FRAMING_BYTE
        if self._fed_bytes - self.body_bytes > most:
            if self.in_head:
                self._refuse_head()
            else:
                self._refuse(400, "the chunks of the body are too small")
        elif self.in_head and len(self._headers) > limits.max_headers:
            self._refuse_headers()

    def _refuse_head(self) -> None:
        most = self._limits.max_head_bytes
        self._refuse(431, f"a request has at most {most:,} bytes of headers")

    def _refuse_headers(self) -> None:
        self._refuse(431, f"a request has at most {self._limits.max_headers:,} headers")

    def _refuse_body(self) -> None:
        most = self._limits.max_body_bytes
        self._refuse(413, f"a body has at most {most:,} bytes: send less at once")

    def _refuse(self, status: int, detail: str) -> None:
        if self.refusal is None:
            self.refusal = problem(status, detail)
