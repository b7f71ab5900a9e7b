"""Peers on Redis or Valkey, each with one worker process."""

import tempfile
from pathlib import Path

from . import group

# ``huey_redis``, because huey on SQLite is measured too.
PEERS = {
    "dramatiq": "dramatiq_peer",
    "taskiq": "taskiq_peer",
    "huey_redis": "huey_peer",
    "celery": "celery_peer",
}


def measure(seconds: float, appendfsync: str = "everysec") -> dict[str, float]:
    """Measure every peer on a fresh Valkey whose append-only file is synced as asked."""
    found: dict[str, float] = {}
    for name, module in PEERS.items():
        for figure, value in measure_one(module, seconds, appendfsync).items():
            found[f"{name}_{figure}"] = value
    return found


def measure_one(module: str, seconds: float, appendfsync: str) -> dict[str, float]:
    """Measure one peer in its own process group."""
    with tempfile.TemporaryDirectory(
        prefix="holdfast-brokers-", ignore_cleanup_errors=True
    ) as directory:
        arguments = [module, str(seconds), appendfsync]
        return group.run_module(f"{__name__}.driver", arguments, Path(directory), 60 + 5 * seconds)
