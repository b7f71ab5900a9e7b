"""Server-sent events: hints within reach, one look for all, and an end to every stream."""

import asyncio
import contextlib
import json
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast.api import stream
from holdfast.model.job import NewJob
from holdfast.model.permissions import Role
from holdfast.model.principal import local_principal
from holdfast.operations import change_watch
from holdfast.operations.keys import KeyOperations
from tests.e2e.rig import Rig

from .rig import WHO, Api, opened
from .test_ingest import listening
from .test_server import new_key, served


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(change_watch, "POLL_SECONDS", 0.05)


class Events:
    """A stream as a client sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.head = b""
        self._reader = reader
        self.writer = writer

    async def next(self) -> dict[str, str]:
        """Return the fields of the next event; a comment has the name ``comment``."""
        found: dict[str, str] = {}
        while not found:
            found = {}
            while line := (await self._line()).strip():
                name, _colon, value = line.decode().partition(":")
                found[name or "comment"] = value.strip()
        return found

    async def _line(self) -> bytes:
        async with asyncio.timeout(20):
            while True:
                line = await self._reader.readline()
                if line in (b"", b"0\r\n"):
                    raise EOFError
                if not line.endswith(b"\r\n"):  # the sizes of chunks end so
                    return line


@contextlib.asynccontextmanager
async def streaming(
    port: int, key: str, topics: str = "topic=jobs", more: str = ""
) -> AsyncIterator[Events]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"GET /v2/stream?{topics} HTTP/1.1\r\nhost: localhost\r\n{more}"
    writer.write(f"{head}authorization: Bearer {key}\r\n\r\n".encode())
    events = Events(reader, writer)
    try:
        async with asyncio.timeout(20):
            events.head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " in events.head:
            assert (await events.next())["retry"] == "3000"
        yield events
    finally:
        writer.close()


async def enqueue(api: Api, queue: str = "mail", tenant: str = "acme") -> None:
    payload = {"card": "4111"}
    await api.engine.enqueue([NewJob(task="t", queue=queue, tenant=tenant, payload=payload)])


async def test_a_change_within_reach_is_told_and_no_other():
    async with opened() as api, listening(api) as port:
        key = await api.key(Role.VIEWER)
        topics = "topic=queue:mail&topic=jobs&topic=queue:other"
        async with streaming(port, key, topics) as events:
            assert b"text/event-stream" in events.head
            assert b"x-accel-buffering: no" in events.head
            await enqueue(api, "other", "theirs")
            await enqueue(api)
            told = [await events.next(), await events.next()]
            assert [one["event"] for one in told] == ["changed", "changed"]
            data = [json.loads(one["data"]) for one in told]
            assert [one["topic"] for one in data] == ["queue:mail", "jobs"]
            assert told[0]["id"].endswith(f"-{data[0]['seq']}")
            await enqueue(api, "other", "theirs")
            await enqueue(api, "other")
            data = [json.loads((await events.next())["data"]) for _topic in range(2)]
            assert [one["topic"] for one in data] == ["jobs", "queue:other"]


async def test_control_without_the_reach_another_tenants_change_is_told(monkeypatch):
    monkeypatch.setattr(
        change_watch, "_concerns", lambda topic, _reach, name: topic in ("jobs", name[1])
    )
    with pytest.raises(AssertionError):
        await test_a_change_within_reach_is_told_and_no_other()


def ending() -> list["asyncio.Task[None]"]:
    """Return the tasks of the streams that are about to end, and of the look for them."""
    names = ("produce", "_go_on", "gone", "_serve")
    return [one for one in asyncio.all_tasks() if one.get_coro().__name__ in names]  # type: ignore[union-attr]


async def test_one_look_serves_every_stream(monkeypatch):
    async with opened() as api, listening(api) as port:
        looks = 0
        real = api.engine.changes

        async def counted(**named: object):  # type: ignore[no-untyped-def]
            nonlocal looks
            looks += 1
            return await real(**named)  # type: ignore[arg-type]

        monkeypatch.setattr(api.engine, "changes", counted)
        keys = [await api.key(Role.VIEWER) for _key in range(3)]
        async with contextlib.AsyncExitStack() as stack:
            streams = [
                await stack.enter_async_context(streaming(port, key))
                for key in keys
                for _stream in range(10)
            ]
            before = looks
            await enqueue(api)
            await asyncio.gather(*(one.next() for one in streams))
            assert looks - before <= 5, "not one for each"
        async with asyncio.timeout(10):
            await asyncio.gather(*ending(), return_exceptions=True)
        assert api.application._handler._watch._looking is None, "nobody watches: nobody looks"


async def test_who_comes_back_is_told_what_was_missed_or_to_look_at_everything():
    async with opened() as api, listening(api) as port:
        key = await api.key(Role.VIEWER)
        async with streaming(port, key) as other, streaming(port, key) as events:
            await enqueue(api)
            last = (await events.next())["id"]
            await other.next()
            await enqueue(api)
            await other.next()
            async with streaming(port, key, more=f"last-event-id: {last}\r\n") as again:
                assert (await again.next())["event"] == "changed"
            for unknown in ("nothing", last.replace("-", "0-"), f"{last}999"):
                async with streaming(port, key, more=f"last-event-id: {unknown}\r\n") as again:
                    assert (await again.next())["event"] == "resync"


async def test_a_new_feed_of_the_store_is_a_resync():
    async with (
        opened() as api,
        listening(api) as port,
        streaming(port, await api.key(Role.VIEWER)) as events,
    ):
        api.engine._core.changes._feed = ""  # type: ignore[attr-defined]
        assert (await events.next())["event"] == "resync"


async def test_streams_are_limited(monkeypatch):
    monkeypatch.setattr(stream, "MAX_STREAMS_OF_A_KEY", 2)
    monkeypatch.setattr(stream, "MAX_STREAMS", 3)
    async with opened() as api, listening(api) as port:
        one, other = await api.key(Role.VIEWER), await api.key(Role.VIEWER)
        async with streaming(port, one), streaming(port, one):
            async with streaming(port, one) as refused:
                assert b" 429 " in refused.head
                assert b"retry-after" in refused.head
            async with streaming(port, other), streaming(port, other) as refused:
                assert b" 429 " in refused.head


async def test_a_revoked_key_ends_its_streams_and_no_other():
    async with opened() as api, listening(api) as port:
        gone, stays = await api.key(Role.VIEWER), await api.key(Role.VIEWER)
        async with streaming(port, gone) as events, streaming(port, stays) as others:
            await KeyOperations(api.engine, local_principal("ann")).revoke("key1", WHO)
            told = await events.next()
            assert (told["event"], json.loads(told["data"])) == ("goodbye", {"why": "rights"})
            with pytest.raises(EOFError):
                await events.next()
            await enqueue(api)
            assert (await others.next())["event"] == "changed"


async def test_rights_are_checked_again(monkeypatch):
    monkeypatch.setattr(stream, "CHECK_RIGHTS_SECONDS", 0.0)
    monkeypatch.setattr(stream, "KEEP_ALIVE_SECONDS", 0.05)
    async with opened() as api, listening(api) as port:
        key = await api.key(Role.VIEWER)
        async with streaming(port, key) as events:
            keys = KeyOperations(api.engine, local_principal("ann"))
            await keys.rotate("key1", WHO, 0.0)  # the secret of the stream counts no longer
            while (told := await events.next()).get("event") != "goodbye":
                assert "comment" in told
            assert json.loads(told["data"]) == {"why": "rights"}


async def test_a_quiet_stream_is_kept_alive_and_ends_in_time(monkeypatch):
    monkeypatch.setattr(stream, "KEEP_ALIVE_SECONDS", 0.02)
    async with (
        opened() as api,
        listening(api) as port,
        streaming(port, await api.key(Role.VIEWER)) as events,
    ):
        assert "comment" in await events.next()
        monkeypatch.setattr(stream, "MOST_SECONDS", 0.0)
        while (told := await events.next()).get("event") != "goodbye":
            pass
        assert json.loads(told["data"]) == {"why": "time"}


@pytest.mark.parametrize(
    ("role", "topics", "status"),
    [
        (Role.VIEWER, "", 422),
        (Role.VIEWER, "topic=jbos", 422),
        (Role.VIEWER, "topic=queue:", 422),
        (Role.VIEWER, "topic=operations", 404),
        (Role.VIEWER, "topic=audit", 403),
        (Role.AUDITOR, "topic=audit", 404),
        (Role.PRODUCER, "topic=jobs", 403),
        (Role.VIEWER, "&".join(f"topic=queue:{n}" for n in range(51)), 422),
    ],
)
async def test_a_topic_that_is_not_there_or_not_allowed_is_a_problem(role, topics, status):
    async with opened() as api:
        got = await api.call(await api.key(role), "GET", f"/v2/stream?{topics}")
        assert got.status_code == status, got.text


async def test_the_audit_is_told_to_who_may_read_all_of_it():
    async with opened() as api, listening(api) as port:
        key = await api.key(Role.ADMIN, tenants=())
        async with streaming(port, key, "topic=audit") as events:
            await api.key(Role.VIEWER)
            assert json.loads((await events.next())["data"])["topic"] == "audit"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()


def test_a_stop_says_goodbye_first_and_does_not_wait_for_streams(rig):
    rig.run().ready()
    key = new_key(rig)["authorization"]
    server, at = served(rig)
    with socket.create_connection(("127.0.0.1", int(at.rpartition(":")[2])), timeout=20) as peer:
        head = "GET /v2/stream?topic=jobs HTTP/1.1\r\nhost: localhost\r\n"
        peer.sendall(f"{head}authorization: {key}\r\n\r\n".encode())
        got = b""
        while b"retry: 3000" not in got:
            got += peer.recv(4_096)
        rig.ask(lambda engine: engine.enqueue([NewJob(task="later", tenant="acme")]))
        while b"event: changed" not in got:
            got += peer.recv(4_096)
        server.signal(signal.SIGTERM)
        while part := peer.recv(4_096):
            got += part
        assert b'event: goodbye\ndata: {"why":"closing"}' in got
    assert server.exit_code() == 0
