"""Writers of events and daemons that apply them, for storms on every store."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from holdfast.engines.contract import Engine
from holdfast.model.job import State
from holdfast.model.search import Filter

from .pages import THREADS
from .rig import HERE, HOLDFAST, Daemon, Rig, until
from .storm_audit import TABLES, Accounts, Found, digests, inspect, problems

PAGES = str(HERE / "pages.py")
DRAIN_SECONDS = 120.0


class Writers:
    """Processes that append, each in several threads."""

    def __init__(self, rig: Rig, processes: int, seed: int, *transactions: str) -> None:
        self._rig = rig
        self._orders = 0
        self._processes = [
            subprocess.Popen(
                [
                    *(sys.executable, str(HERE / "page_writer.py")),
                    *(f"w{number}", str(rig.directory / f"w{number}.account"), str(seed)),
                    *transactions,
                ],
                env=rig.env,
                stdin=subprocess.PIPE,
                text=True,
                bufsize=1,
            )
            for number in range(processes)
        ]

    def more(self, count: int) -> None:
        """Let each thread append this often."""
        self._orders += 1
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{count}\n")

    def said(self, what: str) -> list[str]:
        """Return what they have written down under this word."""
        paths: list[Path] = sorted(self._rig.directory.glob("*.account"))
        lines = (line.split(maxsplit=1) for path in paths for line in path.read_text().splitlines())
        return [rest for word, rest in lines if word == what]

    def idle(self) -> bool:
        """Whether all that was asked for is written."""
        return len(self.said("written")) == self._orders * len(self._processes) * THREADS

    def finish(self) -> Accounts:
        """Let them come to their end; return what they were told."""
        for process in self._processes:
            process.communicate(timeout=DRAIN_SECONDS)
        assert self.said("broken") == []
        return Accounts(stored=self.said("stored"), undone=self.said("undone"))

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()


class Daemons:
    """Daemons that apply the projections; one that has ended is started again, as by systemd."""

    def __init__(self, rig: Rig, count: int, command: Sequence[str] = (HOLDFAST,)) -> None:
        self._rig = rig
        self.command = command
        first = self._start(0)
        up = lambda: "workers:" in first.output or first.gone()
        until(up, "the first daemon is up", DRAIN_SECONDS)  # it may have to compile all modules
        self.running = [first.ready()]
        self.running += [self._start(number) for number in range(1, count)]

    def _start(self, number: int) -> Daemon:
        # By its name it takes over from its earlier life at once, however long leases are.
        name = f"daemon-{number}"
        return self._rig.run("-w", "2", app=PAGES, command=self.command, worker_id=name)

    def kill(self, number: int) -> None:
        """Kill one and start another."""
        self.running[number].kill()
        self.running[number] = self._start(number)

    def supervise(self) -> None:
        """Start those again that have ended: one that finds no server says so and exits."""
        for number, daemon in enumerate(self.running):
            if daemon.gone():
                self.running[number] = self._start(number)

    def stop(self) -> None:
        for daemon in self.running:
            daemon.ready().stop()


def rebuild(rig: Rig, *flags: str) -> None:
    """Rebuild every projection by the command line."""
    for name in TABLES:
        words = ("rebuild", name, "--app", PAGES, "--by", "ops", *flags)
        done = rig.command(*words, seconds=DRAIN_SECONDS)
        assert done.returncode == 0, done.stdout + done.stderr


async def at_rest(engine: Engine) -> bool:
    """Whether all tables exist, no job waits and no rebuild runs.

    Fail if a job is dead, for it holds others.
    """
    for table in TABLES.values():
        if not await engine.read_models.generations(table):
            return False
    counts = (await engine.counts()).values()
    dead = (await engine.find(Filter(states=(State.DEAD,)))).jobs
    assert dead == [], [(job.id, job.losses, job.failure) for job in dead[:5]]
    rebuilds = [state.rebuild for state in (await engine.projections()).values()]
    assert [one for one in rebuilds if one is not None and not one.running] == []
    waiting = sum(one.pending + one.in_flight for one in counts)
    return waiting == 0 and rebuilds == [None] * len(rebuilds)


def rest(rig: Rig, daemons: Daemons) -> None:
    """Wait until all is applied."""

    async def wait(engine: Engine) -> None:
        give_up = time.monotonic() + DRAIN_SECONDS
        while not await at_rest(engine):
            assert time.monotonic() < give_up, await engine.counts()
            daemons.supervise()
            await asyncio.sleep(0.1)

    rig.ask(wait)


def calm(rig: Rig, daemons: Daemons) -> Found:
    """Return what there is when all is applied, with the hashes of another rebuild."""
    rest(rig, daemons)
    found = rig.ask(inspect)
    rebuild(rig)
    rest(rig, daemons)
    return replace(found, digests=rig.ask(digests))


def after_a_kill(rig: Rig, promise: str, table: str, *transactions: str) -> list[str]:
    """Kill a daemon that breaks this promise when it hurts; return what is found at the end.

    It says in the ledger when that is, for each table. The next daemon keeps its promises.
    """
    unsafe = (sys.executable, str(HERE / "unsafe.py"), promise)
    writers = Writers(rig, 1, 1, *transactions)
    try:
        daemons = Daemons(rig, 1, unsafe)
        writers.more(5)
        broken = lambda: [entry for entry in rig.ledger.read() if entry.job == table]
        until(broken, "a promise is broken", DRAIN_SECONDS)
        daemons.command = (HOLDFAST,)
        daemons.kill(0)
        accounts = writers.finish()
        rest(rig, daemons)
        found = problems(rig.ask(inspect), accounts)
        daemons.stop()
    finally:
        writers.close()
        rig.close()
    return found
