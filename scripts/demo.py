"""The demo: 100 jobs of which one run in ten fails, a kill -9 part-way, a restart, the count."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
JOBS = 100
KILL_AFTER = 30
# Short times and few attempts, so that the end comes within seconds.
FLAGS = ("--workers", "8", "--timeout", "3s", "--max-attempts", "3")
PATIENCE_SECONDS = 60.0

console = Console(highlight=False)


class Demo:
    """A store in a directory of its own, and the daemon on it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.store = directory / "data"

    def holdfast(self, *arguments: str) -> str:
        """Run a command and return what it prints."""
        console.print(f"[bold]$ holdfast {' '.join(arguments)}[/bold]", soft_wrap=True)
        return self.quietly(*arguments)

    def quietly(self, *arguments: str) -> str:
        """Run a command without showing it."""
        done = subprocess.run(
            [HOLDFAST, "--store", str(self.store), *arguments],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return done.stdout

    def start(self) -> subprocess.Popen[str]:
        """Start the daemon and wait until it reports that it has started."""
        console.print(f"[bold]$ holdfast run {' '.join(FLAGS)} &[/bold]")
        daemon = subprocess.Popen(
            [
                *(HOLDFAST, "--store", str(self.store), "run", *FLAGS),
                *("--base-backoff-seconds", "1s", "--metrics-port", "0", "--log-level", "warning"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert daemon.stdout is not None
        for line in daemon.stdout:
            console.print(f"  {line.rstrip()}", soft_wrap=True)
            if line.startswith("workers:"):
                return daemon
        raise SystemExit("the daemon did not start")

    def wait_for(self, enough: int) -> dict[str, int]:
        """Wait until this many jobs are finished, and return the counts."""
        until = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < until:
            counts: dict[str, int] = json.loads(self.quietly("status", "--json"))
            if counts["completed"] + counts["dead"] >= enough:
                return counts
            time.sleep(0.1)
        raise SystemExit("the jobs did not finish in time")


def main() -> None:
    """Run the demo and show the table."""
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as name:
        demo = Demo(Path(name))
        jobs = demo.directory / "jobs.json"
        jobs.write_text(json.dumps([{"id": f"job-{n}", "payload": {"n": n}} for n in range(JOBS)]))
        daemon = demo.start()
        console.print(f"  {demo.holdfast('enqueue', '--file', str(jobs)).rstrip()}")
        demo.wait_for(KILL_AFTER)
        console.print(f"[bold]$ kill -9 {daemon.pid}[/bold]")
        daemon.send_signal(signal.SIGKILL)
        daemon.wait()
        before: dict[str, int] = json.loads(demo.quietly("status", "--json"))
        console.print(f"  left in the log: {counted(before)}")
        restarted = time.monotonic()
        daemon = demo.start()
        ready = time.monotonic() - restarted
        after = demo.wait_for(JOBS)
        finished = time.monotonic() - restarted
        daemon.terminate()
        daemon.wait()
        recovered = demo.quietly("journal", "verify", "--json")
        show(demo, before, after, ready, finished, json.loads(recovered)["problems"])


def show(
    demo: Demo,
    before: dict[str, int],
    after: dict[str, int],
    ready: float,
    finished: float,
    problems: list[str],
) -> None:
    """Print the table; exit 1 if the promise was not kept."""
    records = [json.loads(line) for line in demo.quietly("journal", "dump", "--json").splitlines()]
    completions = Counter(item["job_id"] for item in records if item["type"] == "ACK")
    twice = sum(count > 1 for count in completions.values())
    runs = sum(item["type"] == "DISPATCH" for item in records)
    kept = after["completed"] + after["dead"] == JOBS and not twice and not problems
    table = Table(title="after kill -9", show_header=False)
    for what, value in (
        ("in flight when it was killed", str(before["in_flight"])),
        ("started again and recovered in", f"{ready * 1000:.0f} ms"),
        ("everything finished after", f"{finished:.1f} s"),
        ("completed", str(after["completed"])),
        ("dead (all attempts failed)", str(after["dead"])),
        ("completed + dead", f"{after['completed'] + after['dead']} of {JOBS}"),
        ("runs in all, retries included", str(runs)),
        ("completed twice", str(twice)),
    ):
        table.add_row(what, value)
    console.print(table)
    console.print("Nothing lost, nothing completed twice." if kept else "THE PROMISE WAS BROKEN")
    raise SystemExit(0 if kept else 1)


def counted(counts: dict[str, int]) -> str:
    """Return the four counts as a line."""
    names = ("pending", "in_flight", "completed", "dead")
    return ", ".join(f"{name} {counts[name]}" for name in names)


if __name__ == "__main__":
    main()
