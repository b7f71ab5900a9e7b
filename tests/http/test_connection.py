"""What the socket says to requests of all kinds: the right status, a reason, never a traceback."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast.daemon.rpc.app import Route, RpcApp
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.engines.protocol import messages
from holdfast.http.asgi import AsgiHandler
from holdfast.http.limits import local_limits
from holdfast.http.listeners import bind_socket
from holdfast.http.server import serving
from holdfast.model.errors import InvariantViolation
from holdfast.testing.conformance.fixture import settle_down
from tests.engines.client.rig import LIMITS, eventually, jobs_named, short_directory

COUNTS = messages.COUNTS.write_call(messages.CountsCall())
LIMIT = 1_000_000


class Peer:
    """Somebody at the other end of the socket who writes requests by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, method: str, path: str, body: bytes = b"", *headers: str) -> "Answer":
        lines = [f"{method} {path} HTTP/1.1", f"Content-Length: {len(body)}", *headers, "", ""]
        self.writer.write("\r\n".join(lines).encode() + body)
        return await self.answer(bare=method == "HEAD")

    async def answer(self, *, bare: bool = False) -> "Answer":
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        status = int(first.split()[1])
        if headers.get("transfer-encoding") == "chunked":
            return Answer(status, headers, await self.chunks())
        length = 0 if bare else int(headers.get("content-length", 0))
        return Answer(status, headers, await self.reader.readexactly(length))

    async def chunks(self) -> bytes:
        body = b""
        while size := int(await self.reader.readline(), 16):
            body += await self.reader.readexactly(size)
            assert await self.reader.readexactly(2) == b"\r\n"
        assert await self.reader.readline() == b"\r\n"
        return body

    async def hangs_up(self) -> bool:
        return await self.reader.read() == b""


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def problem(self) -> dict[str, Any]:
        assert self.headers["content-type"] == "application/problem+json"
        found: dict[str, Any] = json.loads(self.body)
        assert found["status"] == self.status
        assert "Traceback" not in found["detail"]
        return found


async def live(_body: bytes) -> tuple[int, str, bytes]:
    return 200, "application/json", b'{"status":"ok"}'


async def echo(body: bytes) -> tuple[int, str, bytes]:
    return 201, "text/plain", body


async def broken(_body: bytes) -> tuple[int, str, bytes]:
    raise ValueError("the secret is 7")


ROUTES: dict[str, Route] = {
    "GET /health/live": live,
    "POST /echo": echo,
    "GET /broken": broken,
}


def by_asgi(app: RpcApp) -> AsgiHandler:
    """Return the same application as an ASGI application."""

    async def asgi(scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            event = await receive()
            if event["type"] == "http.disconnect":
                return
            body += event["body"]
            more = event["more_body"]

        async def disconnected() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        path = scope["raw_path"].decode()
        response = await app.respond(scope["method"], path, body, disconnected)
        headers = [("content-type", response.kind), *response.headers]
        encoded = [(name.encode(), value.encode()) for name, value in headers]
        await send({"type": "http.response.start", "status": response.status, "headers": encoded})
        half = len(response.body) // 2 if len(response.body) > 1_000 else 0
        if half:
            await send(
                {"type": "http.response.body", "body": response.body[:half], "more_body": True}
            )
        await send({"type": "http.response.body", "body": response.body[half:]})

    return AsgiHandler(asgi)


@pytest.fixture(params=["direct", "asgi"])
def by_way_of(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def served(by_way_of: str) -> Callable[..., None]:
    """Runs a conversation with an application, served in both ways."""

    def run(talk: Callable[[Peer, MemoryEngine], Awaitable[None]]) -> None:
        async def main() -> None:
            engine = MemoryEngine()
            app = RpcApp(engine, ROUTES)
            served = app if by_way_of == "direct" else by_asgi(app)
            with short_directory() as directory:
                path = str(directory / "s")
                limits = local_limits(LIMIT, max_connections=100)
                async with serving(served, sockets=[bind_socket(path)], limits=limits):
                    reader, writer = await asyncio.open_unix_connection(path)
                    await talk(Peer(reader, writer), engine)
                    writer.close()

        asyncio.run(main())

    return run


def test_a_verb(served):
    async def talk(peer: Peer, _engine: MemoryEngine) -> None:
        for _again in range(2):
            answer = await peer.ask("POST", "/engine/v1/counts", COUNTS)
            assert (answer.status, answer.headers["content-type"]) == (200, "application/msgpack")
            assert messages.COUNTS.read_answer(answer.body) == {}

    served(talk)


def test_routes_beside_the_verbs(served):
    async def talk(peer: Peer, _engine: MemoryEngine) -> None:
        answer = await peer.ask("GET", "/health/live?verbose=1&x=/engine/v1/counts")
        assert (answer.status, answer.body) == (200, b'{"status":"ok"}')
        assert answer.headers["content-type"] == "application/json"
        answer = await peer.ask("POST", "/echo", b"hello" * 100_000)
        assert (answer.status, answer.body) == (201, b"hello" * 100_000)

    served(talk)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/health", 404),
        ("POST", "/engine/v1/", 404),
        ("POST", "/engine/v1/destroy", 404),
        ("POST", "/engine/v1/claim/x", 404),
        ("GET", "/engine/v1/counts", 405),
        ("DELETE", "/engine/v1/calls", 405),
        ("POST", "/health/live", 405),
        ("PUT", "/echo", 405),
        ("POST", "/engine/v2/counts", 404),
        ("GET", "/engine/", 404),
        ("POST", "/engine/v1/%64estroy", 404),
    ],
)
def test_nothing_there_or_the_wrong_method(served, method, path, status):
    async def talk(peer: Peer, _engine: MemoryEngine) -> None:
        answer = await peer.ask(method, path, COUNTS)
        assert answer.status == status
        assert answer.problem()["detail"]
        assert ("allow" in answer.headers) == (status == 405)

    served(talk)


