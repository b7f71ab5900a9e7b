"""``python -m bench.brokers.driver DIRECTORY MODULE SECONDS APPENDFSYNC`` measures one peer.

The peer, its Valkey and its worker are one process group, so that all end together.
"""

import asyncio
import contextlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import redis

from . import group, progress, server
from . import peer as peers

READY_SECONDS = 20
# The first few jobs open connections.
WARM_UP = 5
JOBS = 100
PAUSE_SECONDS = 0.02
# A slow peer gives fewer samples.
LATENCY_SECONDS = 6


class Worker:
    """The worker of the peer, started with the peer's command."""

    def __init__(self, peer: peers.Peer, directory: Path) -> None:
        self.progress = directory / "progress"
        self.log = directory / "worker.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *peer.worker],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **peer.environment},
            )

    def end(self) -> None:
        """End it and its children at once: taskiq does not end when asked, others take seconds."""
        pid = self.process.pid
        children: list[str] = []
        with contextlib.suppress(OSError):  # it has exited already
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        self.process.kill()
        self.process.wait()
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)

    async def until(self, count: int, seconds: float, every: float) -> progress.Progress:
        """Wait until ``count`` jobs have started in total, at most ``seconds``."""
        end = time.monotonic() + seconds
        while (now := progress.read(self.progress)).count < count and time.monotonic() < end:
            if self.process.poll() is not None:
                raise RuntimeError(f"the worker ended: {self.log.read_text()[-4000:]}")
            await asyncio.sleep(every)
        return now

    async def some(self, count: int) -> progress.Progress:
        """Wait until ``count`` jobs have started in total, or fail."""
        now = await self.until(count, READY_SECONDS, 0.0005)
        if now.count < count:
            raise RuntimeError(f"the worker does not work: {self.log.read_text()[-4000:]}")
        return now


@contextlib.contextmanager
def working(peer: peers.Peer, directory: Path) -> Iterator[Worker]:
    """Run a worker."""
    worker = Worker(peer, directory)
    try:
        yield worker
    finally:
        worker.end()


async def enqueue(peer: peers.Peer, seconds: float) -> tuple[int, float]:
    """One caller, one job per call; return the number of jobs and jobs per second."""
    await peer.put()  # connects
    done, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        await peer.put()
        done += 1
    return done + 1, done / (time.perf_counter() - start)


async def latency(peer: peers.Peer, worker: Worker) -> float:
    """Seconds from before the call that enqueues to the start of the job, on an idle worker."""
    await asyncio.sleep(PAUSE_SECONDS)
    before = progress.read(worker.progress).count
    start = time.monotonic()
    await peer.put()
    return (await worker.some(before + 1)).last - start


async def latencies(peer: peers.Peer, worker: Worker) -> list[float]:
    """Measure many latencies, one after another."""
    for _ in range(WARM_UP):
        await latency(peer, worker)
    taken: list[float] = []
    end = time.monotonic() + LATENCY_SECONDS
    while not taken or (len(taken) < JOBS and time.monotonic() < end):
        taken.append(await latency(peer, worker))
    return sorted(taken)


async def measure(peer: peers.Peer, directory: Path, seconds: float) -> dict[str, float]:
    """Enqueue with no worker, process with no producer, then one job at a time."""
    await peer.open()
    try:
        count, put_rate = await enqueue(peer, seconds)
        with contextlib.ExitStack() as stack:
            worker = stack.enter_context(working(peer, directory))
            await worker.some(1)
            processed = await worker.until(count, 2 * seconds, 0.01)
            if processed.count < count:
                stack.close()
                with redis.Redis.from_url(peers.url()) as client:
                    client.flushall()
                worker = stack.enter_context(working(peer, directory))
            taken = await latencies(peer, worker)
    finally:
        await peer.close()
    return {
        "enqueue_per_second": put_rate,
        "process_per_second": processed.per_second,
        "latency_p50_ms": taken[len(taken) // 2] * 1e3,
        "latency_p99_ms": taken[len(taken) * 99 // 100] * 1e3,
    }


def run(module: str, directory: Path, seconds: float, appendfsync: str) -> dict[str, float]:
    """Measure one peer on a new server."""
    (directory / "progress").mkdir()
    with server.valkey(appendfsync, within=directory) as url:
        os.environ[peers.URL] = url
        os.environ[progress.DIRECTORY] = str(directory / "progress")
        peer = importlib.import_module(f"{__package__}.{module}").PEER
        return asyncio.run(measure(peer, directory, seconds))


def main() -> None:
    """Measure the given peer, print the figures and remove the directory."""
    directory, module, seconds, appendfsync = sys.argv[1:]
    root = Path(directory)
    group.end_with_parent(root)
    found = run(module, root, float(seconds), appendfsync)
    sys.stdout.write(json.dumps(found))
    shutil.rmtree(root)


if __name__ == "__main__":
    main()
