"""What ``make metrics`` and ``make clean`` run, tried in an empty directory."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOLDFAST = Path(sys.executable).with_name("holdfast")


def run(*words: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **(env or {})},
        timeout=60,
    )


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the environment that `make` makes."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("HOLDFAST_"):
            monkeypatch.delenv(name)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "holdfast").symlink_to(HOLDFAST)
    return tmp_path


def test_both_are_what_make_runs() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert "\n\t@$(PYTHON) scripts/metrics.py\n" in makefile
    # Before the environment is removed, with which it looks into the store.
    assert makefile.index("@scripts/clean_data.sh") < makefile.index("rm -rf $(VENV)")


def test_metrics_without_a_daemon_are_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    done = run(sys.executable, ROOT / "scripts/metrics.py", env={"HOLDFAST_METRICS_PORT": port})
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert f"no metrics at http://127.0.0.1:{port}/metrics: " in done.stderr
    assert "Start `holdfast run`" in done.stderr


def test_metrics_of_a_daemon_are_printed(checkout: Path) -> None:
    daemon = subprocess.Popen(
        [str(HOLDFAST), "run", "--metrics-port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert daemon.stdout is not None
        address = next(line for line in daemon.stdout if line.startswith("metrics: "))
        port = address.rpartition(":")[2].partition("/")[0]
        done = run(sys.executable, ROOT / "scripts/metrics.py", env={"HOLDFAST_METRICS_PORT": port})
        assert done.returncode == 0, done.stderr
        assert "# HELP holdfast_" in done.stdout
        next(line for line in daemon.stdout if line.startswith("workers: "))
        kept = run(ROOT / "scripts/clean_data.sh")
        assert "kept ./data: a daemon runs on it" in kept.stderr
        assert (checkout / "data").exists()
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.communicate(timeout=30)


def test_clean_removes_a_store_that_holds_nothing(checkout: Path) -> None:
    assert run(ROOT / "scripts/clean_data.sh").stderr == "", "there is none"
    run(HOLDFAST, "queues", "pause", "default", "--reason", "why", "--by", "me")
    assert (checkout / "data" / "log").is_dir()
    done = run(ROOT / "scripts/clean_data.sh")
    assert done.returncode == 0
    assert done.stdout.startswith("removed ./data")
    assert not (checkout / "data").exists()


@pytest.mark.parametrize("why", ["pending", "no environment", "not a store"])
def test_clean_keeps_what_could_be_lost_and_says_so(checkout: Path, why: str) -> None:
    Path("jobs.json").write_text('{"id": "one"}')
    run(HOLDFAST, "enqueue", "-f", "jobs.json")
    said = "it holds 1 unfinished or dead jobs"
    if why == "no environment":
        shutil.rmtree(".venv")
        said = "without .venv nothing can tell whether it holds work"
    elif why == "not a store":
        shutil.rmtree("data/log")
        said = "it is not a store of Holdfast"
    done = run(ROOT / "scripts/clean_data.sh")
    assert done.returncode == 0, "make clean goes on"
    assert f"kept ./data: {said}" in done.stderr
    assert (checkout / "data").exists()
