"""One peer that nobody knows does its worst: what it gets, and what others get meanwhile."""

import asyncio
import contextlib
import gc
import socket
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from msgspec.structs import replace

from holdfast.http import connection as connection_module
from holdfast.http import server as server_module
from holdfast.http.asgi import AsgiHandler
from holdfast.http.connection import HttpConnection
from holdfast.http.exchange import Disconnected, Handler, HttpRequest, HttpResponse
from holdfast.http.limits import PROBE_LIMITS, HttpLimits
from holdfast.http.listeners import bind_port
from holdfast.http.request_reader import RequestReader
from holdfast.http.server import HttpServer, serving
from holdfast.testing.conformance.fixture import settle_down

from .test_connection import Answer, Peer

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\n"
LARGE = 1 << 20
UNLIMITED = HttpLimits(
    max_connections=1_000_000,
    max_head_bytes=1 << 40,
    max_headers=1 << 40,
    max_body_bytes=1 << 40,
    max_pipelined=1_000_000,
    buffer_bytes=64 * 1024,
    head_seconds=1e9,
    body_seconds=1e9,
    idle_seconds=1e9,
    write_seconds=1e9,
)


async def until(condition: Callable[[], bool]) -> None:
    """Run the loop until the condition holds."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.005)


class Greeting:
    """Answers without awaiting anything, as a cached scrape does."""

    def __init__(self, size: int = 2) -> None:
        self.answered = 0
        self._body = b"y" * size

    async def handle(self, request: HttpRequest, _disconnected: Disconnected) -> HttpResponse:
        self.answered += 1
        return HttpResponse(200, "text/plain", self._body + request.body)


class Front:
    """A server on a port, and peers of it."""

    def __init__(self, server: HttpServer, port: int) -> None:
        self.server = server
        self.port = port
        self._writers: list[asyncio.StreamWriter] = []

    async def peer(self) -> Peer:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers.append(writer)
        return Peer(reader, writer)

    async def ask(self, request: bytes) -> Answer:
        peer = await self.peer()
        peer.writer.write(request)
        return await peer.answer()

    def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


@contextlib.asynccontextmanager
async def fronted(
    limits: HttpLimits = PROBE_LIMITS, handler: Handler | AsgiHandler | None = None
) -> AsyncIterator[Front]:
    """Serve on a free port."""
    sock = bind_port("127.0.0.1", 0)
    port = sock.getsockname()[1]
    async with serving(handler or Greeting(), sockets=[sock], limits=limits) as server:
        front = Front(server, port)
        try:
            yield front
        finally:
            front.close()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> HttpLimits:
    """Limits whose times are a fraction of a second."""
    monkeypatch.setattr(server_module, "SWEEP_SECONDS", 0.02)
    monkeypatch.setattr(connection_module, "_LINGER_SECONDS", 0.2)
    return replace(
        PROBE_LIMITS,
        max_body_bytes=LARGE,
        head_seconds=0.2,
        body_seconds=0.2,
        idle_seconds=0.2,
        write_seconds=0.2,
        cpu_share=None,
    )


# --- size ----------------------------------------------------------------------------------------


async def endless(front: Front, begin: bytes, part: bytes, most: int = 300) -> tuple[int, int]:
    """Send a part again and again; return the status, and how much memory it took."""
    peer = await front.peer()
    tracemalloc.start()
    peer.writer.write(begin)
    with contextlib.suppress(ConnectionError):
        for _number in range(most):
            peer.writer.write(part)
            await peer.writer.drain()
    try:
        answer = await asyncio.wait_for(peer.answer(), 2)
    finally:
        _now, most_memory = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return answer.status, most_memory


ENDLESS = {
    "one header": (b"GET / HTTP/1.1\r\nX: ", b"x" * 65_536, 431),
    "headers": (b"GET / HTTP/1.1\r\n", b"X: y\r\n" * 10_000, 431),
    "the path": (b"GET /", b"x" * 65_536, 431),
    "a trailer": (POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: ", b"x" * 65_536, 400),
    "a chunk's extension": (POST + b"Transfer-Encoding: chunked\r\n\r\n1;", b"x" * 65_536, 400),
    "small chunks": (POST + b"Transfer-Encoding: chunked\r\n\r\n", b"2\r\nxx\r\n" * 9_000, 400),
}
BODY_LIMITS = replace(PROBE_LIMITS, max_body_bytes=1 << 30, cpu_share=None)


@pytest.mark.parametrize("what", ENDLESS)
async def test_what_has_no_end_is_refused_early(what: str) -> None:
    begin, part, status = ENDLESS[what]
    async with fronted(BODY_LIMITS) as front:
        found, memory_bytes = await endless(front, begin, part)
        assert found == status
        assert memory_bytes < 3 << 20
        assert (await front.ask(GET)).status == 200


@pytest.mark.parametrize("what", ["one header", "a trailer", "small chunks"])
async def test_control_without_counting_raw_bytes_it_is_taken(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RequestReader, "_measure_framing", lambda _self: None)
    with pytest.raises((AssertionError, TimeoutError)):
        await test_what_has_no_end_is_refused_early(what)


@pytest.mark.parametrize(
    "request_bytes",
    [
        POST + b"Content-Length: 1\r\n\r\n",
        POST + b"Content-Length: 62000000\r\n\r\n" + b"x" * LARGE,
        POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\nxx\r\n",
    ],
)
async def test_a_probe_has_no_body(request_bytes: bytes) -> None:
    async with fronted() as front:
        answer = await front.ask(request_bytes)
        assert (answer.status, answer.headers["connection"]) == (413, "close")


async def test_control_without_the_limit_a_probe_has_a_body() -> None:
    async with fronted(UNLIMITED) as front:
        assert (await front.ask(POST + b"Content-Length: 1\r\n\r\nx")).status == 200


async def test_one_continue_for_a_request_however_often_it_asks() -> None:
    async with fronted(UNLIMITED) as front:
        peer = await front.peer()
        expect = b"Expect: 100-continue\r\n"
        peer.writer.write(POST + expect * 3 + b"Content-Length: 1\r\n\r\n")
        assert await peer.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        peer.writer.write(b"x")
        assert (await peer.answer()).body == b"yyx"


# --- time ----------------------------------------------------------------------------------------


async def sent_slowly(front: Front, begin: bytes) -> Answer | None:
    """Send a byte now and then; return the answer, or None if it just hung up."""
    peer = await front.peer()
    peer.writer.write(begin)

    async def trickle() -> None:
        while True:
            peer.writer.write(b"x")
            await asyncio.sleep(0.02)

    trickling = asyncio.create_task(trickle())
    try:
        return await asyncio.wait_for(peer.answer(), 5)
    except asyncio.IncompleteReadError:
        return None
    finally:
        trickling.cancel()


@pytest.mark.parametrize(
    "begin", [b"GET / HTTP/1.1\r\nX: ", POST + b"Content-Length: 100000\r\n\r\n"]
)
async def test_a_slow_request_is_refused(begin: bytes, soon: HttpLimits) -> None:
    async with fronted(soon) as front:
        answer = await sent_slowly(front, begin)
        assert answer is not None
        assert answer.status == 408
        await until(lambda: not front.server.connections)


async def test_who_says_nothing_is_hung_up_on(soon: HttpLimits) -> None:
    async with fronted(soon) as front:
        silent = await front.peer()
        served = await front.peer()
        served.writer.write(GET)
        assert (await served.answer()).status == 200
        assert await asyncio.wait_for(silent.hangs_up(), 5)
        assert await asyncio.wait_for(served.hangs_up(), 5)


async def test_who_reads_nothing_is_hung_up_on(soon: HttpLimits) -> None:
    """Whether the rest of the answer waits in many bytes or in few."""
    async with fronted(soon, Greeting(40 << 20)) as front:
        for request in (GET, b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n"):
            peer = await front.peer()
            peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
            peer.writer.write(request)
            await until(lambda: len(front.server.connections) == 1)
            await until(lambda: not front.server.connections)


async def test_who_reads_slowly_is_waited_for(soon: HttpLimits) -> None:
    async with fronted(soon, Greeting(8 << 20)) as front:
        peer = await front.peer()
        peer.writer.write(GET)
        await peer.reader.readuntil(b"\r\n\r\n")
        for _part in range(16):
            await peer.reader.readexactly(1 << 19)
            await asyncio.sleep(0.05)  # the pace of the peer: longer in all than any limit


@pytest.mark.parametrize(
    "attack",
    [
        lambda: test_a_slow_request_is_refused(b"GET / HTTP/1.1\r\nX: ", UNLIMITED),
        lambda: test_who_says_nothing_is_hung_up_on(UNLIMITED),
    ],
)
async def test_control_without_limits_of_time_they_stay(
    attack: Callable[[], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "SWEEP_SECONDS", 0.02)
    with pytest.raises((AssertionError, TimeoutError)):
        async with asyncio.timeout(1):
            await attack()


# --- number --------------------------------------------------------------------------------------


async def held(front: Front, count: int, begin: bytes) -> list[Peer]:
    """Open connections and send the same on each."""
    peers = []
    for _number in range(count):
        peer = await front.peer()
        peer.writer.write(begin)
        peers.append(peer)
    return peers


BEGUN = {"idle": b"", "in a head": b"GET / HT", "with an unread answer": GET}


@pytest.mark.parametrize("begun", BEGUN)
async def test_connections_that_stall_make_room_for_one_that_asks(begun: str) -> None:
    limits = replace(PROBE_LIMITS, max_connections=8, cpu_share=None)
    async with fronted(limits, Greeting(8 << 20)) as front:
        stalled = await held(front, 50, BEGUN[begun])
        answer = await asyncio.wait_for(front.ask(GET), 5)
        assert answer.status == 200
        assert len(front.server.connections) <= 8
        assert len(stalled) == 50


@pytest.mark.parametrize("begun", ["idle", "in a head"])
async def test_control_without_eviction_they_keep_others_out(begun: str) -> None:
    limits = replace(PROBE_LIMITS, max_connections=8, cpu_share=None, evict=False)
    async with fronted(limits) as front:
        await held(front, 50, BEGUN[begun])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(front.ask(GET), 0.5)


async def test_a_server_closes_while_connections_push_each_other_out() -> None:
    limits = replace(PROBE_LIMITS, max_connections=4, cpu_share=None)

    async def keep_connecting(front: Front) -> None:
        last = await front.peer()
        with contextlib.suppress(ConnectionError):
            while True:
                last, before = await front.peer(), last
                before.writer.transport.abort()

    for _number in range(20):
        async with fronted(limits) as front:
            connecting = [asyncio.create_task(keep_connecting(front)) for _task in range(8)]
            await until(lambda: len(front.server.connections) > 1)
            await asyncio.wait_for(front.server.close(0.05), 5)
            await asyncio.gather(*connecting)


@pytest.mark.sample(4)
@pytest.mark.parametrize("turns", range(8))
async def test_a_connection_that_comes_while_the_server_closes_is_closed(turns: int) -> None:
    async with fronted() as front:
        await settle_down()  # it waits for peers
        with socket.create_connection(("127.0.0.1", front.port), timeout=5) as peer:
            for _turn in range(turns):
                await asyncio.sleep(0)
            await front.server.close(0.05)
            with contextlib.suppress(ConnectionResetError):
                assert peer.recv(1) == b""
    gc.collect()  # a socket that nobody closed would be a warning, so an error


async def test_an_answer_that_is_being_made_is_not_pushed_out() -> None:
    release = asyncio.Event()

    class Slow:
        async def handle(self, _request: HttpRequest, _gone: Disconnected) -> HttpResponse:
            await release.wait()
            return HttpResponse(200, "text/plain", b"late")

    limits = replace(PROBE_LIMITS, max_connections=4, cpu_share=None)
    async with fronted(limits, Slow()) as front:
        waiting = await held(front, 4, GET)
        await until(lambda: len(front.server.tasks) == 4)
        more = await held(front, 20, GET)
        await asyncio.sleep(0)
        release.set()
        for peer in (*waiting, *more):
            assert (await asyncio.wait_for(peer.answer(), 5)).body == b"late"
            peer.writer.close()


async def test_the_local_socket_keeps_idle_clients_and_takes_others_when_there_is_room() -> None:
    limits = replace(PROBE_LIMITS, max_connections=2, cpu_share=None, evict=False)
    async with fronted(limits) as front:
        first, second = await held(front, 2, GET)
        third = asyncio.create_task(front.ask(GET))
        assert (await first.answer()).status == (await second.answer()).status == 200
        second.writer.write(GET)
        assert (await second.answer()).status == 200
        assert not third.done()
        first.writer.close()
        assert (await asyncio.wait_for(third, 5)).status == 200


# --- its share of the event loop -----------------------------------------------------------------


async def longest_turn(front: Front, attack: Callable[[Front], Awaitable[None]]) -> int:
    """Return how many answers were made at most between two turns of another task."""
    handler = front.server._handler
    assert isinstance(handler, Greeting)
    most, before, done = 0, 0, False

    async def other() -> None:
        nonlocal most, before
        while not done:
            most = max(most, handler.answered - before)
            before = handler.answered
            await asyncio.sleep(0)

    watching = asyncio.create_task(other())
    await attack(front)
    done = True
    await watching
    return most


async def pipeline(front: Front) -> None:
    peer = await front.peer()
    peer.writer.write(GET * 500)
    for _number in range(500):
        assert (await peer.answer()).status == 200


async def test_pipelined_requests_let_others_have_their_turn() -> None:
    async with fronted(replace(PROBE_LIMITS, cpu_share=None)) as front:
        assert await longest_turn(front, pipeline) <= 1


async def test_control_without_a_break_between_answers_others_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sleep = asyncio.sleep

    async def no_break(seconds: float) -> None:
        if seconds:
            await sleep(seconds)

    async with fronted(UNLIMITED) as front:
        handler = front.server._handler
        assert isinstance(handler, Greeting)
        monkeypatch.setattr(asyncio, "sleep", no_break)
        peer = await front.peer()
        peer.writer.write(GET * 500)
        await peer.answer()
        assert handler.answered > 100  # within the turn in which the first was answered


async def test_a_listener_has_its_share_of_the_time_and_no_more() -> None:
    async with fronted(replace(PROBE_LIMITS, cpu_share=0.01)) as front:
        handler = front.server._handler
        assert isinstance(handler, Greeting)
        peer = await front.peer()
        reading = asyncio.create_task(peer.reader.read(-1))
        peer.writer.write(GET * 100_000)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.sleep(1)  # the time that is shared
        # A burst of a tenth of a second, then 1 % of it; an answer costs 50 us or more.
        assert handler.answered <= (0.1 + 0.01 * (loop.time() - began)) / 0.000_05 + 200
        reading.cancel()


async def test_control_without_a_share_it_takes_all_it_can() -> None:
    async with fronted(replace(PROBE_LIMITS, cpu_share=None)) as front:
        handler = front.server._handler
        assert isinstance(handler, Greeting)
        peer = await front.peer()
        reading = asyncio.create_task(peer.reader.read(-1))
        peer.writer.write(GET * 100_000)
        await until(lambda: handler.answered > 5_000)
        reading.cancel()


async def accepted_in_a_storm(limits: HttpLimits) -> int:
    """Connect 1,000 times and hang up; return how many connections were opened in a second."""
    async with fronted(replace(limits, backlog=1_000)) as front:
        count, opened = 0, front.server.opened

        def counted(connection: HttpConnection) -> None:
            nonlocal count
            count += 1
            opened(connection)

        front.server.opened = counted  # type: ignore[method-assign]
        for _number in range(1_000):
            with socket.socket() as peer:
                peer.setblocking(False)
                peer.connect_ex(("127.0.0.1", front.port))
        await asyncio.sleep(1)  # the time that is shared
        return count


async def test_a_storm_of_connections_has_its_share_of_the_time_and_no_more() -> None:
    # A burst of a tenth of a second, then 1 % of it; a connection costs 450 us.
    assert 100 < await accepted_in_a_storm(replace(PROBE_LIMITS, cpu_share=0.01)) < 300


async def test_control_without_a_share_a_storm_of_connections_is_let_in() -> None:
    assert await accepted_in_a_storm(replace(PROBE_LIMITS, cpu_share=None)) > 400
