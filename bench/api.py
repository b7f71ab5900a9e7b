"""The HTTP API under load from other processes, with a key check and a sync for each answer.

    python -m bench --only api

An owner keeps a journal, ``holdfast serve`` is its client, and raw sockets send the requests: an
HTTP library in the client would be measured instead. The limit is the same front with a handler
that does nothing.

``python -m bench.api ask|streams|dummy …`` is one of its processes.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from holdfast.http.limits import HttpLimits
from holdfast.http.listeners import bind_port
from holdfast.http.server import serving

from . import neighbours

ROOT = Path(__file__).parents[1]
HOST = "127.0.0.1"
BATCH = 1_000
STREAMS, KEYS = 500, 25
_SERVE = ("--port", "0", "--key-rate", "0", "--tenant-rate", "0")
_JOB = json.dumps({"task": "later", "queue": "later", "payload": {"n": 1}}).encode()


def request(path: str, key: str, body: bytes, kind: str = "application/json") -> bytes:
    """Return a POST as it is sent."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Read one answer; return its status and body."""
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    status = int(lines[0].split()[1])
    for line in lines:
        if line.startswith(b"content-length:"):
            return status, await reader.readexactly(int(line[15:]))
    parts = []
    while size := int(await reader.readline(), 16):
        parts.append((await reader.readexactly(size + 2))[:-2])
    await reader.readexactly(2)
    return status, b"".join(parts)


async def _repeat(port: int, sent: bytes, until: float) -> tuple[int, int]:
    """Send one request after another; return how many were accepted, and how many were not."""
    reader, writer = await asyncio.open_connection(HOST, port, limit=1 << 24)
    accepted = refused = 0
    while time.monotonic() < until:
        writer.write(sent)
        status, _body = await answer(reader)
        accepted += status in (200, 201)
        refused += status not in (200, 201)
    writer.close()
    return accepted, refused


async def ask(port: int, sent: bytes, connections: int, seconds: float) -> dict[str, float]:
    """Send the same request on this many connections; return how many were accepted a second."""
    until = time.monotonic() + seconds
    found = await asyncio.gather(*(_repeat(port, sent, until) for _ in range(connections)))
    return {
        "accepted": sum(one for one, _ in found) / seconds,
        "refused": sum(one for _, one in found) / seconds,
    }


async def streams(port: int, keys: list[str], seconds: float) -> dict[str, float]:
    """Keep streams open and say nothing; return how many were still open at the end."""
    opened = 0

    async def follow(key: str) -> None:
        nonlocal opened
        reader, writer = await asyncio.open_connection(HOST, port)
        head = (
            f"GET /v2/stream?topic=jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}"
        )
        writer.write(f"{head}\r\n\r\n".encode())
        status = (await reader.readuntil(b"\r\n\r\n")).split()[1]
        if status != b"200":
            return
        opened += 1
        try:
            while await reader.read(65_536):
                pass
        finally:
            opened -= 1
            writer.close()

    following = [asyncio.create_task(follow(keys[n % len(keys)])) for n in range(STREAMS)]
    await asyncio.sleep(seconds)
    found = opened
    for one in following:
        one.cancel()
    await asyncio.gather(*following, return_exceptions=True)
    return {"open": found}


async def dummy(port: int) -> None:
    """Serve nothing, with the limits of the API, until this process is terminated."""
    limits = HttpLimits(max_body_bytes=8 << 20)
    async with serving(neighbours.Dummy(), sockets=[bind_port(HOST, port)], limits=limits):
        await asyncio.Event().wait()


