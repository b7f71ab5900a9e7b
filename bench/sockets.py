"""The limit of the machine and asyncio on a Unix socket: no storage, no protocol.

``python -m bench.sockets serve|ask PATH [SECONDS BEGIN]`` is one of its processes.
"""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
REQUEST, REPLY = b"x" * 400, b"y" * 150


class EchoServer(asyncio.Protocol):
    """Answers every message."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:  # noqa: ARG002 - any message counts
        """Answer."""
        self.transport.write(REPLY)


class Client(EchoServer):
    """Sends one request after another."""

    reply: asyncio.Future[None]

    def data_received(self, data: bytes) -> None:  # noqa: ARG002 - any message counts
        """Resolve the pending reply."""
        self.reply.set_result(None)


async def serve(path: str) -> None:
    """Listen until this process is terminated."""
    server = await asyncio.get_running_loop().create_unix_server(EchoServer, path)
    await server.serve_forever()


async def ask(path: str, seconds: float, begin: float) -> int:
    """Send requests from ``begin`` on for ``seconds``; return the number of answers."""
    loop = asyncio.get_running_loop()
    _transport, asking = await loop.create_unix_connection(Client, path)
    await asyncio.sleep(begin - time.monotonic())
    count = 0
    while time.monotonic() < begin + seconds:
        asking.reply = loop.create_future()
        asking.transport.write(REQUEST)
        await asking.reply
        count += 1
    return count


def measure(directory: Path, seconds: float, clients: int) -> dict[str, float]:
    """Measure round trips of this many client processes to one server."""
    path = directory / "bare.sock"
    command = [sys.executable, "-m", "bench.sockets"]
    server = subprocess.Popen([*command, "serve", str(path)], cwd=ROOT)
    try:
        while not path.exists():
            time.sleep(0.01)
        begin = time.monotonic() + 1.5
        arguments = [*command, "ask", str(path), str(seconds), str(begin)]
        asking = [
            subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=ROOT)
            for _ in range(clients)
        ]
        answers = sum(int(one.communicate(timeout=60)[0]) for one in asking)
        return {"bare_round_trips_per_second": answers / seconds}
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        asyncio.run(serve(sys.argv[2]))
    else:
        print(asyncio.run(ask(sys.argv[2], float(sys.argv[3]), float(sys.argv[4]))))
