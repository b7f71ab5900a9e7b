"""The probes answer while the store does not: live at once, ready within its limit and with why."""

import asyncio
import contextlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast.daemon.rpc import routes
from holdfast.daemon.rpc.probes import ProbeApp
from holdfast.engines.contract import Engine
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.engines.journal.wal.disk import LocalDisk
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.http.limits import PROBE_LIMITS
from holdfast.http.listeners import bind_port
from holdfast.http.server import serving
from holdfast.model.job import NewJob
from tests.engines.postgres.proxy import Proxy
from tests.engines.postgres.servers import Databases, store_of

READY_SECONDS = 0.5
PATIENCE_SECONDS = 10.0


class StuckDisk(LocalDisk):
    """A disk that syncs nothing between ``stick`` and ``go_on``."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._syncs = threading.Event()
        self._syncs.set()
        self.stuck = threading.Event()
        """A sync waits."""

    def stick(self) -> None:
        self._syncs.clear()

    def go_on(self) -> None:
        self._syncs.set()

    def sync(self, fd: int) -> None:
        if not self._syncs.is_set():
            self.stuck.set()
            assert self._syncs.wait(60)
        super().sync(fd)


class Probe:
    """Asks as an orchestrator does, from outside of the event loop."""

    def __init__(self, port: int) -> None:
        self._port = port

    def ask(self, path: str, timeout_seconds: float = PATIENCE_SECONDS) -> tuple[int, object]:
        url = f"http://127.0.0.1:{self._port}/health/{path}"
        try:
            with urllib.request.urlopen(url, timeout=timeout_seconds) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    async def live(self) -> tuple[int, object]:
        return await asyncio.to_thread(self.ask, "live")

    async def ready(self) -> tuple[int, object]:
        return await asyncio.to_thread(self.ask, "ready")

    async def until_ready(self) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await self.ready())[0] != 200:
                pass


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "READY_SECONDS", READY_SECONDS)


@contextlib.asynccontextmanager
async def probed(engine: Engine) -> AsyncIterator[Probe]:
    """Serve the probes of this engine as a daemon does."""
    sock = bind_port("127.0.0.1", 0)
    port = sock.getsockname()[1]
    app = ProbeApp(routes.health_routes(engine, lambda: None))
    async with serving(app, sockets=[sock], limits=PROBE_LIMITS):
        yield Probe(port)


async def check_unready(probe: Probe) -> None:
    """The store does not answer: check both probes, which have not been asked before.

    An answer is kept for about as long as it took to make.
    """
    asking = asyncio.create_task(probe.ready())
    assert await probe.live() == (200, {"status": "ok"})
    assert not asking.done(), "live does not wait for the store"
    reason = f"the store has not answered for {READY_SECONDS:g} s"
    assert await asking == (503, {"status": "unhealthy", "reason": reason})


async def test_a_journal_whose_disk_is_stuck(tmp_path: Path) -> None:
    disk = StuckDisk(tmp_path)
    engine = await JournalEngine.open(disk)
    try:
        async with probed(engine) as probe:
            disk.stick()
            enqueuing = asyncio.create_task(engine.enqueue([NewJob(task="t")]))
            assert await asyncio.to_thread(disk.stuck.wait, PATIENCE_SECONDS)
            await check_unready(probe)
            assert not enqueuing.done()
            disk.go_on()
            await enqueuing
            await probe.until_ready()
    finally:
        disk.go_on()
        await engine.close()


def asked_while_stuck(disk: StuckDisk, probe: Probe, found: list[object]) -> None:
    """Ask for live while a sync waits; note what came of it."""
    disk.stuck.wait(PATIENCE_SECONDS)
    try:
        found.append(probe.ask("live", timeout_seconds=0.3))
    except TimeoutError as error:
        found.append(error)
    finally:
        disk.go_on()


async def test_control_a_sync_on_the_event_loop_keeps_live_waiting(tmp_path: Path) -> None:
    disk = StuckDisk(tmp_path)
    engine = await JournalEngine.open(disk, options=JournalOptions(inline=True))
    try:
        async with probed(engine) as probe:
            found: list[object] = []
            asking = threading.Thread(target=asked_while_stuck, args=(disk, probe, found))
            asking.start()
            disk.stick()
            await engine.enqueue([NewJob(task="t")])
            asking.join()
            assert isinstance(found[0], TimeoutError)
    finally:
        disk.go_on()
        await engine.close()


@pytest.fixture
def store(server18: Databases) -> Iterator[str]:
    with server18.fresh() as database:
        yield store_of(database)


async def test_a_server_that_does_not_answer(store: str) -> None:
    delay_seconds = 0.0
    async with Proxy(store, lambda: delay_seconds) as proxy:
        engine = await PostgresEngine.open(proxy.url)
        try:
            async with probed(engine) as probe:
                delay_seconds = 3_600.0
                await check_unready(probe)
                delay_seconds = 0.0
                proxy.cut()
                await probe.until_ready()
        finally:
            await engine.close()
