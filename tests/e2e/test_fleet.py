"""Two daemons on one server: whoever is killed, every command tells the truth of the other."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.cli.main import main
from tests.engines.postgres.servers import Databases

from .rig import APP, HERE, Daemon, Rig, until

WHY = ("--by", "ops", "--reason", "a machine is gone")
LIMIT_SECONDS = 5.0
"""How long after a kill everything must be true again, and how long a command may take."""
UNANNOUNCED = str(HERE / "unannounced.py")


class Fleet:
    """Daemons of one server, and commands to them."""

    def __init__(self, rig: Rig, store: str, app: str = APP) -> None:
        self.rig = rig
        self.app = app
        self.store = store
        self.daemons: dict[str, Daemon] = {}

    def start(self, worker_id: str, queue: str) -> None:
        flags = ("--worker-id", worker_id, "-w", "2", "--queues", queue)
        self.daemons[worker_id] = self.rig.run(*flags, app=self.app, store=self.store).ready()

    def kill(self, worker_id: str) -> None:
        self.daemons.pop(worker_id).signal(signal.SIGKILL)

    def command(self, *words: str, code: int = 0, limit_seconds: float = LIMIT_SECONDS) -> str:
        """Run a command, which must not take long; return what it printed."""
        began = time.monotonic()
        result = CliRunner().invoke(main, ["--store", self.store, *words])
        took = time.monotonic() - began
        assert result.exit_code == code, (words, result.output)
        assert took < limit_seconds, (words, took)
        return result.output if code else result.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.command(*words, "--json"))

    def daemons_said(self) -> str:
        """Return what ``doctor`` says of daemons; it exits 1: the server's fsync is off."""
        findings = json.loads(self.command("doctor", "--json", code=1))["findings"]
        said: str = next(one["said"] for one in findings if one["check"] == "daemon")
        return said

    def live(self) -> dict[str, int]:
        """Return the slots of every worker that is listed as live."""
        found = self.json("workers", "list")["workers"]
        return {one["worker"]: one["slots"] for one in found if one["name"]}

    def tells_the_truth(self, slots: int) -> None:
        """Check every command that speaks of daemons, or to them."""
        names = set(self.daemons)
        until(lambda: set(self.live()) == names, f"{names} are listed", LIMIT_SECONDS)
        status = self.json("status")
        assert sum(one["slots"] for one in status["processes"].values()) == 2 * len(names)
        top = self.json("top", "--once")
        assert (top["running_daemon"], top["slots"]) == (True, 2 * len(names))
        said = self.daemons_said()
        assert said.startswith(f"{len(names)} daemon")
        assert {name for name in ("a", "b") if f"{name} on " in said} == names
        for name in names:
            queue = "default" if name == "a" else "other"
            resize = ("resize", str(slots), "--queue", queue, "--worker", name)
            self.command("workers", *resize, *WHY)
            assert self.live()[name] == slots
            self.command("workers", "resize", "2", "--queue", queue, *WHY)
            self.command("workers", "drain", "--worker", name, *WHY)
            [one] = [one for one in self.json("workers", "list")["workers"] if one["name"] == name]
            assert one["draining"]
        self.command("workers", "resume", *WHY)
        self.command("workers", "log-level", "debug", *WHY)
        reports = self.command("config", "reload")
        assert reports.count("log_level: debug -> info") == len(names)

    def in_flight(self, job_id: str, other_than: str = "") -> dict[str, Any]:
        """Return the job if it is in flight, under another token than this; otherwise nothing."""
        found: dict[str, Any] = self.json("jobs", "show", job_id)
        claimed = found["status"] == "in_flight" and found["token"] != other_than
        return found if claimed else {}


@pytest.fixture
def store(server18: Databases) -> Iterator[str]:
    with server18.fresh() as database:
        url = server18.store(database)
        assert CliRunner().invoke(main, ["--store", url, "migrate"]).exit_code == 0
        yield url


def story(fleet: Fleet, gate: Path) -> None:
    """Kill each of two daemons in turn."""
    fleet.start("a", "default:2")
    fleet.start("b", "other:2")
    fleet.tells_the_truth(3)
    job = json.dumps({"id": "held", "task": "gated", "payload": {"gate": str(gate)}})
    fleet.rig.directory.joinpath("job.json").write_text(job)
    fleet.command("enqueue", "-f", str(fleet.rig.directory / "job.json"))
    first = until(lambda: fleet.in_flight("held"), "a has claimed it")
    assert first["worker"] == "a"
    fleet.kill("a")  # the one with the socket
    fleet.tells_the_truth(4)
    began = time.monotonic()
    fleet.start("a", "default:2")
    again = until(
        lambda: fleet.in_flight("held", first["token"]), "the lease of its earlier life has ended"
    )
    assert (again["worker"], again["attempt"]) == ("a", 2)
    assert time.monotonic() - began < 20, "the lease lasts for 30 s"
    fleet.kill("b")
    fleet.tells_the_truth(5)
    gate.touch()


def test_every_command_tells_the_truth_whichever_daemon_is_killed(rig: Rig, store: str) -> None:
    fleet = Fleet(rig, store)
    story(fleet, rig.gate)
    fleet.daemons["a"].stop()
    assert fleet.live() == {}, "a clean stop leaves the registry at once"
    assert "none is live" in fleet.daemons_said()
    entries = fleet.json("audit", "list")
    assert {one["user_id"] for one in entries if one["action"] == "worker.drain"} == {"ops"}


def test_control_without_announcements_the_story_fails(rig: Rig, store: str) -> None:
    with pytest.raises(AssertionError, match="are listed"):
        story(Fleet(rig, store, UNANNOUNCED), rig.gate)


def test_a_daemon_that_does_not_answer_is_named_and_a_second_one_of_its_name_refused(
    rig: Rig, store: str
) -> None:
    fleet = Fleet(rig, store)
    fleet.start("a", "default:2")
    resize = ("workers", "resize", "7", "--queue", "default", *WHY)
    fleet.daemons["a"].signal(signal.SIGSTOP)
    said = fleet.command(*resize, code=5, limit_seconds=3 * LIMIT_SECONDS)
    assert f"a (process {fleet.daemons['a'].pid} on " in said
    assert "did not answer within 5 s, and does not get it later" in said
    assert "no daemon runs on this store" in fleet.command(*resize, code=5), "it is not live"
    fleet.daemons["a"].signal(signal.SIGCONT)
    assert until(fleet.live, "it is back", LIMIT_SECONDS) == {"a": 2}
    second = rig.run("--worker-id", "a", store=store)
    assert second.exit_code() == 4
    pid = fleet.daemons["a"].pid
    assert f"worker_id 'a' is in use: process {pid} on " in second.errors
    assert set(fleet.live()) == {"a"}, "the first one goes on"
    fleet.daemons["a"].stop()
