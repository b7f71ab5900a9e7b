"""What Python users run today on Redis or Valkey, each with one worker process."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

# huey has figures of its own on SQLite: these are told apart by name.
PEERS = {
    "dramatiq": "dramatiq_peer",
    "taskiq": "taskiq_peer",
    "huey_redis": "huey_peer",
    "celery": "celery_peer",
}
ROOT = Path(__file__).parents[2]
STOP_SECONDS = 10


def measure(seconds: float, appendfsync: str = "everysec") -> dict[str, float]:
    """Measure every peer on a fresh Valkey whose append-only file is synced as asked."""
    found: dict[str, float] = {}
    for name, module in PEERS.items():
        for figure, value in measure_one(module, seconds, appendfsync).items():
            found[f"{name}_{figure}"] = value
    return found


def measure_one(module: str, seconds: float, appendfsync: str) -> dict[str, float]:
    """Measure one peer in a process group of its own, and leave nothing of it behind."""
    with tempfile.TemporaryDirectory(prefix="holdfast-", ignore_cleanup_errors=True) as directory:
        log = Path(directory) / "driver.log"
        with log.open("wb") as output:
            driver = subprocess.Popen(
                [
                    *(sys.executable, "-m", f"{__name__}.driver"),
                    *(module, directory, str(seconds), appendfsync),
                ],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                cwd=ROOT,
                start_new_session=True,
            )
        try:
            status = driver.wait(timeout=60 + 5 * seconds)
        finally:
            _end(driver)
        if status != 0:
            raise RuntimeError(f"{module} was not measured: {log.read_text()[-4000:]}")
        return dict(json.loads((Path(directory) / "result.json").read_text()))


def _end(driver: subprocess.Popen[bytes]) -> None:
    """Close what the driver watches, so that it cleans up; then end what is left of its group."""
    assert driver.stdin is not None
    driver.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        driver.wait(timeout=STOP_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
