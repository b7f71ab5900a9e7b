"""Settings of a daemon in a process of its own: the old names, HUP, ``config reload|diff``."""

import json
import signal
import socket
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.model.audit import AuditEntry
from holdfast.model.job import State
from tests.e2e.rig import APP, HOLDFAST, Daemon, Rig, numbered, until

from .test_sources import DOCUMENTED


@pytest.fixture
def rig(tmp_path: Path, byte_code: Path) -> Iterator[Rig]:
    made = Rig(tmp_path, byte_code)
    yield made
    made.close()


class Governed:
    """A daemon with a settings file."""

    def __init__(self, rig: Rig, text: str, **settings: object) -> None:
        self.rig = rig
        self.file = rig.directory / "settings.yaml"
        self.file.write_text(text)
        start: Callable[..., Daemon] = rig.run
        self.daemon = start(command=(HOLDFAST, "--config", str(self.file)), **settings).ready()

    def config(self, *words: str, code: int = 0) -> str:
        done = self.rig.command("--config", str(self.file), "config", *words)
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    def slots(self) -> dict[str, int]:
        done = self.rig.command("status", "--json")
        found: dict[str, int] = json.loads(done.stdout)["slots"]
        return found


def audited(rig: Rig) -> list[AuditEntry]:
    """Return every entry of the audit."""
    return [record.entry for record in rig.ask(lambda engine: engine.audited())]


def free_port(wished: int) -> int:
    """Return this port, or another one if somebody has it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wished))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_the_documented_example_runs_as_a_whole(rig: Rig) -> None:
    port = free_port(int(DOCUMENTED["OUTBOX_METRICS_PORT"]))
    old = DOCUMENTED | {"OUTBOX_METRICS_PORT": str(port)}
    daemon = rig.start([HOLDFAST, "run", APP], rig.env | old).ready()
    assert f"metrics: http://127.0.0.1:{port}/metrics\n" in daemon.output
    [job_id] = rig.enqueue("gated", ["a"], payload={"gate": str(rig.gate)})
    rig.wait_for([job_id], State.IN_FLIGHT)
    job = rig.jobs([job_id])[job_id]
    assert job.worker == "own/c1"
    assert (job.lease_until_us - job.claimed_at_us) == 30_000_000
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert b"queue_active_claims" in answer.read()
    done = rig.command("config", "diff", "--json")
    running = {one["field"]: one["before"] for one in json.loads(done.stdout)["from_daemon"]}
    assert running == {
        "worker_id": "c1",
        "metrics_port": str(port),
        "batch_size": "50",
        "poll_interval_seconds": "200ms",
        "max_attempts": "10",
        "base_backoff_seconds": "500ms",
        "max_backoff_seconds": "30s",
        "max_processing_seconds": "10m",
        "task_timeout_seconds": "9m",  # it was not set: it follows
        "reclaim_interval_seconds": "5s",
        "run_seconds": "2s",
    }
    until(lambda: "stopping: 1 running" in daemon.output, "it stops by itself after two seconds")
    rig.gate.touch()
    assert daemon.exit_code() == 0, daemon.errors
    assert daemon.output.endswith("holdfast stopped\n")


def test_config_reload_says_what_changed_and_what_needs_a_restart(rig: Rig) -> None:
    governed = Governed(rig, "worker_count: 2\nflags: {fast: on}\n", log_level="info")
    ids = rig.enqueue("gated", numbered("held", 6), payload={"gate": str(rig.gate)})
    until(lambda: rig.ledger.begun().total() == 2, "two run")
    assert rig.ask(lambda engine: engine.flags()) == {"fast": True}
    governed.file.write_text(
        "worker_count: 4\nmetrics_port: 9191\nremember_seconds: 2h\ndrain_seconds: 1s\n"
        "log_format: console\nlog_level: debug\nflags: {fast: off}\n"
    )
    found = json.loads(governed.config("diff", "--json"))
    assert found["daemon_process"] == governed.daemon.pid
    assert {one["field"]: one["needs_restart"] for one in found["from_daemon"]} == {
        "worker_count": False,
        "remember_seconds": True,
        "drain_seconds": False,
        "log_level": True,  # its environment says so, and is its own
        "log_format": False,
        "flags": False,
    }, "but not the port: it was told by a flag"
    lines = governed.config("diff").splitlines()
    assert f"the daemon (process {governed.daemon.pid}) uses other settings:" in lines
    file = f"(file {governed.file})"
    assert f"  remember_seconds: 1d (default) -> 2h {file}: needs a restart" in lines
    assert (
        f"  drain_seconds: 30s (default) -> 1s {file}: holdfast config reload applies it"
    ) in lines
    asked = ("reload", "--by", "ann", "--reason", "rush hour")
    assert governed.config(*asked).splitlines() == [
        f"worker_count: 2 -> 4 {file}",
        f"drain_seconds: 30s -> 1s {file}",
        f"log_format: auto -> console {file}",
        f'flags: {{"fast":true}} -> {{"fast":false}} {file}',
        f"needs a restart: remember_seconds: 1d -> 2h {file}",
    ]
    until(lambda: rig.ledger.begun().total() == 4, "four run")
    assert rig.ask(lambda engine: engine.flags()) == {"fast": False}
    *others, reload = audited(rig)
    [asked_for] = [entry for entry in others if entry.action == "worker.reload"]
    assert (asked_for.user_id, asked_for.reason) == ("ann", "rush hour")
    switched = [entry for entry in others if entry is not asked_for]
    assert {entry.reason for entry in switched} == {f"file {governed.file}"}
    assert (reload.action, reload.user_id, reload.reason) == ("config.reload", "ann", "rush hour")
    changed = ["worker_count", "drain_seconds", "log_format", "flags"]
    assert json.loads(reload.changes) == {"changed": changed}
    until(lambda: "daemon.reloaded" in governed.daemon.errors, "it is logged")
    assert not governed.daemon.errors.splitlines()[-1].startswith("{"), "no longer as JSON"
    before = governed.daemon.errors
    governed.file.write_text("worker_count: 7\nsync: perhaps\n")
    said = governed.config("reload", code=2)
    assert "sync: 'perhaps' is not one of" in said
    assert governed.slots() == {"": 4}
    governed.file.write_text("worker_count: 7\n")
    found = json.loads(governed.config("reload", "--json"))
    assert [change["field"] for change in found["changed"]] == changed
    assert governed.slots() == {"": 7}
    assert len(governed.daemon.errors) > len(before)
    assert audited(rig)[-1].reason == "config reload"
    rig.gate.touch()
    rig.wait_for(ids, State.COMPLETED)
    governed.daemon.stop()


def test_a_daemon_refuses_what_only_it_can_see_is_wrong(rig: Rig) -> None:
    """The daemon's environment is its own: what it says is what counts."""
    governed = Governed(rig, "worker_count: 2\n", max_processing_seconds=600)
    governed.file.write_text("worker_count: 3\nlease_seconds: 15m\n")
    said = governed.config("reload", code=2)
    assert said == (
        "holdfast: lease_seconds: 15m is more than max_processing_seconds, which is 10m: a job "
        f"would be reclaimed before its lease ends (file {governed.file})\n"
    )
    assert governed.slots() == {"": 2}
    governed.daemon.stop()


