"""ASGI applications on the front: bodies both ways, back-pressure, disconnects, drain, lifespan."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from holdfast.http.allowed_hosts import AllowedHosts
from holdfast.http.asgi import AsgiHandler
from holdfast.http.credential_files import TlsFiles
from holdfast.http.limits import HttpLimits
from holdfast.http.listeners import bind_port
from holdfast.http.server import serving
from holdfast.model.errors import Unavailable

from .test_limits import GET, Front, fronted, until

CERTIFICATES = Path(__file__).parent / "certificates"
LIMITS = HttpLimits(max_body_bytes=8 << 20)
seen: list[str] = []


@contextlib.asynccontextmanager
async def lifespan(_app: Starlette) -> AsyncIterator[dict[str, str]]:
    seen.append("started")
    yield {"name": "holdfast"}
    seen.append("ended")


async def whole(request: Request) -> Response:
    body = await request.body()
    return JSONResponse({"bytes": len(body), "name": request.state.name, "url": str(request.url)})


async def echo(request: Request) -> Response:
    return StreamingResponse(request.stream(), media_type="text/plain")


async def events(request: Request) -> Response:
    async def parts() -> AsyncIterator[bytes]:
        try:
            number = 0
            while True:
                yield b"data: %d %b\n\n" % (number, b"x" * 10_000)
                number += 1
                request.app.state.sent = number
                await asyncio.sleep(0)
        finally:
            seen.append("stopped")

    return StreamingResponse(parts(), media_type="text/event-stream")


async def early(_request: Request) -> Response:
    return Response("no", 403)


async def broken(_request: Request) -> Response:
    raise RuntimeError("broken on purpose")


async def slow(_request: Request) -> Response:
    seen.append("waits")
    await asyncio.sleep(0.2)
    return Response("slow")


async def for_ever(_request: Request) -> Response:
    seen.append("waits")
    await asyncio.Event().wait()
    return Response("never")


def app() -> Starlette:
    """Return a Starlette application."""
    seen.clear()
    routes = [
        Route(f"/{one.__name__}", one, methods=["GET", "POST"])
        for one in (whole, echo, events, early, broken, slow, for_ever)
    ]
    return Starlette(routes=routes, lifespan=lifespan)


def chunked(path: str, *parts: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    return head + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*parts, b""))


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


async def test_requests_with_and_without_bodies_on_one_connection() -> None:
    async with fronted(LIMITS, AsgiHandler(app())) as front:
        peer = await front.peer()
        for request, size in (
            (get("/whole?a=%20b"), 0),
            (chunked("/whole", b"x" * 70_000, b"y" * 200_000), 270_000),
            (b"POST /whole HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", 3),
        ):
            peer.writer.write(request)
            answer = await peer.answer()
            found = json.loads(answer.body)
            assert (found["bytes"], found["name"]) == (size, "holdfast")
        assert len(front.server.connections) == 1


async def test_a_body_is_a_stream_both_ways() -> None:
    async with fronted(LIMITS, AsgiHandler(app())) as front:
        peer = await front.peer()
        peer.writer.write(chunked("/echo", b"first").removesuffix(b"0\r\n\r\n"))
        await peer.reader.readuntil(b"\r\n\r\n")
        assert await peer.reader.readexactly(10) == b"5\r\nfirst\r\n"  # before the request ends
        peer.writer.write(b"6\r\nsecond\r\n0\r\n\r\n")
        assert await peer.reader.readexactly(16) == b"6\r\nsecond\r\n0\r\n\r\n"


async def test_an_unread_body_stops_the_peer_and_not_the_server() -> None:
    taken = asyncio.Event()
    arrived = 0

    async def reluctant(scope: Any, receive: Any, send: Any) -> None:
        nonlocal arrived
        if scope["type"] != "http":
            raise NotImplementedError
        await taken.wait()
        more = True
        while more:
            event = await receive()
            arrived += len(event["body"])
            more = event["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    async with fronted(replace(LIMITS, max_body_bytes=1 << 30), AsgiHandler(reluctant)) as front:
        peer = await front.peer()
        size = 40 << 20
        peer.writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size)
        peer.writer.write(b"x" * size)
        await until(lambda: bool(front.server.tasks))
        [connection] = front.server.connections
        await until(lambda: not connection.transport.is_reading())
        stream = connection._stream
        assert stream is not None
        assert len(stream._unread) < 200_000
        taken.set()
        assert (await peer.answer()).body == b"done"
        assert arrived == size


async def test_a_peer_that_stops_reading_stops_the_application_and_only_that() -> None:
    application = app()
    async with fronted(LIMITS, AsgiHandler(application)) as front:
        peer = await front.peer()
        peer.writer.write(get("/events"))
        await peer.reader.readuntil(b"data: 0")
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        [connection] = front.server.connections
        await until(lambda: not connection._writable.is_set())
        sent = application.state.sent
        assert json.loads((await front.ask(get("/whole"))).body)["bytes"] == 0
        assert application.state.sent <= sent + 1
        peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
        reading = asyncio.create_task(peer.reader.read(-1))
        await until(lambda: application.state.sent > sent + 100)
        reading.cancel()


async def test_an_application_is_told_when_its_peer_goes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with fronted(LIMITS, AsgiHandler(app())) as front:
        peer = await front.peer()
        peer.writer.write(get("/events"))
        await peer.reader.readuntil(b"data: 0")
        front.close()
        await until(lambda: "stopped" in seen)
        await until(lambda: not front.server.tasks)
    assert "http.failed" not in caplog.text


async def test_a_request_that_is_cut_off_is_a_disconnect_and_no_bug(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gone = asyncio.Event()

    async def reads(request: Request) -> Response:
        try:
            await request.body()
        except ClientDisconnect:
            gone.set()
            raise
        return Response("whole")

    application = Starlette(routes=[Route("/", reads, methods=["POST"])])
    async with fronted(LIMITS, AsgiHandler(application)) as front:
        peer = await front.peer()
        peer.writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nx")
        await until(lambda: bool(front.server.tasks))
        front.close()
        await asyncio.wait_for(gone.wait(), 5)
        await until(lambda: not front.server.tasks)
    assert "http.failed" not in caplog.text


async def test_a_body_over_the_limit_is_refused_while_the_application_reads_it() -> None:
    async with fronted(replace(LIMITS, max_body_bytes=1_000), AsgiHandler(app())) as front:
        answer = await front.ask(chunked("/whole", b"x" * 900, b"x" * 900))
        assert (answer.status, answer.headers["connection"]) == (413, "close")


async def test_an_answer_before_the_end_of_the_body_is_read_and_then_the_connection_closes() -> (
    None
):
    async with fronted(LIMITS, AsgiHandler(app())) as front:
        answer = await front.ask(chunked("/early", b"x" * (4 << 20)).removesuffix(b"0\r\n\r\n"))
        assert (answer.status, answer.headers["connection"]) == (403, "close")


async def test_a_bug_is_a_500_with_a_number_that_the_log_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with fronted(LIMITS, AsgiHandler(app())) as front:
        answer = await front.ask(get("/broken"))
        assert answer.status == 500
    assert "broken on purpose" in caplog.text


@pytest.mark.parametrize(
    ("headers", "parts"),
    [
        ([(b"content-length", b"3")], [b"four"]),
        ([(b"content-length", b"9")], [b"four"]),
        ([(b"content-length", b"3")], [b"t", b"hree"]),
        ([(b"transfer-encoding", b"chunked")], [b"0\r\n\r\n"]),
        ([(b"x", b"a\r\nset-cookie: b")], [b"x"]),
    ],
)
async def test_an_answer_that_would_confuse_the_peer_is_not_sent(
    headers: list[tuple[bytes, bytes]], parts: list[bytes]
) -> None:
    async def confusing(scope: Any, _receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for number, part in enumerate(parts, 1):
            more = number < len(parts)
            await send({"type": "http.response.body", "body": part, "more_body": more})

    async with fronted(LIMITS, AsgiHandler(confusing)) as front:
        peer = await front.peer()
        peer.writer.write(GET)
        sent = await peer.reader.read(-1)
        assert sent.startswith(b"HTTP/1.1 500") or sent.endswith(b"\r\n\r\nt")
        assert b"set-cookie" not in sent


async def test_a_drain_lets_answers_end_and_then_ends_the_rest() -> None:
    async with fronted(LIMITS, AsgiHandler(app())) as front:
        peers = [await front.peer(), await front.peer()]
        peers[0].writer.write(get("/slow"))
        peers[1].writer.write(get("/for_ever"))
        idle = await front.peer()
        await until(lambda: seen.count("waits") == 2)
        closing = asyncio.create_task(front.server.close(0.5))
        answer = await peers[0].answer()
        assert (answer.body, answer.headers["connection"]) == (b"slow", "close")
        assert (await peers[1].answer()).status == 503
        assert await idle.hangs_up()
        await closing
        with pytest.raises(ConnectionError):
            await front.peer()


async def test_a_lifespan_begins_before_the_first_request_and_ends_after_the_last() -> None:
    async with fronted(LIMITS, AsgiHandler(app())) as front:
        assert seen == ["started"]
        await front.ask(get("/whole"))
    assert seen == ["started", "ended"]


async def test_an_application_that_does_not_start_is_not_served() -> None:
    @contextlib.asynccontextmanager
    async def fails(_app: Starlette) -> AsyncIterator[None]:
        raise RuntimeError("no store")
        yield

    with pytest.raises(Unavailable, match="no store"):
        async with fronted(LIMITS, AsgiHandler(Starlette(lifespan=fails))):
            pass


async def test_tls_and_names_are_those_of_the_front() -> None:
    tls = TlsFiles(str(CERTIFICATES / "first.crt"), str(CERTIFICATES / "first.key"), "cert_file")
    sock = bind_port("127.0.0.1", 0)
    port = sock.getsockname()[1]
    hosts = AllowedHosts(["api.example.org"], "api_allowed_hosts")
    handler = AsgiHandler(app())
    async with serving(handler, sockets=[sock], limits=LIMITS, tls=tls, hosts=hosts) as server:
        front = Front(server, port)
        trust = ssl.create_default_context(cafile=CERTIFICATES / "first.crt")
        for host, status in (("api.example.org", 200), ("evil.example", 421)):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
            writer.write(f"GET /whole HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            first = await reader.readline()
            assert int(first.split()[1]) == status
            if status == 200:
                assert b"https://api.example.org/whole" in await reader.readuntil(b"}")
            writer.close()
        half = [await front.peer() for _number in range(3)]  # no handshake
        assert len(half) == 3
        front.close()
