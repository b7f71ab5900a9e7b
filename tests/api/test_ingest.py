"""NDJSON: every line is answered, wrong ones alone are refused, and a resend is safe."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from holdfast.api import ingest, lines
from holdfast.api.streaming import BodyStream, buffered
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.http.asgi import AsgiHandler
from holdfast.http.limits import HttpLimits
from holdfast.http.listeners import bind_port
from holdfast.http.server import serving
from holdfast.model.errors import Unavailable
from holdfast.model.job import NewJob
from holdfast.model.permissions import Role
from tests.e2e.rig import Rig, until

from .rig import Api, opened
from .test_server import new_key, served

NDJSON = {"content-type": "application/x-ndjson"}


async def sent(
    api: Api, text: bytes, query: str = "", role: Role = Role.PRODUCER
) -> tuple[int, list[dict[str, object]]]:
    headers = {"authorization": f"Bearer {await api.key(role)}", **NDJSON}
    got = await api.http.post(f"/v2/jobs:ingest{query}", content=text, headers=headers)
    return got.status_code, [json.loads(line) for line in got.text.splitlines()]


def job_lines(count: int) -> bytes:
    return b"".join(b'{"task":"t","id":"j%d"}\n' % number for number in range(count))


async def stored(api: Api) -> int:
    return (await api.engine.count(cap=100_000)).value


async def test_each_line_is_a_job_and_is_answered():
    async with opened() as api:
        status, answers = await sent(api, b'\xef\xbb\xbf{"task":"t","id":"a"}\r\n\n{"task":"t"}')
        assert status == 200
        assert answers[0] == {"line": 1, "id": "a"}
        assert answers[1]["line"] == 3, "empty lines count"
        summary = {"lines": 2, "created": 2, "existing": 0, "refused": 0, "stopped": ""}
        assert answers[2:] == [{"summary": summary}]
        assert await stored(api) == 2


async def test_only_wrong_lines_are_refused():
    async with opened() as api:
        await api.engine.enqueue([NewJob(task="t", id="there", tenant="acme")])
        text = b"\n".join(
            [
                b'{"task":"t","id":"a"}',
                b"{",
                b'{"task":"t","max_attemps":3}',
                b'{"task":"t","id":"there"}',
                b'{"task":"t","delay_seconds":-1}',
                b'{"task":"t","payload":' + b'{"a":' * 70 + b"1" + b"}" * 71,
                b'{"task":"t","depends_on":["nothing"]}',
                b'{"task":"t","id":"b","depends_on":["a"]}',
            ]
        )
        status, answers = await sent(api, text)
        assert status == 200
        told = {one["line"]: one.get("type", one.get("id")) for one in answers[:-1]}
        assert told == {
            1: "a",
            2: "/problems/malformed-json",
            3: "/problems/invalid-input",
            4: "/problems/duplicate-id",
            5: "/problems/invalid-input",
            6: "/problems/malformed-json",
            7: "/problems/invalid-input",
            8: "b",
        }
        assert answers[4]["errors"][0]["pointer"] == "/delay"  # type: ignore[index]
        assert answers[-1]["summary"]["refused"] == 6  # type: ignore[index]
        assert await stored(api) == 3


async def test_a_resend_with_own_ids_stores_nothing_twice():
    async with opened() as api:
        text = job_lines(2_500)
        for created in (2_500, 0):
            _status, answers = await sent(api, text, "?on_duplicate=skip")
            assert len(answers) == 2_501
            assert answers[-1]["summary"]["created"] == created  # type: ignore[index]
            assert answers[-1]["summary"]["existing"] == 2_500 - created  # type: ignore[index]
        assert await stored(api) == 2_500


async def test_stop_at_the_first_wrong_line():
    async with opened() as api:
        text = job_lines(3) + b"{\n" + b'{"task":"t","id":"late"}\n'
        _status, answers = await sent(api, text, "?stop=first")
        assert [one.get("line") for one in answers] == [1, 2, 3, 4, None]
        assert answers[-1]["summary"]["stopped"] == "first"  # type: ignore[index]
        assert await stored(api) == 3


async def test_atomic_stores_all_or_nothing():
    async with opened() as api:
        status, answers = await sent(api, job_lines(2) + b"{\n", "?atomic=1")
        assert (status, answers[0]["type"]) == (422, "/problems/invalid-input")
        assert "line 3" in str(answers[0]["detail"])
        status, answers = await sent(api, job_lines(1_001), "?atomic=1")
        assert (status, answers[0]["type"]) == (413, "/problems/too-large")
        assert await stored(api) == 0
        status, answers = await sent(api, job_lines(1_000), "?atomic=1")
        assert (status, len(answers)) == (200, 1_001)
        status, answers = await sent(api, b'{"task":"t"}\n{"task":"t","id":"j1"}', "?atomic=1")
        assert (status, answers[0]["type"]) == (409, "/problems/duplicate-id")
        assert await stored(api) == 1_000


async def test_lines_are_bounded_in_length_and_number(monkeypatch):
    async with opened() as api:
        long = b'{"task":"t","payload":{"a":"' + b"x" * (1 << 20) + b'"}}'
        _status, answers = await sent(api, long + b'\n{"task":"t"}\n' + long)
        assert [one.get("status") for one in answers] == [413, None, 413, None]
        monkeypatch.setattr(ingest, "MAX_LINES", 2_000)
        _status, answers = await sent(api, job_lines(5_000))
        assert answers[-1]["summary"]["stopped"] == "too-many-lines"  # type: ignore[index]
        assert await stored(api) <= 3_001


@pytest.mark.parametrize("query", ["?on_duplicate=maybe", "?stop=last", "?atomic=yes", "?stpo=1"])
async def test_a_wrong_parameter_is_refused(query):
    async with opened() as api:
        status, _answers = await sent(api, job_lines(1), query)
        assert status in (400, 422)
        assert await stored(api) == 0


async def test_a_store_that_fails_is_said_and_ends_it(monkeypatch):
    async with opened() as api:

        async def fails(*_jobs: object, **_options: object) -> None:
            raise Unavailable("gone")

        key = await api.key(Role.PRODUCER)
        monkeypatch.setattr(api.engine, "enqueue", fails)
        headers = {"authorization": f"Bearer {key}", **NDJSON}
        got = await api.http.post("/v2/jobs:ingest", content=job_lines(2), headers=headers)
        answers = [json.loads(line) for line in got.text.splitlines()]
        assert [one.get("type") for one in answers[:2]] == ["/problems/unavailable"] * 2
        assert answers[-1]["summary"]["stopped"] == "unavailable"


# --- over a connection ---------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def listening(api: Api) -> AsyncIterator[int]:
    sock = bind_port("127.0.0.1", 0)
    port = sock.getsockname()[1]
    limits = HttpLimits(max_body_bytes=1 << 30)
    async with serving(AsgiHandler(api.application), sockets=[sock], limits=limits):
        yield port


async def begun(port: int, key: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    head = "POST /v2/jobs:ingest HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n"
    head += f"content-type: application/x-ndjson\r\nauthorization: Bearer {key}\r\n\r\n"
    writer.write(head.encode())
    return reader, writer


def chunk(text: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(text), text)


async def test_lines_are_committed_and_answered_while_the_rest_is_sent(monkeypatch):
    monkeypatch.setattr(ingest, "COMMIT_SECONDS", 0.05)
    async with opened() as api, listening(api) as port:
        reader, writer = await begun(port, await api.key(Role.PRODUCER))
        writer.write(chunk(b'{"task":"t","id":"first"}\n'))
        await reader.readuntil(b'{"line":1,"id":"first"}')
        assert await stored(api) == 1, "before the second line was sent"
        writer.write(chunk(b'{"task":"t","id":"second"}\n'))
        await reader.readuntil(b'{"line":2,"id":"second"}')
        writer.write(b"0\r\n\r\n")
        assert b'"summary"' in await reader.read()
        writer.close()


async def test_a_peer_that_goes_away_stops_the_work(monkeypatch):
    monkeypatch.setattr(ingest, "COMMIT_SECONDS", 0.05)
    async with opened() as api, listening(api) as port:
        before = asyncio.all_tasks()
        reader, writer = await begun(port, await api.key(Role.PRODUCER))
        writer.write(chunk(b'{"task":"t","id":"first"}\n{"task":"t","id":"ha'))
        await reader.readuntil(b'"first"}')
        writer.transport.abort()
        async with asyncio.timeout(10):
            await asyncio.gather(
                *(asyncio.all_tasks() - before - {asyncio.current_task()}), return_exceptions=True
            )
        assert await stored(api) == 1


async def test_a_client_that_reads_nothing_before_it_has_sent_all_is_answered():
    """The answer is larger than the buffers of a connection."""
    async with opened() as api, listening(api) as port:
        reader, writer = await begun(port, await api.key(Role.PRODUCER))
        writer.write(chunk((b"{}" + b" " * 400 + b"\n") * 20_000) + b"0\r\n\r\n")
        async with asyncio.timeout(30):
            await writer.drain()
            answer = await reader.read()
        assert b'"refused":20000' in answer
        writer.close()


async def test_an_answer_is_made_ahead_only_up_to_a_limit():
    made = 0

    async def parts() -> AsyncIterator[bytes]:
        nonlocal made
        for _part in range(100):
            made += 1
            yield b"x" * 10

    ahead = buffered(parts(), 100)  # type: ignore[arg-type]
    assert await anext(ahead) == b"x" * 110
    assert made == 11
    assert sum([len(part) async for part in ahead]) == 890


async def test_control_without_the_limit_all_is_made_ahead():
    with pytest.raises(AssertionError):
        await _limited(1_000_000)
    await _limited(100)


async def _limited(most_bytes: int) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _part in range(100):
            yield b"x" * 10

    ahead = buffered(parts(), most_bytes)  # type: ignore[arg-type]
    assert len(await anext(ahead)) < 200
    await ahead.aclose()


async def test_a_long_line_is_not_kept_in_memory():
    parts = [b"x" * 65_536] * 64 + [b"\n"]

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    reader = lines.LineReader(BodyStream(receive))  # type: ignore[arg-type]
    await reader.batch(1, 10)
    assert len(reader._rest) <= lines.MAX_LINE_BYTES


# --- kill -9 -------------------------------------------------------------------------------------


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("victim", ["server", "owner"])
def test_after_a_kill_in_the_middle_a_resend_stores_every_line_once(rig, victim):
    owner = rig.run().ready()
    key = new_key(rig)["authorization"].removeprefix("Bearer ")
    server, at = served(rig)
    count = 4_000
    text = b"".join(b'{"task":"later","id":"j%d"}\n' % number for number in range(count))
    with socket.create_connection(("127.0.0.1", int(at.rpartition(":")[2])), timeout=30) as peer:
        head = "POST /v2/jobs:ingest HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n"
        head += f"content-type: application/x-ndjson\r\nauthorization: Bearer {key}\r\n\r\n"
        peer.sendall(head.encode() + chunk(text[: len(text) // 2]))
        answered = b""
        while b'"id":"j999"' not in answered:
            answered += peer.recv(65_536)
        (server if victim == "server" else owner).kill()
        while part := _received(peer):
            answered += part
    acknowledged = {
        line.split(b'"')[5].decode()
        for line in answered.split(b"\n")
        if line.startswith(b'{"line"') and line.endswith(b'"}') and b'"id":' in line
    }
    assert len(acknowledged) >= 1_000
    if victim == "owner":
        rig.run().ready()
        until(lambda: _ready(at), "it is ready")
    else:
        server, at = served(rig)
    there = {job.id for job in _jobs(rig)}
    assert acknowledged <= there, "what was acknowledged is stored"
    headers = {"authorization": f"Bearer {key}", **NDJSON}
    again = httpx.post(
        f"{at}/v2/jobs:ingest?on_duplicate=skip", content=text, headers=headers, timeout=60
    )
    summary = json.loads(again.text.splitlines()[-1])["summary"]
    assert summary["created"] == count - len(there)
    assert summary["existing"] == len(there)
    names = [job.id for job in _jobs(rig)]
    assert (len(names), len(set(names))) == (count, count)
    server.stop()


def _received(peer: socket.socket) -> bytes:
    try:
        return peer.recv(65_536)
    except ConnectionError:
        return b""


def _ready(at: str) -> bool:
    return httpx.get(f"{at}/health/ready", timeout=20).status_code == 200


def _jobs(rig: Rig) -> list[NewJob]:
    async def all_of(engine: MemoryEngine) -> list[NewJob]:
        found, cursor = [], ""
        while True:
            page = await engine.find(cursor=cursor, limit=1_000)
            found += page.jobs
            cursor = page.cursor
            if not cursor:
                return found  # type: ignore[return-value]

    return rig.ask(all_of)  # type: ignore[arg-type]


async def test_empty_lines_count_too(monkeypatch):
    monkeypatch.setattr(ingest, "MAX_LINES", 2_000)
    monkeypatch.setattr(lines, "MAX_LINES", 2_000)
    sent: list[int] = []

    async def body() -> AsyncIterator[bytes]:
        for number in range(100):
            sent.append(number)
            yield b"\n" * 1_000

    async with opened() as api:
        key = await api.key(Role.PRODUCER)
        headers = {"authorization": f"Bearer {key}", "content-type": "application/x-ndjson"}
        got = await api.http.post("/v2/jobs:ingest", headers=headers, content=body())
        assert json.loads(got.content)["summary"]["stopped"] == "too-many-lines"
        assert len(sent) < 100
