"""``holdfast run --api-port``: the API beside the daemon dies, is replaced, and ends with it."""

import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from .rig import Daemon, Rig, until

WHO = ("--by", "ann", "--reason", "a test")


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()


class Beside:
    """A daemon with its API, and a key for it."""

    def __init__(self, rig: Rig, *flags: str) -> None:
        self.rig = rig
        self.daemon: Daemon = rig.run("--api-port", "0", "--log-level", "info", *flags).ready()
        found = re.search(r"API: (https?://\S+)", self.daemon.output)
        assert found is not None, self.daemon.output
        self.at = found[1]
        made = rig.command("keys", "create", "k", "--role", "responder", *WHO)
        self.key = {"authorization": f"Bearer {made.stdout.strip()}"}

    @property
    def pids(self) -> list[int]:
        """Of every process that served the API so far."""
        logged = self.daemon.output + self.daemon.errors
        starts = [line for line in logged.splitlines() if '"api.process_started"' in line]
        return [int(re.findall(r'"pid": (\d+)', line)[0]) for line in starts]

    def enqueue(self, job_id: str) -> None:
        body = {"task": "holdfast.simulate", "id": job_id, "payload": {"duration_ms": 1}}
        made = httpx.post(f"{self.at}/v2/jobs", headers=self.key, json=body, timeout=30)
        assert made.status_code == 201, made.text

    def await_completed(self, job_id: str) -> None:
        def state() -> bool:
            got = httpx.get(f"{self.at}/v2/jobs/{job_id}", headers=self.key, timeout=30)
            return bool(got.json()["data"]["status"] == "completed")

        until(state, f"{job_id} is completed")


def lives(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_jobs_go_on_and_the_api_comes_back_when_it_is_killed(rig):
    beside = Beside(rig)
    beside.enqueue("a")
    beside.await_completed("a")
    (first,) = until(lambda: beside.pids, "it is logged")
    os.kill(first, signal.SIGKILL)
    rig.enqueue("holdfast.simulate", ["b"])
    beside.enqueue("c")  # at the same address: who connects meanwhile waits
    beside.await_completed("b")
    beside.await_completed("c")
    assert len(beside.pids) == 2
    assert httpx.get(f"{beside.at}/health/ready", timeout=30).status_code == 200
    beside.daemon.stop()
    until(lambda: not lives(beside.pids[1]), "it has ended")


def test_it_ends_with_a_daemon_that_is_killed(rig):
    beside = Beside(rig)
    (child,) = until(lambda: beside.pids, "it is logged")
    beside.enqueue("a")
    assert lives(child)
    beside.daemon.kill()
    until(lambda: not lives(child), "it has ended")


def test_a_stop_answers_what_is_in_progress_first(rig):
    beside = Beside(rig)
    port = int(beside.at.rpartition(":")[2])
    body = b'{"task":"later","id":"a"}'
    head = f"POST /v2/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
    head += "content-type: application/json\r\nexpect: 100-continue\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=30) as peer:
        peer.sendall(f"{head}authorization: {beside.key['authorization']}\r\n\r\n".encode())
        assert peer.recv(1_000).startswith(b"HTTP/1.1 100"), "it reads the body"
        beside.daemon.signal(signal.SIGTERM)
        until(lambda: "api.draining" in beside.daemon.errors + beside.daemon.output, "it drains")
        peer.sendall(body)
        assert peer.recv(1_000).startswith(b"HTTP/1.1 201")
    assert beside.daemon.exit_code() == 0


def test_an_open_door_and_a_taken_port_are_refused_at_the_start(rig):
    refused = rig.command("run", "--api-port", "0", "--api-host", "0.0.0.0")  # noqa: S104
    assert refused.returncode == 2
    assert "api_host: 0.0.0.0 can be reached by others, and there is no key yet" in refused.stderr
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = rig.command("run", "--api-port", port, "--metrics-port", "off")
    assert refused.returncode == 2
    assert "api_port: 127.0.0.1 port" in refused.stderr


def test_control_a_child_that_does_not_watch_its_daemon_outlives_it(rig):
    code = "import holdfast.api.child_process as c\n"
    code += "c.exit_with_parent = lambda *_: None\n"
    code += "c.os._exit = lambda _code: None\n"
    directory = rig.directory / "unwatched"
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(code)
    rig.env["PYTHONPATH"] = str(directory)
    beside = Beside(rig)
    (child,) = until(lambda: beside.pids, "it is logged")
    beside.enqueue("a")
    beside.daemon.kill()
    try:
        assert httpx.get(f"{beside.at}/health/live", timeout=30).status_code == 200
    finally:
        os.kill(child, signal.SIGKILL)
