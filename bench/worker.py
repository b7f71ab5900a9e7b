"""From enqueue to recorded completion, with the metrics on: in process and through the socket."""

import asyncio
import contextlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from holdfast import Task
from holdfast.daemon.worker_settings import event_loop_runner
from holdfast.engines.journal.engine import JournalEngine
from holdfast.model.job import NewJob
from holdfast.settings import load

from . import sockets

ROOT = Path(__file__).parents[1]
CLIENTS = 8
SLOTS = 200
BATCH = 1_000


async def until(count: int) -> None:
    """Wait until this many jobs have run."""
    from . import jobs  # noqa: PLC0415 - reads its store from the environment

    while jobs.ran < count:
        await asyncio.sleep(0.001)


async def drained() -> None:
    """Wait until every completion is recorded."""
    from . import jobs  # noqa: PLC0415

    def unfinished(counts: object) -> bool:
        assert isinstance(counts, dict)
        return any(count.pending or count.in_flight for count in counts.values())

    while unfinished(await jobs.app._binding.call(lambda engine: engine.counts())):  # noqa: SLF001
        await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def working(slots: int) -> AsyncIterator[None]:
    """Run a worker in this process with this many slots and a counter of 0."""
    from . import jobs  # noqa: PLC0415

    jobs.ran = 0
    async with jobs.app.running(workers=slots, metrics_port=0, log_level="error"):
        yield


async def rate(task: Task[[int], object], slots: int, seconds: float) -> float:
    """Enqueue in batches while a worker runs; return jobs per second."""
    done = 0
    async with working(slots):
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            # At most two batches ahead: this does not measure a backlog.
            await asyncio.gather(
                task.enqueue_many([(n,) for n in range(BATCH)]), until(done - BATCH)
            )
            done += BATCH
        await until(done)
        await drained()
        return done / (time.perf_counter() - start)


