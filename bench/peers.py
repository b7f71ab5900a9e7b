"""Embedded alternatives: huey on SQLite, and a good handwritten SQLite queue.

The handwritten queue stores the same fields: id, queue, priority, run_at, lease with a token,
attempts; one row per job, one index for claims, finished rows deleted. WAL, synchronous=FULL.
"""

import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from huey import SqliteHuey

from .ours import PAYLOAD

SCHEMA = """
create table jobs (
  id text primary key, queue text not null, priority integer not null, run_at real not null,
  seq integer not null, task text not null, payload text not null, attempt integer not null,
  max_attempts integer not null, token integer, worker text, lease_until real
) without rowid;
create index claimable on jobs (queue, priority desc, run_at, seq) where token is null;
"""
INSERT = "insert into jobs values (?, 'default', 0, ?, ?, 't', ?, 0, 3, null, null, null)"
CLAIM = """
update jobs set token = ?, worker = 'w', lease_until = ?, attempt = attempt + 1
where id in (
  select id from jobs where queue = 'default' and token is null and run_at <= ?
  order by priority desc, run_at, seq limit ?
) returning id, payload, token
"""


class SqliteQueue:
    """The handwritten queue."""

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("pragma journal_mode=wal")
        self.db.execute("pragma synchronous=full")
        self.db.executescript(SCHEMA)
        self.seq = 0
        self.payload = PAYLOAD.decode()

    def put(self, count: int) -> None:
        """Enqueue in one transaction."""
        self.db.execute("begin immediate")
        self.db.executemany(INSERT, self._rows(count))
        self.db.execute("commit")

    def _rows(self, count: int) -> Iterator[tuple[str, float, int, str]]:
        now = time.time()
        for _row in range(count):
            self.seq += 1
            yield str(uuid.uuid4()), now, self.seq, self.payload

    def process(self, limit: int, done: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """Delete finished jobs and claim the next, in one transaction."""
        now = time.time()
        self.seq += 1
        self.db.execute("begin immediate")
        if done:
            self.db.executemany("delete from jobs where id = ? and token = ?", done)
        rows = self.db.execute(CLAIM, (self.seq, now + 30, now, limit)).fetchall()
        self.db.execute("commit")
        return [(row[0], row[2]) for row in rows]


def _sqlite(directory: Path, seconds: float) -> dict[str, float]:
    queue = SqliteQueue(directory / "queue.db")
    single = _rate(lambda: queue.put(1), 1, seconds)
    bulk_queue = SqliteQueue(directory / "bulk.db")
    bulk = _rate(lambda: bulk_queue.put(1_000), 1_000, seconds)
    process_queue = SqliteQueue(directory / "process.db")
    for _chunk in range(20):
        process_queue.put(1_000)
    start, done = time.perf_counter(), 0
    claimed: list[tuple[str, int]] = []
    while True:
        claimed = process_queue.process(100, claimed)
        if not claimed:
            break
        done += len(claimed)
    processed = done / (time.perf_counter() - start)
    for each in (queue, bulk_queue, process_queue):
        each.db.close()
    return {
        "sqlite_enqueue_one_by_one_per_second": single,
        "sqlite_enqueue_bulk_per_second": bulk,
        "sqlite_claim_and_settle_per_second": processed,
    }


def _huey(directory: Path, seconds: float) -> dict[str, float]:
    huey = SqliteHuey(filename=str(directory / "huey.db"), fsync=True)

    def nothing(payload: str) -> None:
        """Do nothing."""

    task = huey.task()(nothing)

    text = PAYLOAD.decode()
    put = _rate(lambda: task(text), 1, seconds)
    start, done = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        message = huey.dequeue()
        if message is None:
            break
        huey.execute(message)
        done += 1
    taken = done / (time.perf_counter() - start)
    huey.storage.close()
    return {"huey_enqueue_per_second": put, "huey_process_per_second": taken}


def _rate(call: Callable[[], object], jobs: int, seconds: float) -> float:
    done, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        call()
        done += jobs
    return done / (time.perf_counter() - start)


def measure(directory: Path, seconds: float) -> dict[str, float]:
    """Measure one round of each."""
    return {**_sqlite(directory, seconds), **_huey(directory, seconds)}