def test_a_hangup_changes_the_slots_of_queues_in_every_process(rig: Rig) -> None:
    governed = Governed(rig, "queues: default:3\nprocesses: 2\n")
    ids = rig.enqueue("gated", numbered("held", 12), payload={"gate": str(rig.gate)})
    until(lambda: rig.ledger.begun().total() == 6, "three run in each")
    governed.file.write_text("queues: default:4\nprocesses: 3\n")
    governed.daemon.signal(signal.SIGHUP)
    until(lambda: rig.ledger.begun().total() == 8, "four run in each")
    assert governed.slots() == {"default": 4}
    (entry,) = audited(rig)
    assert (entry.user_id, entry.reason, entry.changes) == (
        *("settings", "SIGHUP"),
        '{"changed":["queues"]}',
    )
    until(lambda: "daemon.reloaded" in governed.daemon.errors, "it is logged")
    assert '"changed": "queues", "needs_restart": "processes"' in governed.daemon.errors
    governed.file.write_text("queues: other:4\nprocesses: 2\n")
    governed.daemon.signal(signal.SIGHUP)
    until(
        lambda: '"needs_restart": "queues"' in governed.daemon.errors, "other queues are not served"
    )
    assert governed.slots() == {"default": 4}
    rig.gate.touch()
    rig.wait_for(ids, State.COMPLETED)
    governed.daemon.stop()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--default-task", "nothing"), "default_task: no task is named 'nothing'"),
        (("--snapshot-path", "file/s.json"), "snapshot_path: 'file/s.json' cannot be used"),
        (("--metrics-port", "{taken}"), "metrics_port: 127.0.0.1 port {taken} cannot be used"),
    ],
)
def test_what_is_found_wrong_at_the_start_names_field_value_and_origin(
    rig: Rig, flags: tuple[str, str], said: str
) -> None:
    (rig.directory / "file").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = str(server.getsockname()[1])
        words = [flag.format(taken=taken) for flag in flags]
        daemon = rig.start([HOLDFAST, "run", *words])
        assert daemon.exit_code() == 2, daemon.errors
    last = daemon.errors.splitlines()[-1]
    assert last.startswith(f"holdfast: {said.format(taken=taken)}")
    assert last.endswith(f"(flag {flags[0]})")