def test_another_version_is_told_which_one_is_spoken(served):
    async def talk(peer: Peer, _engine: MemoryEngine) -> None:
        answer = await peer.ask("POST", "/engine/v2/counts", COUNTS)
        assert answer.problem()["versions"] == [1]
        answer = await peer.ask("POST", "/engine/v1/destroy")
        assert answer.problem()["versions"] == []

    served(talk)


@pytest.mark.parametrize(
    "body",
    [b"", b"\xc1", b"{}", b"\x90\x90", b"\x91\x07", b"\x91\xa1\xff", b"\x91" * 100_000],
)
@pytest.mark.parametrize(
    "verb", ["enqueue", "claim", "settle", "extend", "reclaim", "get", "calls"]
)
def test_a_body_that_makes_no_sense_is_a_bad_request(served, verb, body):
    async def talk(peer: Peer, _engine: MemoryEngine) -> None:
        answer = await peer.ask("POST", f"/engine/v1/{verb}", body)
        assert answer.status == 400
        assert answer.problem()["title"] == "Bad Request"
        assert (await peer.ask("GET", "/health/live")).status == 200

    served(talk)


def test_each_of_several_calls_has_its_own_answer(served):
    async def talk(peer: Peer, engine: MemoryEngine) -> None:
        waiting = messages.ClaimCall(["default"], "w", None, 1, 30.0, 5.0, [])
        calls = [
            messages.BatchedCall(
                "enqueue", messages.ENQUEUE.write_call(messages.EnqueueCall(jobs_named("a")))
            ),
            messages.BatchedCall(
                "enqueue", messages.ENQUEUE.write_call(messages.EnqueueCall(jobs_named("a")))
            ),
            messages.BatchedCall("counts", b"\xc1"),
            messages.BatchedCall("calls", messages.write_calls([])),
            messages.BatchedCall("claim", messages.CLAIM.write_call(waiting)),
            messages.BatchedCall("counts", COUNTS),
        ]
        answer = await peer.ask("POST", "/engine/v1/calls", messages.write_calls(calls))
        answers = messages.read_answers(answer.body)
        assert [each.status for each in answers] == [200, 422, 400, 404, 400, 200]
        assert messages.read_error(answers[1].body).code == "duplicate_id"
        assert "has a request to itself" in json.loads(answers[4].body)["detail"]
        assert (await engine.counts())["default"].pending == 1

    served(talk)


def test_a_body_that_announces_too_much_is_refused_at_once(served):
    async def talk(peer: Peer, _engine: MemoryEngine) -> None:
        peer.writer.write(
            f"POST /engine/v1/enqueue HTTP/1.1\r\nContent-Length: {LIMIT + 1}\r\n\r\n".encode()
        )
        answer = await peer.answer()
        assert answer.status == 413
        assert "at most 1,000,000 bytes" in answer.problem()["detail"]
        assert answer.headers["connection"] == "close"
        assert await peer.hangs_up()

    served(talk)


