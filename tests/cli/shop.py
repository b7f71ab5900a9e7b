"""A store in which something of everything has happened, without an owner or with one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from click.testing import Result

from holdfast.daemon.daemon import Daemon
from holdfast.engines.journal.engine import JournalEngine
from holdfast.model.actions import ArchiveJobs
from holdfast.model.audit import Attribution
from holdfast.model.event import NewEvent
from holdfast.model.failure import Failure
from holdfast.model.fingerprint import fingerprint
from holdfast.model.group_life import GroupKey, group_id
from holdfast.model.job import NewJob
from holdfast.model.operation import NewOperation, OperationChange
from holdfast.model.outcome import completed, dead
from holdfast.model.policy import Rate
from holdfast.model.search import Filter
from holdfast.settings import Settings
from holdfast.worker.registry import Execution, Registry, TaskSpec
from holdfast.worker.schedules import Schedule
from holdfast.worker.signature import Signature

from .conftest import invoke

DEAD = ("d1", "d2", "d3")
"""Failed for reasons that may pass; ``x1`` and ``x2`` failed for good."""
WRONG = Failure.of("mapping_error", "no column 'isbn'\x1b[31m")
GROUP = group_id(
    GroupKey("mail", "mail", WRONG.error_reason, WRONG.status or 0, fingerprint(WRONG.message))
)
"""The group of ``x1`` and ``x2``."""
OPERATION = "op-0123456789"
EVENT = "0192f3a4-0000-7000-8000-000000000001"
CATALOG = "events: {book.opened: {entity: book, fields: {book_id: string, page: integer}}}"
EVERY_ID = {*DEAD, "x1", "x2", "done", "flying", "held", "p1", "p2", "k1", "k2", "other"}


async def furnish(path: Path) -> None:
    """Make the store."""
    engine = await JournalEngine.open(path)
    opened = NewEvent(
        id=EVENT,
        event_type="book.opened",
        entity_type="book",
        entity_id="b1",
        actor_id="42",
        payload={"book_id": "b1", "page": 1},
    )
    await engine.append([opened])
    mail: dict[str, Any] = {"task": "mail", "queue": "mail"}
    jobs = [NewJob(id=name, **mail) for name in (*DEAD, "x1", "x2", "done", "flying")]
    await engine.enqueue(jobs)
    taken = (await engine.claim(queues=["mail"], worker="far/w1", limit=7, lease_seconds=3600)).jobs
    slow = Failure.of("upstream_5xx", "503 from the mail server")
    await engine.settle(
        [
            *(dead(job, slow) for job in taken[:3]),
            *(dead(job, WRONG) for job in taken[3:5]),
            completed(taken[5], b'"sent"'),
        ]
    )
    await engine.enqueue(
        [
            NewJob(id="held", hold=True, **mail),
            NewJob(id="p1", payload={"to": "ann"}, **mail),
            NewJob(id="p2", tenant="acme", scope="library:1", task="report", queue="slow"),
            NewJob(id="k1", key="k", task="t", queue="keys"),
            NewJob(id="k2", key="k", task="t", queue="keys"),
            NewJob(id="other", task="t", tenant="acme"),
        ]
    )
    first = (await engine.claim(queues=["keys"], worker="far/w1")).jobs
    await engine.settle([dead(job, slow) for job in first])
    # It is paused, and wants no job that is here.
    new = NewOperation(
        id=OPERATION, action=ArchiveJobs(), wanted=Filter(queues=("nowhere",)), rate=Rate(1, 60.0)
    )
    await engine.start_operation(new, Attribution("ann", "to tidy up"))
    paused = OperationChange(paused=True)
    await engine.change_operation(OPERATION, paused, Attribution("ann", "to tidy up"))
    await engine.close()


def registry() -> Registry:
    """An application with a task and a schedule."""

    async def tick() -> None: ...

    found = Registry()
    for name in ("tick", "mail", "report", "t"):
        spec = TaskSpec(name, tick, Signature(tick, name), Execution.LOOP, queue="later")
        found.add_task(spec)
    found.add_schedule(Schedule(name="nightly", expression="0 3 1 1 *", task="tick", queue="later"))
    return found


class Shop:
    """The store, and commands on it."""

    def __init__(self, path: Path, *, owned: bool) -> None:
        self.path = path
        self.owned = owned

    def run(self, *args: object, code: int = 0, stdin: bytes | str | None = None) -> Result:
        """Run a command; it must end with this exit code."""
        result = invoke("--store", self.path, *args, stdin=stdin)
        assert result.exit_code == code, (args, result.exit_code, result.output)
        if code:
            assert result.stderr or result.stdout
        return result

    def json(self, *args: object, code: int = 0) -> Any:
        """Run a command with ``--json``; return what it says."""
        return json.loads(self.run(*args, "--json", code=code).stdout)

    def statuses(self) -> dict[str, str]:
        """Return the status of every job."""
        found = self.json("jobs", "list", "--limit", 1000)["jobs"]
        return {job["id"]: job["status"] for job in found}


@contextlib.contextmanager
def owner_of(path: Path) -> Iterator[Daemon]:
    """Own the store, in a thread of its own, and work on none of the jobs that are in it."""
    settings = Settings(
        store=str(path), metrics_port=None, queues="later:8", drain_seconds=0, stall_seconds=None
    )
    with running(registry(), settings) as daemon:
        yield daemon


@contextlib.contextmanager
def running(tasks: Registry, settings: Settings) -> Iterator[Daemon]:
    """Run a daemon in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> Daemon:
        made = Daemon(tasks, settings)
        await made.start()
        return made

    daemon = asyncio.run_coroutine_threadsafe(start(), loop).result(30)
    try:
        yield daemon
    finally:
        asyncio.run_coroutine_threadsafe(daemon.stop(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()
