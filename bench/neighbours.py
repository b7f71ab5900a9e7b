"""The pace of a worker while somebody does their worst to its metrics port.

    python -m bench --only neighbours

Each attack runs twice, on the port of the worker and on one of another process, so that the machine
is as busy both times. The ratio of the two says what the attack costs the worker: by the clock, and
by the processor's time, which says it on a busy machine too. What the port takes of a core is the
processor's time of the other process.

``python -m bench.neighbours attack NAME PORT SECONDS`` is the neighbour by itself.
"""

import asyncio
import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from holdfast.http.exchange import Disconnected, HttpRequest, HttpResponse
from holdfast.http.limits import PROBE_LIMITS
from holdfast.http.listeners import bind_port
from holdfast.http.server import serving

ROOT = Path(__file__).parents[1]
HOST = "127.0.0.1"
BATCH = 1_000
SLOTS = 200
CONNECTS_PER_SECOND = 1_000
_HEAD = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n"
_POST = b"POST /metrics HTTP/1.1\r\nHost: localhost\r\n"
_CHUNKED = _POST + b"Transfer-Encoding: chunked\r\n\r\n"


async def _talk(port: int, first: bytes, more: bytes, pause_seconds: float = 0) -> None:
    """Connect, send, and go on sending until the server hangs up."""
    reader, writer = await asyncio.open_connection(HOST, port)
    reading = asyncio.create_task(reader.read(-1))
    try:
        writer.write(first)
        while not reading.done():
            if more:
                writer.write(more)
                await writer.drain()
            await asyncio.wait([reading], timeout=pause_seconds)
    finally:
        reading.cancel()
        writer.transport.abort()


async def _again_and_again(talk: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await talk()
        except OSError:
            await asyncio.sleep(0.01)


async def _many(count: int, talk: Callable[[], Awaitable[None]]) -> None:
    await asyncio.gather(*(_again_and_again(talk) for _number in range(count)))


def _files() -> int:
    return min(1_000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 50)


async def _connects(port: int) -> None:
    """Connect at a steady rate, and hang up at once."""
    loop = asyncio.get_running_loop()
    opened: set[socket.socket] = set()
    began, count = loop.time(), 0
    while True:
        while count < (loop.time() - began) * CONNECTS_PER_SECOND:
            count += 1
            sock = socket.socket()
            sock.setblocking(False)  # noqa: FBT003 - the library's name for it
            sock.connect_ex((HOST, port))
            opened.add(sock)
            loop.call_later(0.1, opened.discard, sock)
            loop.call_later(0.1, sock.close)
        await asyncio.sleep(0.001)


ATTACKS: dict[str, Callable[[int], Awaitable[None]]] = {
    "pipelines": lambda port: _many(8, lambda: _talk(port, b"", (_HEAD + b"\r\n") * 500)),
    "idle": lambda port: _many(_files(), lambda: _talk(port, b"", b"", 60)),
    "half_heads": lambda port: _many(_files(), lambda: _talk(port, _HEAD, b"", 60)),
    "endless_heads": lambda port: _many(8, lambda: _talk(port, _HEAD + b"X: ", b"x" * 65_536)),
    "chunks": lambda port: _many(8, lambda: _talk(port, _CHUNKED, b"2\r\nxx\r\n" * 9_000)),
    "slow_bodies": lambda port: _many(
        _files(), lambda: _talk(port, _POST + b"Content-Length: 9\r\n\r\n", b"x", 1)
    ),
    "connects": _connects,
}


async def attack(name: str, port: int, seconds: float) -> None:
    """Do the worst for this long."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(ATTACKS[name](port), seconds)


class Dummy:
    """Answers everything with nothing."""

    async def handle(self, _request: HttpRequest, _gone: Disconnected) -> HttpResponse:
        """Answer."""
        return HttpResponse(200, "text/plain", b"nothing")


async def dummy(port: int) -> None:
    """Serve what the worker's port serves, beside no worker, until this process is terminated."""
    async with serving(Dummy(), sockets=[bind_port(HOST, port)], limits=PROBE_LIMITS):
        await asyncio.Event().wait()


async def work(port: int, seconds: float) -> None:
    """Run jobs for this long, with the metrics on this port; print the pace."""
    from . import jobs, worker  # noqa: PLC0415 - read their store from the environment

    jobs.ran = done = 0
    async with jobs.app.running(workers=SLOTS, metrics_port=port, log_level="error"):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        until_time, cpu_seconds = time.perf_counter() + seconds, time.process_time()
        while time.perf_counter() < until_time:
            batch = jobs.nothing.enqueue_many([(n,) for n in range(BATCH)])
            await asyncio.gather(batch, worker.until(done - BATCH))
            done += BATCH
        cpu_seconds = time.process_time() - cpu_seconds
        found = {"per_second": jobs.ran / seconds, "per_cpu_second": jobs.ran / cpu_seconds}
        print(json.dumps(found), flush=True)
        await worker.until(done)
        await worker.drained()


def start(directory: Path, *arguments: object) -> subprocess.Popen[str]:
    """Start one of the processes on this store."""
    return subprocess.Popen(
        [sys.executable, "-m", "bench.neighbours", *map(str, arguments)],
        env={**os.environ, "HOLDFAST_STORE": str(directory)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        return int(sock.getsockname()[1])


def cpu_seconds_of(pid: int) -> float:
    """Return how much processor time a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pace(directory: Path, name: str, seconds: float, *, at_worker: bool) -> dict[str, float]:
    """Return the worker's pace beside this attack on its port, or on another one."""
    port, other = free_port(), free_port()
    processes = [start(directory, "dummy", other)]
    try:
        working = start(directory, "work", port, seconds)
        processes.append(working)
        assert working.stdin is not None
        assert working.stdout is not None
        assert working.stdout.readline() == "ready\n"
        processes.append(start(directory, "attack", name, port if at_worker else other, 3_600))
        time.sleep(1)  # the attack is at its height
        began, cpu_seconds = time.monotonic(), cpu_seconds_of(processes[0].pid)
        working.stdin.write("go\n")
        working.stdin.flush()
        found = dict(json.loads(working.stdout.readline()))
        cpu_seconds = cpu_seconds_of(processes[0].pid) - cpu_seconds
        found["port_cpu_percent"] = 100 * cpu_seconds / (time.monotonic() - began)
        assert working.wait() == 0
        return found
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def measure(root: Path, seconds: float) -> dict[str, float]:
    """Measure the pace beside each attack, in pairs."""
    found: dict[str, float] = {}
    for number, name in enumerate(ATTACKS):
        paces: dict[bool, dict[str, float]] = {}
        for at_worker in ((True, False), (False, True))[number % 2]:
            directory = root / f"neighbour-{name}-{at_worker}"
            paces[at_worker] = pace(directory, name, seconds, at_worker=at_worker)
        for unit in ("per_second", "per_cpu_second"):
            found[f"neighbour_{name}_{unit}"] = paces[True][unit]
            found[f"neighbour_{name}_{unit}_share"] = paces[True][unit] / paces[False][unit]
        found[f"neighbour_{name}_port_cpu_percent"] = paces[False]["port_cpu_percent"]
    return found


def main() -> None:
    """Be one of the processes."""
    what, *rest = sys.argv[1:]
    if what == "attack":
        asyncio.run(attack(rest[0], int(rest[1]), float(rest[2])))
    elif what == "dummy":
        asyncio.run(dummy(int(rest[0])))
    else:
        asyncio.run(work(int(rest[0]), float(rest[1])))


if __name__ == "__main__":
    main()
