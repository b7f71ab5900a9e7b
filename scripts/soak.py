"""A long run of a real daemon under mixed load: memory, files and latency must stay flat.

``python scripts/soak.py`` runs for SOAK_SECONDS (900): clients enqueue, cancel, replay, purge and
look; tasks run on the loop, in threads and in child processes; some fail, some run into their
time-out; snapshots are taken. It prints a table and fails if the last third of it is worse than the
second one by more than the margins below.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

from holdfast.engines.client.engine import ClientEngine
from holdfast.engines.journal.inspection import verify
from holdfast.engines.journal.wal.disk import LocalDisk
from holdfast.engines.socket_path import socket_path
from holdfast.model.actions import ArchiveJobs, CancelJobs, NoteJobs, PurgeJobs, ReplayJobs
from holdfast.model.audit import Attribution
from holdfast.model.errors import HoldfastError
from holdfast.model.job import Job, NewJob, State
from holdfast.model.search import Filter, Order

SECONDS = float(os.environ.get("SOAK_SECONDS", "900"))
SAMPLES = 30
PER_SECOND = float(os.environ.get("SOAK_PER_SECOND", "120"))
"""How many jobs are enqueued each second."""
TEXT = "x" * 8_000
"""Large enough that a snapshot is due about every minute."""
HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
APP = str(Path(__file__).with_name("soak_app.py"))
TASKS = {"send": "mail", "render": "reports", "add_up": "numbers", "dawdle": "mail"}
WEIGHTS = (60, 30, 9, 1)
OPERATION = Attribution("soak", "because it is time")
END_SECONDS = 60.0
"""How long the remaining jobs may take after the last enqueue."""

MEMORY_SHARE, MEMORY_MIB = 0.10, 8.0
FILES = 8
LATENCY_SHARE, LATENCY_MS = 1.0, 25.0
"""The allowed growth from the second third to the last; shared machines allow no tighter bound."""


class Sample(NamedTuple):
    """The measurements of one moment."""

    seconds: float
    memory_mib: float
    files: int
    threads: int
    p50_ms: float
    p99_ms: float
    unfinished: int
    enqueued: int
    snapshots: int


def main() -> int:
    """Soak; return 0 if everything stayed flat and nothing was lost."""
    with tempfile.TemporaryDirectory(prefix="soak") as directory, daemon(directory) as process:
        samples, problems = asyncio.run(soak(process.pid, directory))
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)
        if code != 0:
            problems.append(f"the daemon ended with {code}")
        problems += verify(LocalDisk(f"{directory}/store")).problems
    problems += not_flat(samples)
    for problem in problems:
        say(f"PROBLEM: {problem}")
    if not problems:
        say(
            f"flat: {SECONDS:g} s, {samples[-1].enqueued} jobs, nothing lost, the journal is intact"
        )
    return 1 if problems else 0


@contextlib.contextmanager
def daemon(directory: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a daemon in this directory."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HOLDFAST_", "OUTBOX_"))
    }
    env |= {
        "HOLDFAST_STORE": f"{directory}/store",
        # So short that the remembered jobs soon reach their final number.
        "HOLDFAST_REMEMBER_SECONDS": str(max(5.0, SECONDS / 15)),
        "HOLDFAST_BASE_BACKOFF_SECONDS": "0.2",
        "HOLDFAST_LOG_LEVEL": "error",
    }
    words = [HOLDFAST, "run", APP, "--metrics-port", "0", "--workers", "16"]
    with Path(f"{directory}/log").open("wb") as log:
        process = subprocess.Popen(words, env=env, stdout=log, stderr=log)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


async def soak(pid: int, directory: str) -> tuple[list[Sample], list[str]]:
    """Put load on the daemon and measure it; return the samples and the problems."""
    load = Load(socket_path(f"{directory}/store"))
    await load.engine.counts()  # waits until the daemon answers
    working = [asyncio.create_task(work()) for work in load.works]
    began = time.monotonic()
    samples: list[Sample] = []
    say("seconds  memory MiB  files  threads  p50 ms  p99 ms  unfinished  enqueued  snapshots")
    for number in range(1, SAMPLES + 1):
        await asyncio.sleep(max(0.0, began + number * SECONDS / SAMPLES - time.monotonic()))
        for task in working:
            if task.done():
                task.result()
        samples.append(await load.sample(pid, time.monotonic() - began, directory))
        say(
            "{:7.0f}  {:10.1f}  {:5}  {:7}  {:6.1f}  {:6.1f}  {:10}  {:8}  {:9}".format(
                *samples[-1]
            )
        )
    for task in working:
        task.cancel()
    await asyncio.wait(working)
    problems = await load.end()
    return samples, problems


class Load:
    """Clients of every kind."""

    def __init__(self, path: str) -> None:
        self.engine = ClientEngine(path, patience_seconds=20.0)
        self._others = ClientEngine(path, patience_seconds=20.0)
        self.works: list[Callable[[], Coroutine[object, object, None]]] = [
            self._enqueue,
            self._cancel,
            self._look_after,
            self._look,
        ]
        self._latencies: list[float] = []
        self._enqueued = 0

    async def sample(self, pid: int, seconds: float, directory: str) -> Sample:
        """Measure the daemon."""
        latencies, self._latencies = self._latencies, []
        shares = quantiles(latencies, n=100) if len(latencies) > 1 else [0.0] * 99
        counts = (await self.engine.counts()).values()
        memory_mib, files, threads, snapshots = used(pid, directory)
        return Sample(
            seconds,
            memory_mib,
            files,
            threads,
            shares[49] * 1000,
            shares[98] * 1000,
            sum(one.pending + one.in_flight + one.blocked for one in counts),
            self._enqueued,
            snapshots,
        )

    async def end(self) -> list[str]:
        """Wait until all jobs are finished; return the problems."""
        give_up = time.monotonic() + END_SECONDS
        unfinished = Filter(states=(State.PENDING, State.IN_FLIGHT, State.BLOCKED))
        left: list[Job] = []
        while time.monotonic() < give_up:
            await asyncio.sleep(0.2)
            # Dead letters hold other jobs of their key.
            await self.engine.operate(PurgeJobs(), Filter(states=(State.DEAD,)), OPERATION)
            left = (await self.engine.find(unfinished, limit=5)).jobs
            if not left:
                break
        problems = [f"job {job.id} ({job.task}) is still {job.state}" for job in left]
        problems += await self.engine.validate()
        await self.engine.close()
        await self._others.close()
        return problems

    async def _enqueue(self) -> None:
        began = time.monotonic()
        while True:
            await asyncio.sleep(max(0.0, began + self._enqueued / PER_SECOND - time.monotonic()))
            jobs = [self._job() for _ in range(random.choice([1, 1, 1, 5]))]
            sent = time.monotonic()
            await self.engine.enqueue(jobs)
            self._latencies.append(time.monotonic() - sent)
            self._enqueued += len(jobs)

    def _job(self) -> NewJob:
        task = random.choices(list(TASKS), WEIGHTS)[0]
        number = self._enqueued + random.randrange(1000)
        return NewJob(
            task=task,
            queue=TASKS[task],
            payload={"number": number, "text": TEXT},
            # Only tasks that do not fail: jobs behind a dead one would pile up.
            key=f"k{number % 70}" if number % 20 == 10 and task != "dawdle" else None,
            delay_seconds=0.5 if number % 30 == 0 else None,
            priority=number % 3,
        )

    async def _cancel(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            with contextlib.suppress(HoldfastError):
                await self._others.operate(
                    CancelJobs(), Filter(states=(State.PENDING,)), OPERATION, limit=1
                )

    async def _look_after(self) -> None:
        """Replay some dead letters, archive some, and purge the rest."""
        while True:
            await asyncio.sleep(2.0)
            dead = Filter(states=(State.DEAD,))
            await self._others.operate(ReplayJobs(fixed="the weather"), dead, OPERATION, limit=5)
            await self._others.operate(ArchiveJobs(), dead, OPERATION, limit=2)
            await self._others.operate(
                NoteJobs("seen"), Filter(states=(State.ARCHIVED,)), OPERATION
            )
            await self._others.operate(
                PurgeJobs(), Filter(states=(State.DEAD, State.ARCHIVED)), OPERATION, limit=1_000
            )

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            await self._others.find(limit=20, order=Order.NEWEST)
            await self._others.groups()
            await self._others.audited(limit=10)


def used(pid: int, directory: str) -> tuple[float, int, int, int]:
    """Return memory in MiB, open files and threads of a process, and the snapshots in its store."""
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return (
        int(status["VmRSS"].split()[0]) / 1024,
        len(list(Path(f"/proc/{pid}/fd").iterdir())),
        int(status["Threads"]),
        len(list(Path(f"{directory}/store/snapshots").glob("*"))),
    )


def not_flat(samples: list[Sample]) -> list[str]:
    """Compare the last third of the samples with the second; return what has grown."""
    third = len(samples) // 3
    before, after = samples[third : 2 * third], samples[2 * third :]
    found: list[str] = []
    for what, share, more in (
        ("memory_mib", MEMORY_SHARE, MEMORY_MIB),
        ("files", 0.0, FILES),
        ("p99_ms", LATENCY_SHARE, LATENCY_MS),
    ):
        old = median(getattr(sample, what) for sample in before)
        new = median(getattr(sample, what) for sample in after)
        say(f"{what}: {old:.1f} in the second third, {new:.1f} in the last")
        if new > old * (1 + share) + more:
            found.append(f"{what} has grown from {old:.1f} to {new:.1f}")
    return found


def say(line: str) -> None:
    """Print it at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
