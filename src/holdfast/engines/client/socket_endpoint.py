"""The socket in a store, on which its owner answers processes of the same user."""

from __future__ import annotations

import asyncio

from holdfast.engines.peer_credentials import refuse_stranger
from holdfast.engines.protocol import messages
from holdfast.engines.socket_path import start_advice
from holdfast.model.errors import NoOwner, Unavailable

from .connection import Connection


class SocketEndpoint:
    """See ``Endpoint``."""

    def __init__(self, path: str) -> None:
        self.shown = path

    @property
    def max_body_bytes(self) -> int:
        """See ``Endpoint.max_body_bytes``."""
        return messages.MAX_BODY_BYTES

    def head(self, path: str, length: int) -> bytes:
        """See ``Endpoint.head``."""
        head = f"POST {path} HTTP/1.1\r\nHost: holdfast\r\nContent-Length: {length}\r\n\r\n"
        return head.encode()

    async def open(self, seconds: float) -> Connection:  # noqa: ARG002 - it takes none
        """See ``Endpoint.open``; raise ``StoreNotOurs`` if a process of another user listens."""
        loop = asyncio.get_running_loop()
        transport, connection = await loop.create_unix_connection(
            lambda: Connection(loop.create_future()), self.shown
        )
        sock = transport.get_extra_info("socket")
        if connection.usable and sock is not None:  # a simulated network has none
            try:
                refuse_stranger(sock, self.shown)
            except BaseException:
                connection.close()
                raise
        return connection

    def may_come(self, error: Exception) -> bool:
        """See ``Endpoint.may_come``: the owner is not there yet, or has just left."""
        return isinstance(error, FileNotFoundError | ConnectionError | BlockingIOError)

    def unreachable(self, error: Exception) -> Unavailable:
        """See ``Endpoint.unreachable``."""
        return Unavailable(
            f"the owner of the store cannot be reached on {self.shown} ({error}): run this as the "
            "user that runs the owner, or remove what is in its place"
        )

    def silent(self) -> Unavailable:
        """See ``Endpoint.silent``."""
        advice = start_advice(self.shown)
        return NoOwner(f"no process owns the store: no answer on {self.shown}; {advice}")

    def closed(self, detail: str) -> Unavailable:  # noqa: ARG002 - it says no more
        """See ``Endpoint.closed``."""
        return NoOwner(
            f"no process owns the store: the last one on {self.shown} has closed it; "
            f"{start_advice(self.shown)}"
        )
