"""What Python users run today on Redis or Valkey, each with one worker process."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from . import group

# huey has figures of its own on SQLite: these are told apart by name.
PEERS = {
    "dramatiq": "dramatiq_peer",
    "taskiq": "taskiq_peer",
    "huey_redis": "huey_peer",
    "celery": "celery_peer",
}
ROOT = Path(__file__).parents[2]


def measure(seconds: float, appendfsync: str = "everysec") -> dict[str, float]:
    """Measure every peer on a fresh Valkey whose append-only file is synced as asked."""
    found: dict[str, float] = {}
    for name, module in PEERS.items():
        for figure, value in measure_one(module, seconds, appendfsync).items():
            found[f"{name}_{figure}"] = value
    return found


def measure_one(module: str, seconds: float, appendfsync: str) -> dict[str, float]:
    """Measure one peer in a process group of its own, and leave nothing of it behind."""
    with tempfile.TemporaryDirectory(
        prefix="holdfast-brokers-", ignore_cleanup_errors=True
    ) as directory:
        log = Path(directory) / "driver.log"
        with log.open("wb") as output:
            driver = subprocess.Popen(
                [
                    *(sys.executable, "-m", f"{__name__}.driver"),
                    *(module, directory, str(seconds), appendfsync),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd=ROOT,
                start_new_session=True,
            )
        assert driver.stdin is not None
        assert driver.stdout is not None
        try:
            status = driver.wait(timeout=60 + 5 * seconds)
            said = driver.stdout.read()
        finally:
            driver.kill()
            driver.wait()
            group.end(driver.pid)
            driver.stdin.close()
            driver.stdout.close()
        if status != 0:
            raise RuntimeError(f"{module} was not measured: {log.read_text()[-4000:]}")
        return dict(json.loads(said))
