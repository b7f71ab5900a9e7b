"""The one suite, on a client that talks to a journal over a real socket."""

import contextlib
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.daemon.rpc.app import RpcApp
from holdfast.engines.client.engine import ClientEngine
from holdfast.engines.contract import Engine, EngineOptions
from holdfast.engines.journal.engine import JournalEngine
from holdfast.http.listeners import bind_socket
from holdfast.http.server import serving
from holdfast.testing import SimDisk, VirtualClock
from holdfast.testing.conformance import EngineConformance
from tests.engines.client.rig import LIMITS

from .test_engines import journal_options


class OwnedClient(ClientEngine):
    """A client that takes its owner with it when it closes."""

    def __init__(self, path: str, owner: contextlib.AsyncExitStack) -> None:
        super().__init__(path)
        self._owner = owner

    async def close(self) -> None:
        await super().close()
        await self._owner.aclose()


class TestClient(EngineConformance):
    @pytest.fixture(autouse=True)
    def sockets(self) -> Iterator[None]:
        with tempfile.TemporaryDirectory(prefix="hf") as directory:
            self._paths = (str(Path(directory) / str(n)) for n in itertools.count())
            yield

    async def open_engine(self, clock: VirtualClock, options: EngineOptions) -> Engine:
        path = next(self._paths)
        owner = contextlib.AsyncExitStack()
        engine = await JournalEngine.open(
            SimDisk(),
            clock=clock,
            options=journal_options(options, inline=True, segment_bytes=8 << 20),
        )
        owner.push_async_callback(engine.close)
        await owner.enter_async_context(
            serving(RpcApp(engine), sockets=[bind_socket(path)], limits=LIMITS)
        )
        return OwnedClient(path, owner)
