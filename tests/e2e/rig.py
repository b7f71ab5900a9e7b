"""Real daemons in processes, and helpers to check what they did."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from holdfast.engines.client.engine import ClientEngine
from holdfast.engines.contract import Engine
from holdfast.engines.journal.inspection import all_jobs, read_directory
from holdfast.engines.journal.wal.disk import LocalDisk
from holdfast.engines.socket_path import socket_path
from holdfast.model.job import Job, NewJob, State

from .ledger import VARIABLE, Ledger

HERE = Path(__file__).parent
HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
APP = str(HERE / "jobs.py")
POISON = str(HERE / "poison.py")
PATIENCE_SECONDS = 30.0
"""The limit for waits that are short on an idle machine."""

T = TypeVar("T")


def until(condition: Callable[[], T], what: str, seconds: float = PATIENCE_SECONDS) -> T:
    """Wait until the condition returns a true value, and return it; fail after ``seconds``."""
    give_up = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < give_up, f"not within {seconds} s: {what}"
        time.sleep(0.005)
    return found


class Daemon:
    """One started process with its output in files."""

    def __init__(self, command: Sequence[str], directory: Path, env: dict[str, str]) -> None:
        self.started_at = time.monotonic()
        number = len(list(directory.glob("*.out")))
        self._out = directory / f"{number}.out"
        self._err = directory / f"{number}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                list(command), stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=env
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def output(self) -> str:
        return self._out.read_text()

    @property
    def errors(self) -> str:
        return self._err.read_text()

    def ready(self) -> "Daemon":
        """Wait until it prints that its workers are ready."""
        until(lambda: "workers:" in self.output or self.gone(), "the daemon is up")
        assert not self.gone(), self.errors
        return self

    def gone(self) -> bool:
        return self.process.poll() is not None

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill it with SIGKILL and wait until it is gone."""
        self.process.kill()
        self.process.wait()

    def exit_code(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Wait until it exits; return the exit code."""
        return self.process.wait(seconds)

    def stop(self) -> None:
        """Stop it with SIGTERM; it must exit with 0."""
        self.signal(signal.SIGTERM)
        code = self.exit_code()
        assert code == 0, f"exit code {code}: {self.errors}"


class Rig:
    """A store in the directory of a test, and all processes started for it."""

    def __init__(self, directory: Path, byte_code: Path | None = None) -> None:
        self.directory = directory
        self.store = directory / "s"
        self.ledger = Ledger(directory / "ledger")
        self.gate = directory / "gate"
        self.env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("HOLDFAST_", "OUTBOX_"))
        } | {VARIABLE: str(self.ledger.path), "HOLDFAST_STORE": str(self.store)}
        if byte_code is not None:
            # As installed: compiling every module at each start would distort the times.
            self.env["PYTHONPYCACHEPREFIX"] = str(byte_code)
            self.env.pop("PYTHONDONTWRITEBYTECODE", None)
        self._started: list[Daemon] = []

    def run(
        self,
        *flags: str,
        app: str | None = APP,
        command: Sequence[str] = (HOLDFAST,),
        **settings: object,
    ) -> Daemon:
        """Start ``holdfast run``; pass settings without a flag in the environment."""
        env = self.env | {
            f"HOLDFAST_{name.upper()}": str(value) for name, value in settings.items()
        }
        words = [*command, "run", *([app] if app else []), "--metrics-port", "off", *flags]
        return self.start(words, env)

    def start(self, command: Sequence[str], env: dict[str, str] | None = None) -> Daemon:
        """Start any process."""
        daemon = Daemon(command, self.directory, env or self.env)
        self._started.append(daemon)
        return daemon

    def command(self, *words: str, seconds: float = 30.0) -> subprocess.CompletedProcess[str]:
        """Run a ``holdfast`` command and wait for it."""
        return subprocess.run(
            [HOLDFAST, *words],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def close(self) -> None:
        """Kill all processes that still run."""
        for daemon in self._started:
            with contextlib.suppress(ProcessLookupError):
                daemon.signal(signal.SIGCONT)
            daemon.kill()

    # --- the store, through its owner ----------------------------------------------------------

    def ask(self, question: Callable[[Engine], Awaitable[T]]) -> T:
        """Call the engine through the store's owner; wait for an owner that is starting."""

        async def asking() -> T:
            engine = ClientEngine(socket_path(str(self.store)), patience_seconds=PATIENCE_SECONDS)
            try:
                return await question(engine)
            finally:
                await engine.close()

        return asyncio.run(asking())

    def enqueue(self, task: str, ids: Iterable[str], **fields: object) -> list[str]:
        """Enqueue one job for each id, with three attempts unless they say otherwise."""
        make: Callable[..., NewJob] = NewJob
        fields = {"max_attempts": 3, **fields}
        jobs = [make(task=task, id=job_id, **fields) for job_id in ids]
        return [receipt.id for receipt in self.ask(lambda engine: engine.enqueue(jobs))]

    def jobs(self, ids: Sequence[str]) -> dict[str, Job]:
        """Return these jobs as the owner has them."""
        found = self.ask(lambda engine: engine.get(ids))
        return {job.id: job for job in found if job is not None}

    def all_in(self, ids: Sequence[str], *states: State) -> bool:
        """Whether all of these jobs are in one of these states."""
        found = self.jobs(ids)
        return all(job_id in found and found[job_id].state in states for job_id in ids)

    def wait_for(self, ids: Sequence[str], *states: State, seconds: float = 60.0) -> None:
        """Wait until all of these jobs are in one of these states."""
        give_up = time.monotonic() + seconds
        while not self.all_in(ids, *states):
            if time.monotonic() >= give_up:
                now = {key: job.state.value for key, job in self.jobs(ids).items()}
                others = {key: state for key, state in now.items() if state not in states}
                raise AssertionError(f"after {seconds} s still not {states}: {others}")
            time.sleep(0.02)

    # --- the store without an owner ------------------------------------------------------------

    def left(self) -> dict[str, Job]:
        """Return every job that is in the store."""
        with read_directory(LocalDisk(str(self.store))) as (state, history):
            return {job.id: job for job in all_jobs(state, history)}

    def records(self) -> list[dict[str, object]]:
        """Return every record of the log, as ``journal dump --json`` prints them."""
        done = self.command("journal", "dump", "--json", seconds=60.0)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


def numbered(prefix: str, count: int) -> list[str]:
    """Return ids."""
    return [f"{prefix}-{number}" for number in range(count)]


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    return _stat(pid)[:1] not in ([], ["Z"])


def parent(pid: int) -> int:
    """Return the pid of the parent process."""
    return int(_stat(pid)[1])


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
