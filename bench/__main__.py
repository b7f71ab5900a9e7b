"""``make bench``: several rounds of everything, ratios to the same round's limits, and JSON."""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import holdfast

from . import brokers, limits, ours, peers, worker
from .report import table

HERE = Path(__file__).parent


def small(root: Path, seconds: float) -> dict[str, float]:
    """Measure one round: limits first and last, so that a drift shows."""
    found: dict[str, float] = {}
    for part in (limits, ours, peers):
        directory = root / part.__name__.rpartition(".")[2]
        directory.mkdir()
        found.update(part.measure(directory, seconds))
        shutil.rmtree(directory)
    again = root / "again"
    again.mkdir()
    after = limits.measure(again, seconds)
    shutil.rmtree(again)
    for name, value in after.items():
        found[name] = (found[name] + value) / 2
    return found


def end_to_end(root: Path, seconds: float) -> dict[str, float]:
    """Measure our worker beside those that people run on Valkey."""
    directory = root / "worker"
    directory.mkdir()
    found = worker.measure(directory, seconds)
    shutil.rmtree(directory)
    return found | brokers.measure(seconds)


def large(root: Path, count: int) -> dict[str, float]:
    """Measure with a large backlog."""

    def run(name: str, directory: Path, jobs: int) -> dict[str, float]:
        done = subprocess.run(
            [sys.executable, "-m", "bench.large", name, str(directory), str(jobs)],
            check=True,
            capture_output=True,
            cwd=HERE.parent,
        )
        return dict(json.loads(done.stdout))

    directory, few = root / "large", root / "few"
    found = run("fill", directory, count)
    found["recovery_from_log_seconds"] = run("recovery", directory, count)["recovery_seconds"]
    run("fill", few, 60_000)
    run("recovery", few, 0)
    found["process_with_few_per_second"] = run("process", few, 0)["claim_and_settle_per_second"]
    found["process_with_many_per_second"] = run("process", directory, 0)[
        "claim_and_settle_per_second"
    ]
    found.update(run("compaction", directory, 0))
    found["recovery_from_snapshot_seconds"] = run("recovery", directory, count)["recovery_seconds"]
    shutil.rmtree(directory)
    shutil.rmtree(few)
    return found


def dead_letters(root: Path, count: int) -> dict[str, float]:
    """Measure with many dead letters."""
    directory = root / "letters"
    done = subprocess.run(
        [sys.executable, "-m", "bench.letters", str(directory), str(count)],
        check=True,
        capture_output=True,
        cwd=HERE.parent,
    )
    shutil.rmtree(directory)
    return dict(json.loads(done.stdout))


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5, help="for each small measurement")
    parser.add_argument("--backlog", type=int, default=1_000_000)
    parser.add_argument("--large-rounds", type=int, default=3)
    parser.add_argument("--worker-rounds", type=int, default=3)
    parser.add_argument("--dead-letters", type=int, default=1_000_000)
    parser.add_argument("--output", type=Path, default=HERE / "results.json")
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    try:
        rounds = []
        for number in range(arguments.rounds):
            rounds.append(small(root, arguments.seconds))
            print(f"round {number + 1} of {arguments.rounds} done", file=sys.stderr)
        worker_rounds = []
        for number in range(arguments.worker_rounds):
            worker_rounds.append(end_to_end(root, arguments.seconds))
            print(f"worker round {number + 1} of {arguments.worker_rounds} done", file=sys.stderr)
        large_rounds = []
        for number in range(arguments.large_rounds):
            large_rounds.append(large(root, arguments.backlog))
            print(f"large round {number + 1} of {arguments.large_rounds} done", file=sys.stderr)
        letters_rounds = []
        if arguments.dead_letters:
            letters_rounds.append(dead_letters(root, arguments.dead_letters))
            print("dead letters done", file=sys.stderr)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    result = {
        "holdfast": holdfast.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.release()}, {os.cpu_count()} cores",
        "rounds": rounds,
        "worker_rounds": worker_rounds,
        "large_rounds": large_rounds,
        "letters_rounds": letters_rounds,
        "medians": {
            name: statistics.median(one[name] for one in runs)
            for runs in (rounds, worker_rounds, large_rounds, letters_rounds)
            for name in (runs[0] if runs else {})
        },
    }
    arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    print(table(result))


main()