@pytest.mark.parametrize(("parts", "status"), [(1, 400), (2, 413)])
def test_a_body_in_pieces_is_measured_as_it_comes(served, parts, status):
    async def talk(peer: Peer, _engine: MemoryEngine) -> None:
        peer.writer.write(b"POST /engine/v1/enqueue HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _part in range(parts):
            peer.writer.write(b"%x\r\n" % 600_000 + b"\xc1" * 600_000 + b"\r\n")
        peer.writer.write(b"0\r\n\r\n")
        assert (await peer.answer()).status == status

    served(talk)


def test_a_bug_in_a_route_is_said_without_its_insides(served, caplog):
    async def talk(peer: Peer, _engine: MemoryEngine) -> None:
        answer = await peer.ask("GET", "/broken")
        assert answer.status == 500
        assert "secret" not in answer.problem()["detail"]
        assert "the secret is 7" in caplog.text, "it is in the log"

    served(talk)


def test_a_bug_in_the_engine_is_a_typed_error(served, monkeypatch, caplog):
    def burst(*_arguments: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("holdfast.engines.memory.engine.MemoryState.counts", burst)

    async def talk(peer: Peer, _engine: MemoryEngine) -> None:
        answer = await peer.ask("POST", "/engine/v1/counts", COUNTS)
        error = messages.read_error(answer.body)
        assert isinstance(error, InvariantViolation)
        assert "ZeroDivisionError" in str(error)
        assert "by zero" in caplog.text

    served(talk)


def test_what_is_not_http_is_refused(served):
    async def talk(peer: Peer, _engine: MemoryEngine) -> None:
        peer.writer.write(b"\x16\x03\x01 hello\r\n\r\n")
        assert (await peer.answer()).status == 400
        assert await peer.hangs_up()

    served(talk)


def test_a_peer_that_wants_no_more_is_hung_up_on(served):
    async def talk(peer: Peer, _engine: MemoryEngine) -> None:
        answer = await peer.ask("GET", "/health/live", b"", "Connection: close")
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await peer.hangs_up()

    served(talk)


def test_a_peer_that_waits_to_be_told_to_go_on_is_told(served):
    async def talk(peer: Peer, _engine: MemoryEngine) -> None:
        peer.writer.write(
            b"POST /echo HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
        )
        assert (await peer.answer()).status == 100
        peer.writer.write(b"hi")
        assert (await peer.answer()).body == b"hi"

    served(talk)


def test_an_answer_to_head_has_no_body(served):
    async def talk(peer: Peer, _engine: MemoryEngine) -> None:
        assert (await peer.ask("HEAD", "/health/live")).status == 405
        assert (await peer.ask("GET", "/health/live")).status == 200

    served(talk)


def test_requests_sent_ahead_are_answered_in_their_order(served):
    async def talk(peer: Peer, _engine: MemoryEngine) -> None:
        count = 3 * LIMITS.max_pipelined
        for number in range(count):
            peer.writer.write(b"POST /echo HTTP/1.1\r\nContent-Length: 2\r\n\r\n%02d" % number)
        answers = [(await peer.answer()).body for _number in range(count)]
        assert answers == [b"%02d" % number for number in range(count)]

    served(talk)


def test_a_request_in_many_small_pieces(served):
    async def talk(peer: Peer, _engine: MemoryEngine) -> None:
        for byte in b"POST /echo HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi":
            peer.writer.write(bytes([byte]))
            await settle_down()
        assert (await peer.answer()).body == b"hi"

    served(talk)


def test_a_peer_that_leaves_ends_its_claim(served):
    async def talk(peer: Peer, engine: MemoryEngine) -> None:
        call = messages.ClaimCall(["default"], "w", None, 1, 30.0, 600.0, [])
        body = messages.CLAIM.write_call(call)
        head = f"POST {messages.CLAIM.path} HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n"
        peer.writer.write(head.encode() + body)

        async def waits() -> bool:
            return engine._core.waiters.waiting

        async def has_left() -> bool:
            return not engine._core.waiters.waiting

        await eventually(waits)
        peer.writer.transport.abort()
        await eventually(has_left)
        await engine.enqueue(jobs_named("a"))
        [job] = await engine.get(["a"])
        assert job is not None
        assert job.state == "pending"

    served(talk)


async def test_without_an_engine_there_are_routes_only():
    async def departure() -> None:
        raise AssertionError("nobody asks")

    app = RpcApp(None, ROUTES)
    assert (await app.respond("GET", "/health/live", b"", departure)).status == 200
    for path in ("/engine/v1/counts", "/engine/v2/counts"):
        answer = await app.respond("POST", path, COUNTS, departure)
        assert answer.status == 404
        assert b'"versions":[]' in answer.body
    app.stop()


async def test_headers_without_end_are_refused():
    with short_directory() as directory:
        path = str(directory / "s")
        async with serving(RpcApp(MemoryEngine()), sockets=[bind_socket(path)], limits=LIMITS):
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(b"GET / HTTP/1.1\r\n" + b"X-Filler: aaaaaaaaaaaaaaaa\r\n" * 3_000)
            answer = await Peer(reader, writer).answer()
            assert answer.status == 431
            writer.close()


async def test_a_peer_that_takes_no_answers_is_given_no_more_than_it_takes():
    answered = 0

    async def large(_body: bytes) -> tuple[int, str, bytes]:
        nonlocal answered
        answered += 1
        return 200, "text/plain", b"x" * 1_000_000

    with short_directory() as directory:
        path = str(directory / "s")
        app = RpcApp(None, {"GET /large": large})
        async with serving(app, sockets=[bind_socket(path)], limits=LIMITS):
            reader, writer = await asyncio.open_unix_connection(path, limit=1_000)
            for _number in range(10):
                writer.write(b"GET /large HTTP/1.1\r\n\r\n")
            await settle_down()
            assert answered < 3
            peer = Peer(reader, writer)
            for _number in range(10):
                assert len((await peer.answer()).body) == 1_000_000
            assert answered == 10
            writer.close()
