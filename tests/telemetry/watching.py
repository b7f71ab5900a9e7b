"""Looking at a daemon from outside: its metrics over HTTP, its log line by line."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.rig import HOLDFAST, Daemon, Rig, until

APP = str(Path(__file__).parent / "jobs.py")
Key = tuple[str, frozenset[tuple[str, str]]]


class Scrape:
    """What one scrape of a daemon says."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self.values: dict[Key, float] = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        """Return one value; it must be there."""
        return self.values[name, frozenset(labels.items())]

    @property
    def names(self) -> set[str]:
        """The names that a query may use: of samples, and of families that have none yet."""
        suffix = {"counter": "_total"}
        families = {f.name + suffix.get(f.type, "") for f in self.families.values()}
        return families | {name for name, _labels in self.values}


def run(rig: Rig, *flags: str, **settings: object) -> Daemon:
    """Start a daemon that serves metrics on any free port."""
    env = rig.env | {f"HOLDFAST_{name.upper()}": str(value) for name, value in settings.items()}
    return rig.start([HOLDFAST, "run", APP, "--metrics-port", "0", *flags], env)


def address(daemon: Daemon) -> str:
    """Return where the daemon serves its metrics."""
    found = until(
        lambda: re.search(r"metrics: (http://\S+)/metrics", daemon.output), "metrics are served"
    )
    assert found is not None
    return found[1]


def fetch(daemon: Daemon, path: str) -> tuple[int, str]:
    """Return the status and the body of what is at this path."""
    try:
        with urllib.request.urlopen(address(daemon) + path, timeout=30) as answer:  # noqa: S310
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def scrape(daemon: Daemon) -> Scrape:
    """Return the daemon's metrics as Prometheus gets them."""
    status, text = fetch(daemon, "/metrics")
    assert status == 200
    return Scrape(text)


def lines(daemon: Daemon) -> list[dict[str, object]]:
    """Return the records of a daemon that logs JSON: every line of its log must be one."""
    return [json.loads(line) for line in daemon.errors.splitlines()]
