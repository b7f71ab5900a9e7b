"""A real process on a real disk, killed with SIGKILL at random moments under load."""

import asyncio
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.inspection import verify
from holdfast.engines.journal.wal.disk import LocalDisk
from holdfast.model.job import State

CYCLES = int(os.environ.get("HOLDFAST_TEST_KILLS", "15"))
VICTIM = Path(__file__).with_name("victim.py")


class Heard:
    """What the victims said before they died."""

    def __init__(self) -> None:
        self.enqueued: set[str] = set()
        self.completed: Counter[str] = Counter()
        self.dead: set[str] = set()
        self.tokens: dict[str, int] = {}

    def take(self, line: str) -> None:
        what, _, rest = line.partition(" ")
        if what == "enqueued":
            self.enqueued.add(rest)
        elif what == "completed":
            self.completed[rest] += 1
        elif what == "dead":
            self.dead.add(rest)
        elif what == "token":
            job_id, token = rest.split()
            assert int(token) > self.tokens.get(job_id, 0), f"token {token} of {job_id} again"
            self.tokens[job_id] = int(token)


def live_and_die(directory: Path, seed: int, heard: Heard, rng: random.Random) -> None:
    process = subprocess.Popen(
        [sys.executable, str(VICTIM), str(directory), str(seed)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    output = b""
    descriptor = process.stdout.fileno()
    deadline = None
    moment = rng.uniform(0.02, 0.4)
    while deadline is None or time.monotonic() < deadline:
        wait = 20.0 if deadline is None else max(0.0, deadline - time.monotonic())
        if not select.select([descriptor], [], [], wait)[0]:
            break
        chunk = os.read(descriptor, 1 << 16)
        assert chunk, process.stderr.read().decode()
        output += chunk
        if deadline is None and b"opened" in output:
            deadline = time.monotonic() + moment
    process.send_signal(signal.SIGKILL)
    output += process.stdout.read()
    process.wait()
    process.stdout.close()
    process.stderr.close()
    for line in output.decode().splitlines(keepends=True):
        if line.endswith("\n"):
            heard.take(line.strip())


async def check(directory: Path, heard: Heard) -> None:
    engine = await JournalEngine.open(directory)
    assert await engine.validate() == []
    ids = sorted(heard.enqueued | set(heard.completed) | heard.dead)
    found = dict(zip(ids, await engine.get(ids), strict=True))
    lost = [job_id for job_id, job in found.items() if job is None]
    assert not lost, f"{len(lost)} acknowledged jobs lost: {lost[:5]}"
    for job_id in heard.completed:
        job = found[job_id]
        assert job is not None
        assert job.state is State.COMPLETED
    for job_id in heard.dead:
        job = found[job_id]
        assert job is not None
        assert job.state is State.DEAD
    await engine.close()


def test_random_kills_lose_nothing_and_complete_nothing_twice(tmp_path):
    seed = int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    rng = random.Random(seed)
    heard = Heard()
    for cycle in range(CYCLES):
        live_and_die(tmp_path / "data", cycle, heard, rng)
        if cycle % 10 == 9:
            report = verify(LocalDisk(tmp_path / "data"))
            assert report.problems == []
            asyncio.run(check(tmp_path / "data", heard))
    asyncio.run(check(tmp_path / "data", heard))
    assert not [job_id for job_id, count in heard.completed.items() if count > 1]
    assert len(heard.completed) > 50 * CYCLES, "the victims really worked"
