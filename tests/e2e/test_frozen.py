"""A daemon that listens and does not answer: commands end soon, and say which process it is."""

from __future__ import annotations

import signal
import subprocess
import time

import pytest
from psycopg.conninfo import conninfo_to_dict

from .rig import HOLDFAST, Rig, until

MOST_SECONDS = 25.0
"""Five seconds of patience, and the start of a process on a busy machine. It was 60 and more."""
COMMANDS = {
    "status": ("status",),
    "show": ("jobs", "show", "one"),
    "list": ("jobs", "list"),
    "queues": ("queues", "list"),
    "dead": ("dead", "list"),
    "audit": ("audit", "list"),
    "config": ("config", "diff"),
    "pause": ("queues", "pause", "default", "--reason", "why"),
}


def together(rig: Rig, *commands: tuple[str, ...]) -> list[subprocess.CompletedProcess[str]]:
    """Run these commands at the same time; return what came of each."""
    started = [
        subprocess.Popen(
            [HOLDFAST, *words],
            env=rig.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for words in commands
    ]
    try:
        return [
            subprocess.CompletedProcess(
                process.args, process.wait(MOST_SECONDS), *process.communicate()
            )
            for process in started
        ]
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_every_command_names_the_process_that_is_stopped_and_what_to_do(rig):
    daemon = rig.run().ready()
    rig.enqueue("quick", ["one"])
    daemon.signal(signal.SIGSTOP)
    for done in together(rig, *COMMANDS.values()):
        assert done.returncode == 5, (done.args, done.stdout, done.stderr)
        assert done.stderr == (
            f"holdfast: process {daemon.pid}, which owns {rig.store}, is stopped: "
            f"`kill -CONT {daemon.pid}` lets it continue\n"
        )
    (checked,) = together(rig, ("doctor",))
    assert f"wrong    daemon: process {daemon.pid}, which owns" in checked.stdout
    daemon.signal(signal.SIGCONT)
    shown, counted = together(rig, COMMANDS["show"], COMMANDS["status"])
    assert (shown.returncode, counted.returncode) == (0, 0)
    daemon.stop()


def test_a_blocked_event_loop_is_named_as_such(rig, monkeypatch):
    gate = rig.gate
    (rig.directory / "blocking.py").write_text(
        "import pathlib, time\nfrom holdfast import Holdfast\napp = Holdfast()\n"
        "@app.task(timeout=600)\nasync def block() -> None:\n"
        f"    while not pathlib.Path({str(gate)!r}).exists():\n        time.sleep(0.01)\n"
    )
    daemon = rig.run(app=str(rig.directory / "blocking.py")).ready()
    rig.enqueue("block", ["one"])
    until(lambda: "worker.loop_blocked" in daemon.errors, "the loop is blocked")
    began = time.monotonic()
    (done,) = together(rig, COMMANDS["status"])
    assert time.monotonic() - began >= 5.0
    assert done.returncode == 5
    assert f"process {daemon.pid}, which owns {rig.store}, did not answer within 5 s" in done.stderr
    assert "worker.loop_blocked" in done.stderr
    assert f"`kill -9 {daemon.pid}`" in done.stderr
    gate.touch()
    daemon.stop()


@pytest.fixture
def server_rig(rig: Rig, server18):
    with server18.fresh() as place:
        parts = conninfo_to_dict(place)
        where = f"{parts['user']}@/{parts['dbname']}?host={parts['host']}"
        rig.env["HOLDFAST_STORE"] = f"postgresql://{where}"
        yield rig


def test_on_a_server_the_database_is_read_instead(server_rig):
    rig = server_rig
    daemon = rig.run(app=None).ready()
    job = '{"id": "one", "run_at": "2100-01-01T00:00:00Z"}'
    subprocess.run([HOLDFAST, "enqueue"], env=rig.env, input=job, text=True, check=True)
    listed = lambda: rig.command("workers", "list", "--json").stdout
    until(lambda: str(daemon.pid) in listed(), "it is in the registry")
    daemon.signal(signal.SIGSTOP)
    status, show, pause, resize = together(
        rig,
        COMMANDS["status"],
        COMMANDS["show"],
        COMMANDS["pause"],
        ("workers", "resize", "3", "--reason", "why"),
    )
    silent = f"holdfast: process {daemon.pid}, the daemon of "
    for done, printed in (
        (status, "pending:   1"),
        (show, "Its time is 2100-01-01 00:00:00 UTC"),
        (pause, "default: paused"),
    ):
        assert done.returncode == 0, done.stderr
        assert printed in done.stdout
        if done is not show:
            assert done.stderr == ""  # it asks no daemon
            continue
        assert done.stderr.startswith(silent)
        assert done.stderr.endswith("lets it continue. This goes to the server itself\n")
    assert resize.returncode == 5
    assert f"(process {daemon.pid} on " in resize.stderr
    assert "did not answer within 5 s, and does not get it later" in resize.stderr
    daemon.signal(signal.SIGCONT)
    daemon.stop()
