"""The API of a store on another machine: the same protocol over HTTP(S), with a key."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from urllib.parse import urlsplit

from holdfast.engines.protocol.messages import MAX_REMOTE_BODY_BYTES, MSGPACK
from holdfast.model.errors import InvalidInput, Unavailable

from .connection import Connection

_PORTS = {"https": 443, "http": 80}


class HttpEndpoint:
    """See ``Endpoint``."""

    max_body_bytes = MAX_REMOTE_BODY_BYTES

    def __init__(self, url: str, key: Callable[[], str], ca_file: str | None = None) -> None:
        """``key`` returns the key as it is now; ``ca_file`` has the certificates to trust.

        Raise ``InvalidInput`` for a file that has none.
        """
        parts = urlsplit(url)
        self.shown = url
        self._key = key
        self._prefix = parts.path.rstrip("/")
        self._host = parts.hostname or ""
        scheme = parts.scheme.partition("+")[0]
        self._port = parts.port or _PORTS[scheme]
        self._named = parts.netloc
        self._tls = _context(ca_file) if scheme == "https" else None

    def head(self, path: str, length: int) -> bytes:
        """See ``Endpoint.head``."""
        lines = (
            f"POST {self._prefix}{path} HTTP/1.1",
            f"Host: {self._named}",
            f"Authorization: Bearer {self._key()}",
            f"Content-Type: {MSGPACK}",
            f"Content-Length: {length}",
        )
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    async def open(self, seconds: float) -> Connection:
        """See ``Endpoint.open``."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(seconds):
            transport, connection = await loop.create_connection(
                lambda: Connection(loop.create_future()),
                self._host,
                self._port,
                ssl=self._tls,
                server_hostname=self._host if self._tls is not None else None,
            )
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def may_come(self, error: Exception) -> bool:
        """See ``Endpoint.may_come``: a name, a route and a server may come back; trust does not."""
        if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            return True  # it went away during the handshake
        return isinstance(error, OSError) and not isinstance(error, ssl.SSLError)

    def unreachable(self, error: Exception) -> Unavailable:
        """See ``Endpoint.unreachable``."""
        if isinstance(error, ssl.SSLCertVerificationError):
            why = f"its certificate is not trusted ({error.verify_message})"
            advice = "set api_ca_file to the certificate of its authority, or use its name in it"
        elif isinstance(error, ssl.SSLError):
            why = f"it does not speak TLS as we do ({error.reason or error})"
            advice = "does it serve https:// at this port?"
        else:
            why, advice = str(error), "check the URL of the store"
        return Unavailable(f"no connection to {self.shown}: {why}; {advice}")

    def silent(self) -> Unavailable:
        """See ``Endpoint.silent``."""
        return Unavailable(
            f"no answer from {self.shown}: check its name and port, and that `holdfast serve` or "
            "`holdfast run --api-port` runs there"
        )

    def closed(self, detail: str) -> Unavailable:
        """See ``Endpoint.closed``."""
        return Unavailable(f"{self.shown} is not available: {detail or 'it is closing'}; try later")


def _context(ca_file: str | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError) as error:
        raise InvalidInput(
            "api_ca_file", f"{ca_file} has no certificates in PEM ({error})"
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