async def backlog_rate(count: int) -> float:
    """Process a backlog, as the brokers' workers do; return jobs per second."""
    from . import jobs  # noqa: PLC0415

    engine = await JournalEngine.open(jobs.app.settings.store)
    payloads = [jobs.nothing.spec.signature.encode((n,), {}) for n in range(BATCH)]
    batch = [NewJob(task=jobs.nothing.name, payload=payload) for payload in payloads]
    for _chunk in range(count // BATCH):
        await engine.enqueue(batch)
    await engine.close()
    async with working(SLOTS):
        await until(1)
        before, start = jobs.ran, time.perf_counter()
        await until(count)
        await drained()
        return (count - before) / (time.perf_counter() - start)


async def latency(seconds: float) -> list[float]:
    """Enqueue one job at a time on an idle worker in this process."""
    from . import jobs  # noqa: PLC0415

    jobs.late_seconds.clear()
    async with working(8):
        until_time = time.monotonic() + seconds
        while time.monotonic() < until_time:
            handle = await jobs.started.enqueue(time.monotonic())
            await handle.result(5)
            await asyncio.sleep(0.003)  # idle again
    return sorted(jobs.late_seconds)


async def in_process(seconds: float) -> dict[str, float]:
    """Measure one process by itself."""
    from . import jobs  # noqa: PLC0415

    found = {
        "worker_backlog_per_second": await backlog_rate(int(seconds * 20) * BATCH),
        "worker_async_per_second": await rate(jobs.nothing, SLOTS, seconds),  # type: ignore[arg-type]
        "worker_async_one_slot_per_second": await rate(jobs.nothing, 1, seconds),  # type: ignore[arg-type]
        "worker_thread_per_second": await rate(jobs.nothing_in_thread, 64, seconds),  # type: ignore[arg-type]
    }
    late = await latency(seconds)
    found["worker_latency_p50_ms"] = late[len(late) // 2] * 1e3
    found["worker_latency_p99_ms"] = late[len(late) * 99 // 100] * 1e3
    return found


async def client(seconds: float, *, latency_to: str = "") -> int:
    """Enqueue one by one through the socket from the time read from stdin; return the count."""
    from . import jobs  # noqa: PLC0415

    await jobs.app.enqueue("unknown.task")  # connected
    print("ready", flush=True)
    count, until_time = 0, float(sys.stdin.readline()) + seconds
    await asyncio.sleep(max(0.0, until_time - seconds - time.monotonic()))
    while time.monotonic() < until_time:
        if latency_to:
            await (await jobs.started.enqueue(time.monotonic())).result(5)
            await asyncio.sleep(0.003)
        else:
            await jobs.app.enqueue("unknown.task", {"n": count})
        count += 1
    if latency_to:
        await (await jobs.report.enqueue(latency_to)).result(5)
    await jobs.app.close()
    return count


def _run(directory: Path, *arguments: str, loop: str = "asyncio") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bench.worker", *arguments],
        env={**os.environ, "HOLDFAST_STORE": str(directory), "HOLDFAST_EVENT_LOOP": loop},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def _answer(process: subprocess.Popen[str]) -> dict[str, float]:
    text, _ = process.communicate(timeout=120)
    if process.returncode != 0:
        raise RuntimeError(f"a part of the benchmark ended with {process.returncode}")
    return dict(json.loads(text))


def _clients(
    directory: Path, count: int, seconds: float, notes: str = "", *, loop: str = "asyncio"
) -> float:
    """Start this many clients together; return how many jobs they sent."""
    clients = [_run(directory, "client", str(seconds), notes, loop=loop) for _ in range(count)]
    for one in clients:
        assert one.stdout is not None
        one.stdout.readline()
    begin = time.monotonic() + 0.1
    for one in clients:
        assert one.stdin is not None
        one.stdin.write(f"{begin}\n")
        one.stdin.flush()
    return sum(_answer(one)["sent"] for one in clients)


@contextlib.contextmanager
def _daemon(directory: Path, loop: str = "asyncio") -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "holdfast", "--store", str(directory)),
            *("run", "bench.jobs:app", "--metrics-port", "0", "--log-level", "error"),
            *("--event-loop", loop),
        ],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        assert process.stdout is not None
        while not process.stdout.readline().startswith("workers"):
            if process.poll() is not None:
                raise RuntimeError("the daemon did not start")
        yield process
    finally:
        process.terminate()
        process.wait()


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(directory: Path, seconds: float) -> dict[str, float]:
    """Measure one round, each part in new processes."""
    found = _answer(_run(directory / "own", "in-process", str(seconds)))
    store = directory / "shared"
    with _daemon(store) as daemon:
        before, since = _cpu_seconds(daemon.pid), time.perf_counter()
        time.sleep(2 * seconds)  # the daemon is idle
        used = _cpu_seconds(daemon.pid) - before
        found["idle_cpu_percent"] = 100 * used / (time.perf_counter() - since)
        notes = directory / "latencies"
        _clients(store, 1, seconds, str(notes))
        late = sorted(float(line) for line in notes.read_text().split())
        found["socket_latency_p50_ms"] = late[len(late) // 2] * 1e3
        found["socket_latency_p99_ms"] = late[len(late) * 99 // 100] * 1e3
        found["eight_clients_per_second"] = _clients(store, CLIENTS, seconds) / seconds
        found["one_client_per_second"] = _clients(store, 1, seconds) / seconds
    with _daemon(store, "uvloop"):
        sent = _clients(store, CLIENTS, seconds, loop="uvloop")
        found["eight_clients_uvloop_per_second"] = sent / seconds
    found |= sockets.measure(directory, seconds, CLIENTS)
    return found


def main() -> None:
    """Run one part, named on the command line, and print the figures."""
    part, seconds = sys.argv[1], float(sys.argv[2])
    if part == "in-process":
        found = asyncio.run(in_process(seconds))
        found["worker_rss_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    else:
        with event_loop_runner(load(environ=os.environ).settings) as runner:
            found = {"sent": runner.run(client(seconds, latency_to=sys.argv[3]))}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
