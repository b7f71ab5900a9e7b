"""A server with TLS: takes it off, and passes the rest on to a PostgreSQL server."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

SSL_REQUEST = (8).to_bytes(4, "big") + (80_877_103).to_bytes(4, "big")


@contextlib.contextmanager
def tls_server(url: str, context: ssl.SSLContext) -> Iterator[int]:
    """Listen on a port with TLS alone, before the server of this URL; yield the port."""
    target = Path(str(conninfo_to_dict(url)["host"]), ".s.PGSQL.5432")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        accepting = threading.Thread(target=_accept, args=(listening, target, context), daemon=True)
        accepting.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            accepting.join(10)


def _accept(listening: socket.socket, target: Path, context: ssl.SSLContext) -> None:
    with contextlib.suppress(OSError):
        while True:
            client, _address = listening.accept()
            threading.Thread(target=_serve, args=(client, target, context), daemon=True).start()


def _serve(client: socket.socket, target: Path, context: ssl.SSLContext) -> None:
    with contextlib.suppress(OSError), client, socket.socket(socket.AF_UNIX) as server:
        if client.recv(8, socket.MSG_WAITALL) != SSL_REQUEST:
            return  # this server accepts nothing without TLS
        client.sendall(b"S")
        with context.wrap_socket(client, server_side=True) as encrypted:
            server.connect(str(target))
            back = threading.Thread(target=_pass_on, args=(server, encrypted), daemon=True)
            back.start()
            _pass_on(encrypted, server)
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            back.join(10)


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while some := source.recv(65_536):
            target.sendall(some)
