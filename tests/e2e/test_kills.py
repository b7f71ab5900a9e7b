"""The daemon is killed at random moments, again and again, under producers that never stop."""

import json
import math
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from holdfast.model.job import State

from .audit import Story, problems
from .ledger import Entry
from .rig import HERE, HOLDFAST, Daemon, Rig, until

KILLS = int(os.environ.get("HOLDFAST_TEST_KILLS", "15"))
KILLS_PER_STORE = 30
JOBS_PER_KILL = 200
PRODUCERS = 4
SLOTS = 8
URGENT = "-urgent"
HOPELESS_SECONDS = 5.0
USUAL_START_SECONDS = 0.7
COMMAND_JOBS = 24
"""How many jobs a run of ``holdfast enqueue`` brings."""


class Producers:
    """Processes with applications of their own, and now and then a command."""

    def __init__(self, rig: Rig) -> None:
        self.owed = 0
        self._rig = rig
        self._files: dict[str, list[str]] = {}
        self._commands: list[tuple[str, subprocess.Popen[str]]] = []
        self._processes: list[subprocess.Popen[str]] = []
        for name in (f"p{number}" for number in range(PRODUCERS)):
            command = [sys.executable, str(HERE / "producer.py"), name, str(self._account(name))]
            process = subprocess.Popen(
                command, env=rig.env, stdin=subprocess.PIPE, text=True, bufsize=1
            )
            self._processes.append(process)

    def more(self, count: int) -> None:
        """Have this many jobs more enqueued, of those that are owed."""
        self.owed -= count
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{count // PRODUCERS}\n")

    def command(self) -> None:
        """Start ``holdfast enqueue -f``."""
        self.owed -= COMMAND_JOBS
        name = f"c{len(self._commands)}"
        ids = [f"{name}-{number}" for number in range(COMMAND_JOBS)]
        jobs = [{"id": i, "task": "quick", "payload": {"seconds": 0.002}} for i in ids]
        path = self._rig.directory / f"{name}.json"
        path.write_text(json.dumps(jobs))
        self._files[name] = ids
        process = subprocess.Popen(
            [HOLDFAST, "enqueue", "-f", str(path)],
            env=self._rig.env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._commands.append((name, process))

    def finish(self) -> tuple[list[str], list[str]]:
        """Let them come to their end; return what was acknowledged, and what else was said."""
        acknowledged: list[str] = []
        complaints: list[str] = []
        for process in self._processes:
            process.communicate(timeout=60)
            assert process.returncode == 0
        for path in self._rig.directory.glob("*.account"):
            for line in path.read_text().splitlines():
                what, _, rest = line.partition(" ")
                (acknowledged if what == "acknowledged" else complaints).append(rest)
        for name, command in self._commands:
            said, _ = command.communicate(timeout=60)
            if command.returncode == 0:
                assert said == f"{COMMAND_JOBS} jobs enqueued\n"
                acknowledged += self._files[name]
            else:
                complaints.append(f"exit code {command.returncode}: {said}")
        return acknowledged, complaints

    def close(self) -> None:
        for process in [*self._processes, *(process for _name, process in self._commands)]:
            process.kill()
            process.wait()

    def _account(self, name: str) -> Path:
        return self._rig.directory / f"{name}.account"


class Life:
    """Daemons, one after another, on one store; and what a kill interrupted."""

    def __init__(self, rig: Rig, rng: random.Random | None, command: Sequence[str]) -> None:
        """Take where, when (None is whenever it is sure to hurt), and what to run."""
        self.recoveries: list[float] = []
        self.respawns: list[float] = []
        self.figures: tuple[list[float], list[float]] = ([], [])
        """Both as they were measured, while the two above allow for a busy machine."""
        self.kills = 0
        self._rig = rig
        self._rng = rng or random.Random()
        self._surely = rng is None
        self._lived = False
        self._command = command
        self._interrupted: set[str] = set()
        self._daemon: Daemon | None = None

    def start(self) -> None:
        self._daemon = self._rig.run("-w", str(SLOTS), command=self._command)

    def kill(self, recovered: Callable[[], None]) -> None:
        """Kill it at some moment: while it starts, just after, or in the midst of work."""
        daemon = self._daemon
        assert daemon is not None
        if self._surely:
            self._see_recovery(daemon)
            recovered()
            until(self._unfinished, "there is something to interrupt")
        elif self._lived and self._rng.random() < 0.15:
            # Not twice in a row: clients wait for an owner for five seconds.
            self._lived = False
            moment = daemon.started_at + self._rng.uniform(0.0, 0.6)
            until(lambda: time.monotonic() >= moment, "a moment in its start")
        else:
            self._lived = True
            self._see_recovery(daemon)
            recovered()
            moment = time.monotonic() + self._rng.uniform(0.0, 0.5)
            until(lambda: time.monotonic() >= moment, "a moment of its life")
        assert not daemon.gone(), daemon.errors
        daemon.kill()
        self.kills += 1
        self._interrupted = self._unfinished()

    def _unfinished(self) -> set[str]:
        """Return what is under way of those first in line: the others wait their turn again."""
        begun, ended = self._rig.ledger.begun(), self._rig.ledger.ended()
        return {job for job in begun if not ended[job] and job.endswith(URGENT)}

    def _see_recovery(self, daemon: Daemon) -> None:
        """Wait until everything that was interrupted runs again, and note how long it took."""
        until(lambda: "holdfast started" in daemon.output or daemon.gone(), "it says so")
        said_at = time.monotonic()
        # A machine that is busy with other things is slow in all things, also in starting.
        slowness = min(3.0, max(1.0, (said_at - daemon.started_at) / USUAL_START_SECONDS))
        again: dict[str, Entry] = {}

        def all_again() -> bool:
            for entry in self._rig.ledger.read():
                if entry.what == "begin" and entry.seconds >= daemon.started_at:
                    again.setdefault(entry.job, entry)
            return self._interrupted <= again.keys() or daemon.gone()

        give_up = said_at + HOPELESS_SECONDS
        until(lambda: all_again() or time.monotonic() > give_up, "what was interrupted runs again")
        self.recoveries += [math.inf] * len(self._interrupted - again.keys())
        for entry in (again[job] for job in self._interrupted & again.keys()):
            seconds = max(0.0, entry.seconds - said_at)
            in_child = entry.pid != daemon.pid
            self.figures[in_child].append(seconds)
            (self.respawns if in_child else self.recoveries).append(seconds / slowness)

    def end(self) -> None:
        assert self._daemon is not None
        self._daemon.stop()


def story(
    rig: Rig, rng: random.Random | None, kills: int, jobs_per_kill: int, command: Sequence[str]
) -> Story:
    """Live through this many kills, come to rest, and return what the books say."""
    producers = Producers(rig)
    life = Life(rig, rng, command)
    try:
        for cycle in range(kills):
            life.start()
            producers.owed += jobs_per_kill
            producers.more(40)
            if cycle % 3 == 1 and rng is not None:
                producers.command()  # it may find no owner, and then mend what a kill has left
            life.kill(recovered=lambda: producers.more(producers.owed))
        life.start()
        producers.more(producers.owed)
        acknowledged, complaints = producers.finish()
        _rest(rig)
        life.end()
    finally:
        producers.close()
    return Story(
        acknowledged=acknowledged,
        states={job.id: job.state for job in rig.left().values()},
        records=[(str(record["type"]), str(record["job_id"])) for record in rig.records()],
        begun=rig.ledger.begun(),
        ended=rig.ledger.ended(),
        kills=life.kills,
        slots=SLOTS,
        recoveries=life.recoveries,
        respawns=life.respawns,
        figures=life.figures,
        complaints=complaints,
    )


def _rest(rig: Rig) -> None:
    """Wait until nothing is left to do."""

    def at_rest() -> bool:
        counts = rig.ask(lambda engine: engine.counts()).values()
        return sum(count.pending + count.in_flight for count in counts) == 0

    until(at_rest, "everything is finished", seconds=60.0)


def _spread(found: Sequence[float]) -> str:
    ranked = sorted(found)
    if not ranked:
        return "none"
    return f"{len(ranked)}, median {ranked[len(ranked) // 2]:.3f} s, worst {ranked[-1]:.3f} s"


def _seeded() -> random.Random:
    seed = int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    return random.Random(seed)


@pytest.mark.timeout(120 + 6 * KILLS)
def test_random_kills_lose_nothing_record_nothing_twice_and_are_over_in_a_second(
    tmp_path, byte_code
):
    rng = _seeded()
    for first in range(0, KILLS, KILLS_PER_STORE):
        directory = tmp_path / str(first)
        directory.mkdir()
        rig = Rig(directory, byte_code)
        try:
            kills = min(KILLS_PER_STORE, KILLS - first)
            told = story(rig, rng, kills, JOBS_PER_KILL, (HOLDFAST,))
            verified = rig.command("journal", "verify")
        finally:
            rig.close()
        jobs, executions = len(told.states), told.begun.total()
        figures = (
            f"{told.kills} kills, {jobs} jobs, {executions} executions; interrupted and run again: "
            f"{_spread(told.figures[0])}; in a child process: {_spread(told.figures[1])}; "
            f"{told.complaints}"
        )
        print(figures)  # noqa: T201 - the figures are the point
        assert problems(told) == [], figures
        # On a slow machine the owner may be away for longer than clients and commands wait.
        others = [said for said in told.complaints if "NoOwner" not in said]
        assert not [said for said in others if not said.startswith("exit code 5")], figures
        assert jobs >= kills * (JOBS_PER_KILL - COMMAND_JOBS)
        assert verified.returncode == 0, verified.stdout


@pytest.mark.parametrize(
    ("promise", "problem"),
    [("answer_early", "acknowledged jobs lost"), ("keep_leases", "ran again too late")],
)
def test_a_daemon_that_breaks_a_promise_is_found_out(rig, promise, problem):
    unsafe = (sys.executable, str(HERE / "unsafe.py"), promise)
    rig.env["HOLDFAST_LEASE_SECONDS"] = "6"
    told = story(rig, None, 2, 120, unsafe)
    found = problems(told)
    assert [said for said in found if problem in said], found


def _good() -> Story:
    ids = [f"j{number}" for number in range(10)]
    return Story(
        acknowledged=ids,
        states=dict.fromkeys(ids, State.COMPLETED),
        records=[(kind, job) for job in ids for kind in ("ENQUEUE", "DISPATCH", "ACK")],
        begun=Counter(ids),
        ended=Counter(ids),
        kills=1,
        slots=2,
        recoveries=[0.5],
        respawns=[1.5],
    )


def test_a_good_story_has_no_problems():
    assert problems(_good()) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"acknowledged": ["gone"]}, "1 acknowledged jobs lost: ['gone']"),
        ({"states": {"j1": State.PENDING}}, "1 jobs not completed: ['j1 is pending']"),
        ({"records": [*_good().records, ("DEAD", "j1")]}, "1 jobs dead: ['j1']"),
        ({"records": [*_good().records, ("ACK", "j1")]}, "1 jobs recorded twice: ['j1']"),
        ({"records": _good().records[:-1]}, "1 completions without a record: ['j9']"),
        ({"ended": Counter()}, "10 completions without an execution"),
        ({"begun": Counter(j1=13)}, "13 executions, but at most 12 are expected"),
        ({"recoveries": [0.2, 1.5]}, "1 interrupted jobs that ran again too late: ['1.50 s']"),
        ({"respawns": [0.2, 3.5]}, "1 interrupted jobs whose child came too late: ['3.50 s']"),
        ({"complaints": ["exit code 5: … is owned by process 7"]}, "1 complaints about a lock"),
    ],
)
def test_each_kind_of_damage_is_noticed(change, problem):
    told = _good()
    for field, value in change.items():
        setattr(told, field, value)
    assert any(said.startswith(problem) for said in problems(told)), problems(told)
