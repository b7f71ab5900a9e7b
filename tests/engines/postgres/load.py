"""Real daemons and producers on one server, and what several ledgers record of them."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict

from holdfast.engines.contract import Engine
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.model.job import State
from tests.e2e.audit import Story, problems
from tests.e2e.rig import APP, Daemon, Rig, until

T = TypeVar("T")
HERE = Path(__file__).parent
PRODUCERS = 3
SLOTS = 8
_STATES = {
    number: State(name)
    for number, name in enumerate(
        ("blocked", "pending", "in_flight", "completed", "cancelled", "dead", "archived")
    )
}


class ServerRig(Rig):
    """A store in its own database, and all processes started for it."""

    def __init__(self, directory: Path, url: str, byte_code: Path) -> None:
        super().__init__(directory, byte_code)
        parts = conninfo_to_dict(url)
        self.url = f"postgresql://{parts['user']}@/{parts['dbname']}?host={parts['host']}"
        self.env |= {
            "HOLDFAST_STORE": self.url,
            "HOLDFAST_RECLAIM_INTERVAL_SECONDS": "0.3",
            "HOLDFAST_POLL_INTERVAL_SECONDS": "0.2",
            "HOLDFAST_MAX_CONNECTIONS": "4",
        }

    def ask(self, question: Callable[[Engine], Awaitable[T]]) -> T:
        """Call an engine on a new connection."""

        async def asking() -> T:
            options = PostgresOptions(listen=False, patience_seconds=30.0)
            engine = await PostgresEngine.open(self.url, options=options)
            try:
                return await question(engine)  # type: ignore[arg-type]
            finally:
                await engine.close()

        return asyncio.run(asking())

    def rows(self, statement: str) -> list[tuple]:
        """Return what the database has."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(statement.encode()).fetchall()

    def states(self) -> dict[str, State]:
        """Return the state of every job, from all tables."""
        found = self.rows(
            "SELECT id, state FROM holdfast.jobs UNION ALL SELECT id, state FROM holdfast.dead"
            " UNION ALL SELECT id, state FROM holdfast.history"
        )
        return {job_id: _STATES[state] for job_id, state in found}

    def records(self) -> list[dict[str, object]]:
        """Return every recorded completion and death."""
        found = self.rows(
            "SELECT 'ACK', id FROM holdfast.history WHERE state = 3"
            " UNION ALL SELECT 'DEAD', id FROM holdfast.dead"
        )
        return [{"type": kind, "job_id": job_id} for kind, job_id in found]


class Load:
    """Two daemons and several producers, run until all jobs are finished."""

    def __init__(self, rig: ServerRig, lease_seconds: float, app: str = APP) -> None:
        rig.env["HOLDFAST_LEASE_SECONDS"] = str(lease_seconds)
        self.rig = rig
        self._app = app
        self._producers: list[subprocess.Popen[str]] = []
        for number in range(PRODUCERS):
            command = [sys.executable, str(HERE / "producer.py"), f"p{number}"]
            account = str(rig.directory / f"p{number}.account")
            self._producers.append(
                subprocess.Popen(
                    [*command, account], env=rig.env, stdin=subprocess.PIPE, text=True, bufsize=1
                )
            )
        self.daemons = [self._start(), self._start()]

    def _start(self) -> Daemon:
        return self.rig.run("-w", str(SLOTS), app=self._app)

    def replace(self, number: int) -> None:
        """Kill one of the daemons and start a new one."""
        self.daemons[number].kill()
        self.daemons[number] = self._start()

    def more(self, count: int) -> None:
        """Let the producers enqueue about this many more jobs."""
        for process in self._producers:
            assert process.stdin is not None
            process.stdin.write(f"{count // PRODUCERS}\n")

    def moves(self, count: int = 20) -> None:
        """Wait until this many more jobs are finished."""
        before = self.rig.ledger.ended().total()
        until(lambda: self.rig.ledger.ended().total() >= before + count, "work goes on", 60.0)

    def accounts(self) -> list[str]:
        """Return the lines that the producers have written so far."""
        paths = sorted(self.rig.directory.glob("*.account"))
        return [line for path in paths for line in path.read_text().splitlines()]

    def complaints(self) -> list[str]:
        """Return the errors that producers got."""
        return [line for line in self.accounts() if not line.startswith("acknowledged ")]

    def finish(self, faults: int) -> Story:
        """Let everything come to its end; return what the ledgers record.

        Each fault may interrupt all jobs of one daemon.
        """
        for process in self._producers:
            process.communicate(timeout=60)
            assert process.returncode == 0
        remaining = "SELECT count(*) FROM holdfast.jobs"
        until(lambda: self.rig.rows(remaining) == [(0,)], "everything is finished", 60.0)
        for daemon in self.daemons:
            daemon.ready().stop()
        rig = self.rig
        entries = [line.split(maxsplit=1) for line in self.accounts()]
        return Story(
            acknowledged=[rest for what, rest in entries if what == "acknowledged"],
            states=rig.states(),
            records=[(str(record["type"]), str(record["job_id"])) for record in rig.records()],
            begun=rig.ledger.begun(),
            ended=rig.ledger.ended(),
            kills=faults,
            slots=SLOTS,
            recoveries=[],
            respawns=[],
            complaints=self.complaints(),
        )

    def close(self) -> None:
        for process in self._producers:
            process.kill()
            process.communicate()


def all_problems(rig: ServerRig, story: Story) -> list[str]:
    """Return the problems of jobs, of keys and of the tables."""
    found = problems(story) + out_of_order(rig)
    return found + rig.ask(lambda engine: engine.validate())


def out_of_order(rig: ServerRig) -> list[str]:
    """Return the jobs that started before the previous job of their key had ended."""
    begins: dict[str, float] = {}
    ends: dict[str, float] = {}
    for entry in rig.ledger.read():
        if "-key" in entry.job:
            (begins if entry.what == "begin" else ends).setdefault(entry.job, entry.seconds)
    by_key: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for job in begins:
        name, number, key = job.split("-")
        by_key[name, key].append(f"{int(number):09} {job}")
    found: list[str] = []
    for numbered in by_key.values():
        jobs = [one.split()[1] for one in sorted(numbered)]
        found += [
            f"{after} began before {before} had ended"
            for before, after in itertools.pairwise(jobs)
            if begins[after] < ends.get(before, float("inf"))
        ]
    return found