def _start(directory: Path, *command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", *command],
        env={**os.environ, "HOLDFAST_STORE": str(directory)},
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def _key(directory: Path, number: int) -> str:
    command = ["holdfast", "keys", "create", f"k{number}", "--role", "operator"]
    who = ["--tenant", "default", "--by", "bench", "--reason", "a measurement"]
    making = _start(directory, *command, *who)
    text = making.communicate()[0].strip()
    assert making.returncode == 0
    return text


def _listening(server: subprocess.Popen[str]) -> int:
    assert server.stdout is not None
    line = server.stdout.readline()
    found = re.search(r":(\d+)$", line.strip())
    assert found is not None, line
    return int(found[1])


def _asked(what: str, port: int, arguments: dict[str, object]) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.api", what, str(port)]
    given = json.dumps(arguments)
    out = subprocess.run(
        command, input=given, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=True
    )
    return dict(json.loads(out.stdout))


def load(root: Path, seconds: float) -> dict[str, float]:
    """Measure enqueues one by one, in batches and as lines, and open streams."""
    directory = root / f"api-{time.monotonic_ns()}"
    processes: list[subprocess.Popen[str]] = []
    found: dict[str, float] = {}
    try:
        flags = ("-w", "1", "--queues", "none", "--metrics-port", "off", "--log-level", "error")
        processes.append(_start(directory, "holdfast", "run", "bench.jobs:app", *flags))
        keys = [_key(directory, number) for number in range(KEYS)]
        server = _start(directory, "holdfast", "serve", *_SERVE)
        bare_port = neighbours.free_port()
        processes += [server, _start(directory, "bench.api", "dummy", str(bare_port))]
        port = _listening(server)
        for connections in (1, 8):
            for name, at in (("front", bare_port), ("enqueue", port)):
                sent = {"path": "/v2/jobs", "key": keys[0], "connections": connections}
                done = _asked("ask", at, {**sent, "body": "job", "seconds": seconds})
                found[f"api_{name}_{connections}_per_second"] = done["accepted"]
        for name in ("batch", "ingest"):
            sent = {"path": f"/v2/jobs:{name}", "key": keys[0], "connections": 1}
            done = _asked("ask", port, {**sent, "body": name, "seconds": seconds})
            found[f"api_{name}_jobs_per_second"] = BATCH * done["accepted"]
        began, cpu_seconds = time.monotonic(), neighbours.cpu_seconds_of(server.pid)
        done = _asked("streams", port, {"keys": keys, "seconds": 5 + seconds})
        cpu_seconds = neighbours.cpu_seconds_of(server.pid) - cpu_seconds
        found["api_streams_open"] = done["open"]
        found["api_streams_cpu_percent"] = 100 * cpu_seconds / (time.monotonic() - began)
    finally:
        for process in reversed(processes):
            process.terminate()
            process.communicate()
    return found


def flooded(directory: Path, seconds: float, *, at_api: bool) -> float:
    """Return the pace of a worker while its API is flooded, or another process is."""
    working = neighbours.start(directory, "work", 0, seconds)
    processes = [working]
    try:
        assert working.stdin is not None
        assert working.stdout is not None
        assert working.stdout.readline() == "ready\n"
        key = _key(directory, 0)
        server = _start(directory, "holdfast", "serve", *_SERVE)
        bare_port = neighbours.free_port()
        processes += [server, _start(directory, "bench.api", "dummy", str(bare_port))]
        port = _listening(server)
        flood = subprocess.Popen(
            [sys.executable, "-m", "bench.api", "ask", str(port if at_api else bare_port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
        )
        processes.append(flood)
        assert flood.stdin is not None
        sent = {"path": "/v2/jobs", "key": key, "connections": 8, "seconds": 3_600, "body": "job"}
        flood.stdin.write(json.dumps(sent))
        flood.stdin.close()
        time.sleep(1)  # the flood is at its height
        working.stdin.write("go\n")
        working.stdin.flush()
        return float(json.loads(working.stdout.readline())["per_second"])
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()


def measure(root: Path, seconds: float) -> dict[str, float]:
    """Measure the load that the API takes, and what a flood of it costs a worker."""
    found = load(root, seconds)
    for at_api in (True, False):
        directory = root / f"flood-{time.monotonic_ns()}"
        name = "flooded" if at_api else "beside_a_flood"
        found[f"api_worker_{name}_per_second"] = flooded(directory, 2 * seconds, at_api=at_api)
    return found


def _body(name: str) -> tuple[bytes, str]:
    if name == "job":
        return _JOB, "application/json"
    if name == "batch":
        jobs = b",".join([_JOB] * BATCH)
        return b'{"jobs":[' + jobs + b"]}", "application/json"
    return b"\n".join([_JOB] * BATCH), "application/x-ndjson"


def main() -> None:
    """Be one of the processes."""
    what, port = sys.argv[1], int(sys.argv[2])
    if what == "dummy":
        asyncio.run(dummy(port))
    given = json.loads(sys.stdin.read())
    if what == "streams":
        found = asyncio.run(streams(port, given["keys"], given["seconds"]))
    else:
        sent = request(given["path"], given["key"], *_body(given["body"]))
        found = asyncio.run(ask(port, sent, given["connections"], given["seconds"]))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
