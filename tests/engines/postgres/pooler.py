"""What a pooler in transaction mode does to those who listen: notifications do not come through."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo

SOCKET = ".s.PGSQL.5432"
NOTIFICATION = b"A"


class Pooler:
    """Passes on everything between clients and a server, but for notifications."""

    def __init__(self, url: str) -> None:
        self._server = Path(str(conninfo_to_dict(url)["host"]), SOCKET)
        self.swallows = True
        self.swallowed = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client."""
        from_server, to_server = await asyncio.open_unix_connection(self._server)
        upwards = asyncio.ensure_future(_pass_on(reader, to_server))
        try:
            while True:
                head = await from_server.readexactly(5)
                body = await from_server.readexactly(int.from_bytes(head[1:], "big") - 4)
                if head[:1] == NOTIFICATION and self.swallows:
                    self.swallowed += 1
                    continue
                writer.write(head + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            upwards.cancel()
            writer.close()
            to_server.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while some := await reader.read(65_536):
            writer.write(some)
    writer.close()


@contextlib.asynccontextmanager
async def pooled(url: str) -> AsyncIterator[tuple[Pooler, str]]:
    """Yield a pooler before the server of this URL, and the URL through it."""
    pooler = Pooler(url)
    with tempfile.TemporaryDirectory(prefix="hfpl") as directory:
        server = await asyncio.start_unix_server(pooler.serve, Path(directory, SOCKET))
        known = {key: str(value) for key, value in conninfo_to_dict(url).items()}
        parts = {**known, "host": directory}
        try:
            yield pooler, make_conninfo(**parts)
        finally:
            server.close()
