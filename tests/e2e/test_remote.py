"""A store over its API, with the server killed between a commit and its reply."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from holdfast.engines.client import engine as client_engine
from holdfast.engines.client.engine import ClientEngine
from holdfast.engines.client.http_endpoint import HttpEndpoint
from holdfast.engines.contract import Receipt
from holdfast.engines.lost_replies import SentEnqueue
from holdfast.model.errors import DuplicateId
from holdfast.model.job import NewJob, State
from holdfast.model.outcome import completed

from .rig import HOLDFAST, Daemon, Rig, until

WHO = ("--by", "ann", "--reason", "a test")


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()


class KilledBeforeTheReply:
    """A proxy before the server. When armed, it kills the server as soon as a reply comes."""

    def __init__(self, rig: Rig) -> None:
        self.armed = False
        self.kills = 0
        self._rig = rig
        self._server = self._start()

    def _start(self) -> Daemon:
        server = self._rig.start([HOLDFAST, "serve", "--port", "0"])
        found = until(lambda: re.search(r"is at http://\S+:(\d+)", server.output), "it listens")
        assert found is not None
        self.port = int(found[1])
        return server

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        down, up = await asyncio.open_connection("127.0.0.1", self.port)
        forth = asyncio.create_task(self._forward(reader, up))
        try:
            while part := await down.read(65_536):
                if self.armed:
                    self.armed = False
                    self.kills += 1
                    self._server.kill()
                    await asyncio.to_thread(self._restart)
                    break
                writer.write(part)
        finally:
            forth.cancel()
            writer.transport.abort()
            up.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, up: asyncio.StreamWriter) -> None:
        while part := await reader.read(65_536):
            up.write(part)

    def _restart(self) -> None:
        self._server = self._start()


def against_kills(
    rig: Rig, scenario: Callable[[KilledBeforeTheReply, ClientEngine], Awaitable[None]]
) -> None:
    rig.run("--queues", "none").ready()
    roles = ("--role", "worker", "--role", "producer")
    key = rig.command("keys", "create", "k", *roles, *WHO).stdout.strip()

    async def run() -> None:
        proxy = KilledBeforeTheReply(rig)
        server = await asyncio.start_server(proxy.carry, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        engine = ClientEngine(HttpEndpoint(url, lambda: key), patience_seconds=30)
        try:
            await scenario(proxy, engine)
            assert proxy.kills > 0
        finally:
            await engine.close()
            server.close()

    asyncio.run(run())


def test_a_server_killed_after_the_commit_and_before_the_reply(rig):
    async def scenario(proxy: KilledBeforeTheReply, engine: ClientEngine) -> None:
        proxy.armed = True
        assert await engine.enqueue([NewJob(task="t", id="a", queue="q")]) == [Receipt("a")]
        (job,) = (await engine.claim(queues=["q"], worker="w")).jobs
        proxy.armed = True
        assert await engine.settle([completed(job)]) == [None]
        assert (await engine.claim(queues=["q"], worker="w")).jobs == []

    against_kills(rig, scenario)
    (found,) = rig.ask(lambda engine: engine.history(["a"]))
    assert found is not None
    assert (found.job.state, len(found.attempts)) == (State.COMPLETED, 1)


def test_control_a_client_that_takes_the_second_answer_sees_a_duplicate(rig, monkeypatch):
    monkeypatch.setattr(SentEnqueue, "was_taken", lambda *_: False)
    monkeypatch.setattr(client_engine, "accepted", lambda _outcomes, answers, *_: list(answers))
    with pytest.raises(DuplicateId):
        test_a_server_killed_after_the_commit_and_before_the_reply(rig)
