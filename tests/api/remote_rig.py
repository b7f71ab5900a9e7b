"""A remote engine over HTTP or TLS, and a server that can cut connections."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import AsyncIterator, Sequence

from holdfast.api.application import ApiApplication
from holdfast.api.call import MAX_BODY_BYTES
from holdfast.engines.client.engine import ClientEngine
from holdfast.engines.client.http_endpoint import HttpEndpoint
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.http.asgi import AsgiHandler, AsgiMessage, Receive, Send
from holdfast.http.credential_files import TlsFiles
from holdfast.http.limits import HttpLimits
from holdfast.http.listeners import bind_port
from holdfast.http.server import serving
from holdfast.model.permissions import Role

from .rig import Api


class Cut(Exception):
    """The connection ends here."""


class CuttingApplication:
    """Cuts connections as ``fates`` says: "before" the call is made, or "after" it was made."""

    def __init__(self, application: ApiApplication) -> None:
        self.fates: deque[str] = deque()
        self.cuts = 0
        self._application = application

    async def __call__(self, scope: AsgiMessage, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http" or not self.fates:
            await self._application(scope, receive, send)
            return
        if self.fates.popleft() == "after":
            await self._application(scope, receive, _unsent)
        self.cuts += 1
        head = [(b"content-length", b"10")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": b"cut", "more_body": True})
        raise Cut  # a part was sent: the server ends the connection


async def _unsent(_message: AsgiMessage) -> None:
    """Lose an answer."""


class Remote:
    """A store in memory, its API on a port, and engines that reach it with keys."""

    def __init__(self, api: Api, application: CuttingApplication, url: str, ca: str | None) -> None:
        self.api = api
        self.store = api.engine
        self.wire = application
        self.url = url
        self._ca = ca
        self._open: list[ClientEngine] = []

    def with_key(self, text: str, patience_seconds: float = 5.0) -> ClientEngine:
        """Return an engine that sends this key."""
        endpoint = HttpEndpoint(self.url, lambda: text, self._ca)
        self._open.append(ClientEngine(endpoint, patience_seconds=patience_seconds))
        return self._open[-1]

    async def engine(
        self, *roles: Role, tenants: Sequence[str] = (), scopes: Sequence[str] = ()
    ) -> ClientEngine:
        """Return an engine with a new key."""
        return self.with_key(await self.api.key(*roles, tenants=tenants, scopes=scopes))

    async def close(self) -> None:
        """Close the engines."""
        for engine in self._open:
            await engine.close()


@contextlib.asynccontextmanager
async def remote(tls: TlsFiles | None = None, ca_file: str | None = None) -> AsyncIterator[Remote]:
    """Serve a store in memory."""
    api = Api(MemoryEngine())
    cutting = CuttingApplication(api.application)
    sock = bind_port("127.0.0.1", 0)
    port = sock.getsockname()[1]
    url = f"http://127.0.0.1:{port}" if tls is None else f"https://localhost:{port}"
    limits = HttpLimits(max_body_bytes=MAX_BODY_BYTES)
    async with serving(AsgiHandler(cutting), sockets=[sock], limits=limits, tls=tls):
        found = Remote(api, cutting, url, ca_file)
        try:
            yield found
        finally:
            await found.close()
    assert await api.engine.validate() == []
    await api.engine.close()
