"""A neighbour without any rights does its worst to the metrics port of a daemon with few files."""

import http.client
import resource
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from bench.neighbours import ATTACKS

from .rig import APP, HOLDFAST, Daemon, Rig, until

ROOT = Path(__file__).parents[2]
FILES = 128
WITHOUT_LIMITS = """
from msgspec.structs import replace
from holdfast.daemon import daemon
from holdfast.cli.main import main
none = 1_000_000_000
daemon.PROBE_LIMITS = replace(
    daemon.PROBE_LIMITS, max_connections=none, cpu_share=None, max_head_bytes=none,
    max_headers=none, max_body_bytes=none, max_pipelined=none, idle_seconds=1e9,
    head_seconds=1e9, body_seconds=1e9, write_seconds=1e9, buffer_bytes=1 << 20,
)
main()
"""
MOST_MEMORY_BYTES = 64 << 20
KEPT_BYTES = 16 << 20
"""What eight connections cannot have: each may send 16 KiB before it is answered or refused."""
TAKE_FILES = ("idle", "half_heads", "slow_bodies")
TAKE_MEMORY = ("endless_heads", "chunks", "pipelines")
TAKE_TIME = ("connects",)
"""Of the processor alone: ``http/test_limits.py`` counts it, and has the control."""


def started(rig: Rig, *command: str) -> tuple[Daemon, int]:
    """Start a daemon that may open few files; return it, and the port of its metrics."""
    limited = ("sh", "-c", f'ulimit -n {FILES}; exec "$@"', "sh", *command)
    words = [*limited, "run", APP, "--metrics-port", "0"]
    daemon = rig.start(words, rig.env | {"HOLDFAST_MAX_ATTEMPTS": "1"}).ready()
    line = next(line for line in daemon.output.splitlines() if line.startswith("metrics:"))
    return daemon, int(line.rpartition(":")[2].partition("/")[0])


def health(port: int) -> int:
    """Ask for health; a peer that is pushed out asks again."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health/live")
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


@pytest.fixture
def neighbours() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that are ended after the test."""
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for one in found:
        one.kill()
        one.wait()


def attack(name: str, port: int) -> subprocess.Popen[bytes]:
    """Start a neighbour, which may open more files than the daemon has."""
    return subprocess.Popen(
        [sys.executable, "-m", "bench.neighbours", "attack", name, str(port), "60"], cwd=ROOT
    )


def all_ended(rig: Rig, ids: list[str]) -> bool:
    ended = rig.ledger.ended()
    return all(ended[one] == 1 for one in ids)


def descriptors(daemon: Daemon) -> int:
    return len(list(Path(f"/proc/{daemon.pid}/fd").iterdir()))


def memory_bytes(daemon: Daemon) -> int:
    pages = int(Path(f"/proc/{daemon.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def has_more(daemon: Daemon, most_bytes: int) -> bool:
    return memory_bytes(daemon) > most_bytes


def test_the_worker_loses_nothing_and_health_answers(
    rig: Rig, neighbours: list[subprocess.Popen[bytes]]
) -> None:
    daemon, port = started(rig, HOLDFAST)
    before_bytes = memory_bytes(daemon)
    for name in ATTACKS:
        neighbour = attack(name, port)
        neighbours.append(neighbour)
        ids = [f"{name}-{number}" for number in range(30)]
        for job_id in ids:
            rig.enqueue("quick", [job_id], max_attempts=1)
        until(partial(all_ended, rig, ids), f"jobs beside {name}")
        until(lambda: health(port) == 200, f"health beside {name}")
        assert neighbour.poll() is None, f"{name} goes on"
        neighbour.kill()
        neighbour.wait()
    assert memory_bytes(daemon) < before_bytes + MOST_MEMORY_BYTES
    assert all(count == 1 for count in rig.ledger.ended().values())
    daemon.stop()


def test_every_attack_has_a_control() -> None:
    assert sorted((*TAKE_FILES, *TAKE_MEMORY, *TAKE_TIME)) == sorted(ATTACKS)


def test_control_without_limits_connections_take_the_files(
    rig: Rig, neighbours: list[subprocess.Popen[bytes]]
) -> None:
    daemon, port = started(rig, sys.executable, "-c", WITHOUT_LIMITS)
    own = descriptors(daemon)
    for name in TAKE_FILES:
        neighbour = attack(name, port)
        neighbours.append(neighbour)
        until(lambda: descriptors(daemon) >= FILES, f"no descriptor is left beside {name}")
        until(lambda: "http.accept_failed" in daemon.errors, "it says so")
        neighbour.kill()
        neighbour.wait()
        until(lambda: descriptors(daemon) <= own + 8, f"the descriptors of {name} are back")
    daemon.kill()


def test_control_without_limits_bytes_take_the_memory(
    rig: Rig, neighbours: list[subprocess.Popen[bytes]]
) -> None:
    daemon, port = started(rig, sys.executable, "-c", WITHOUT_LIMITS)
    for name in TAKE_MEMORY:
        before_bytes = memory_bytes(daemon)
        neighbour = attack(name, port)
        neighbours.append(neighbour)
        until(partial(has_more, daemon, before_bytes + KEPT_BYTES), f"{name} takes the memory")
        neighbour.kill()
        neighbour.wait()
    daemon.kill()
