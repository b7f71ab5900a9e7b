"""The one suite, on an engine that reaches another one over the API, with a key."""

import contextlib

import pytest

from holdfast.api.application import ApiApplication
from holdfast.api.authentication import Authenticator
from holdfast.api.call import MAX_BODY_BYTES
from holdfast.api.request_handler import ServiceOptions
from holdfast.engines.client.engine import ClientEngine
from holdfast.engines.client.http_endpoint import HttpEndpoint
from holdfast.engines.contract import Engine, EngineOptions
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.http.asgi import AsgiHandler
from holdfast.http.limits import HttpLimits
from holdfast.http.listeners import bind_port
from holdfast.http.server import serving
from holdfast.model.permissions import Role
from holdfast.model.principal import local_principal
from holdfast.operations.attribution import Author
from holdfast.operations.keys import KeyOperations, KeyRequest
from holdfast.testing import VirtualClock
from holdfast.testing.conformance import EngineConformance


class ServedRemote(ClientEngine):
    """A remote engine that takes the server with it when it closes."""

    def __init__(self, endpoint: HttpEndpoint, server: contextlib.AsyncExitStack) -> None:
        super().__init__(endpoint)
        self._server = server

    async def close(self) -> None:
        await super().close()
        await self._server.aclose()


@pytest.mark.sample(3)
class TestRemote(EngineConformance):
    """The keys are in a store of their own: the suite counts what is in the audit."""

    async def open_engine(self, clock: VirtualClock, options: EngineOptions) -> Engine:
        server = contextlib.AsyncExitStack()
        engine, key_store = MemoryEngine(clock=clock, options=options), MemoryEngine()
        server.push_async_callback(engine.close)
        server.push_async_callback(key_store.close)
        request = KeyRequest(name="all", roles=[Role.ADMIN, Role.WORKER])
        keys = KeyOperations(key_store, local_principal("ann"))
        made = await keys.create(request, Author("ann", "a test"))
        application = ApiApplication(engine, ServiceOptions(default_max_attempts=3))
        application._handler._authenticator = Authenticator(key_store)
        sock = bind_port("127.0.0.1", 0)
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        await server.enter_async_context(
            serving(
                AsgiHandler(application),
                sockets=[sock],
                limits=HttpLimits(max_body_bytes=MAX_BODY_BYTES),
            )
        )
        return ServedRemote(HttpEndpoint(url, lambda: made.text), server)
