"""An owner that can restart, and a proxy between it and its clients that can cut connections."""

import asyncio
import contextlib
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from holdfast.daemon.rpc.app import Route, RpcApp
from holdfast.daemon.rpc.dispatch import Disconnected
from holdfast.engines.client.engine import ClientEngine
from holdfast.engines.contract import EngineOptions
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.engines.protocol import messages
from holdfast.http.exchange import HttpResponse
from holdfast.http.limits import local_limits
from holdfast.http.listeners import bind_socket
from holdfast.http.server import serving
from holdfast.model.job import NewJob
from holdfast.testing import SimDisk, VirtualClock
from holdfast.testing.conformance.fixture import settle_down


@contextlib.contextmanager
def short_directory() -> Iterator[Path]:
    """A directory with a path short enough for a socket address."""
    with tempfile.TemporaryDirectory(prefix="hf") as directory:
        yield Path(directory)


LIMITS = local_limits(messages.MAX_BODY_BYTES, max_connections=1_000)


class CountingApp(RpcApp):
    """Records the verb of each request."""

    def __init__(self, engine: JournalEngine, routes: dict[str, Route] | None = None) -> None:
        super().__init__(engine, routes)
        self.verbs: list[str] = []

    async def respond(
        self, method: str, path: str, body: bytes, disconnected: Disconnected
    ) -> HttpResponse:
        self.verbs.append(path.removeprefix(messages.PREFIX))
        return await super().respond(method, path, body, disconnected)


class Owner:
    """A journal on a simulated disk, served on a socket; it can restart."""

    def __init__(self, directory: Path, options: EngineOptions | None = None) -> None:
        self.path = str(directory / "owner.sock")
        self.clock = VirtualClock()
        self.disk = SimDisk()
        shared = {} if options is None else structs.asdict(options)
        self.options = JournalOptions(**shared, inline=True, segment_bytes=256 << 10)
        self._open = contextlib.AsyncExitStack()

    async def start(self, routes: dict[str, Route] | None = None) -> None:
        self.engine = await JournalEngine.open(self.disk, clock=self.clock, options=self.options)
        self.app = CountingApp(self.engine, routes)
        self._open.push_async_callback(self.engine.close)
        sockets = [bind_socket(self.path)]
        await self._open.enter_async_context(serving(self.app, sockets=sockets, limits=LIMITS))

    async def stop(self) -> None:
        await self._open.aclose()

    async def restart(self) -> None:
        await self.stop()
        await self.start()


class Wire:
    """A proxy between clients and the owner. ``fates`` sets what happens to the next requests.

    "pass" forwards a request, "before" cuts the connection before the owner gets it, "after" cuts
    it once the owner has answered, "hold" delays the reply until ``let_go`` is set. When no fates
    are left, every request passes.
    """

    def __init__(self, directory: Path, owner: Owner) -> None:
        self.path = str(directory / "wire.sock")
        self.fates: deque[str] = deque()
        self.spared: set[str] = set()
        """Verbs that always pass and use up no fate."""
        self.cuts = 0
        self.held = asyncio.Event()
        self.let_go = asyncio.Event()
        self._owner = owner
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def strung(self) -> AsyncIterator["Wire"]:
        server = await asyncio.start_unix_server(self._accept, self.path, limit=1 << 26)
        try:
            yield self
        finally:
            server.close()
            await settle_down()  # connections that came just now have their task
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        up: asyncio.StreamWriter | None = None
        try:
            down, up = await asyncio.open_unix_connection(self._owner.path, limit=1 << 26)
            while await self._carry(reader, writer, down, up):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, FileNotFoundError):
            pass  # one side has disconnected
        finally:
            self._tasks.discard(task)
            for end in (writer, up):
                if end is not None:
                    end.transport.abort()

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        down: asyncio.StreamReader,
        up: asyncio.StreamWriter,
    ) -> bool:
        verb, request = await _message(reader)
        fate = "pass"
        if self.fates and verb not in self.spared:
            fate = self.fates.popleft()
        if fate == "before":
            self.cuts += 1
            return False
        up.write(request)
        _status, reply = await _message(down)
        if fate == "after":
            self.cuts += 1
            return False
        if fate == "hold":
            self.held.set()
            await self.let_go.wait()
        writer.write(reply)
        return True


async def _message(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    """Return the last part of the path, and the whole message."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    verb = head.split(b" ", 2)[1].decode().rpartition("/")[2]
    return verb, head + await reader.readexactly(length)


class Rig(NamedTuple):
    """An owner, the proxy and a client."""

    owner: Owner
    wire: Wire
    client: ClientEngine

    def new_client(self, patience_seconds: float = 5.0) -> ClientEngine:
        return ClientEngine(
            self.owner.path, clock=self.owner.clock, patience_seconds=patience_seconds
        )


def rigged(scenario: Callable[[Rig], Awaitable[None]]) -> None:
    """Run a scenario; the store must be valid afterwards."""

    async def run() -> None:
        with short_directory() as directory:
            owner = Owner(directory)
            await owner.start()
            try:
                async with Wire(directory, owner).strung() as between:
                    client = ClientEngine(between.path, clock=owner.clock)
                    try:
                        await scenario(Rig(owner, between, client))
                        assert await owner.engine.validate() == []
                    finally:
                        await client.close()
            finally:
                await owner.stop()

    asyncio.run(run())


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Run the loop until the condition holds, or until the test times out."""
    while not await condition():  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0)


def jobs_named(*ids: str, **fields: object) -> list[NewJob]:
    make: Callable[..., NewJob] = NewJob
    return [
        make(**{"task": "t", "payload": {"of": job_id}, "id": job_id, **fields}) for job_id in ids
    ]
