"""``make bench``: several rounds of every measurement, ratios to limits of the same round, JSON."""

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

import holdfast

from . import (
    api,
    batches,
    brokers,
    events,
    limits,
    neighbours,
    ours,
    payloads,
    peers,
    postgres,
    registry,
    worker,
)
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
    """Measure our worker and those of the peers on Valkey."""
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
    """Measure with many dead letters on both stores, and what the journal's history costs."""

    def run(module: str, *arguments: str) -> dict[str, float]:
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            check=True,
            stdout=subprocess.PIPE,
            cwd=HERE.parent,
        )
        return dict(json.loads(done.stdout))

    directory = root / "letters"
    directory.mkdir()
    found = run("bench.history_cost", str(directory / "cost"))
    found |= run("bench.letters", "journal", str(directory / "store"), str(count))
    shutil.rmtree(directory)
    with postgres.server.durable() as server, server.with_our_tables() as url:
        return found | run("bench.letters", "postgres", url, str(count))


def postgres_rounds(arguments: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    """Measure the PostgreSQL engine and its peers on one server."""
    found: dict[str, list[dict[str, float]]] = {
        "postgres_rounds": [],
        "postgres_large_rounds": [],
        "postgres_steady_rounds": [],
    }
    with postgres.server.durable() as server:
        for number in range(arguments.postgres_rounds):
            found["postgres_rounds"].append(postgres.measure(server, arguments.seconds))
            _print_progress(f"PostgreSQL round {number + 1} of {arguments.postgres_rounds} done")
        if arguments.backlog:
            large = postgres.measure_large(server, arguments.seconds, arguments.backlog)
            found["postgres_large_rounds"].append(large)
            _print_progress("PostgreSQL with a backlog done")
        if arguments.steady_seconds:
            steady = postgres.measure_steady(
                server, arguments.steady_seconds, arguments.pin_seconds
            )
            found["postgres_steady_rounds"].append(steady)
            _print_progress("PostgreSQL under even load done")
    return found


def postgres_event_rounds(arguments: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    """Measure events and projections on PostgreSQL."""
    stored = arguments.stored_events
    with postgres.server.durable() as server:
        return {
            "postgres_event_rounds": repeated(
                "PostgreSQL events, round",
                arguments.postgres_rounds,
                lambda: postgres.measure_events(server, arguments.events),
            ),
            "postgres_event_table_rounds": repeated(
                "PostgreSQL with many events, round",
                1 if stored else 0,
                lambda: postgres.measure_event_tables(server, stored),
            ),
        }


def batch_rounds(root: Path, count: int) -> list[dict[str, float]]:
    """Measure batches of jobs on both stores."""
    with postgres.server.durable() as server:

        def round_of_batches() -> dict[str, float]:
            directory = root / "batches"
            directory.mkdir()
            found = batches.measure(directory, server)
            shutil.rmtree(directory)
            return found

        return repeated("batches", count, round_of_batches)


Pair = tuple[bool, bool]
"""With, then without; or the other way round."""


def pairs(
    root: Path,
    name: str,
    count: int,
    measure: Callable[[Path, postgres.server.Durable, Pair], dict[str, float]],
) -> list[dict[str, float]]:
    """Measure with and without something, in pairs; which of the two comes first alternates."""
    orders: Iterator[Pair] = cycle(((True, False), (False, True)))
    with postgres.server.durable() as server:

        def pair() -> dict[str, float]:
            directory = root / "pair"
            directory.mkdir()
            found = measure(directory, server, next(orders))
            shutil.rmtree(directory)
            return found

        return repeated(f"pair with and without {name}", count, pair)


def repeated(
    name: str, count: int, measure: Callable[[], dict[str, float]]
) -> list[dict[str, float]]:
    """Measure ``count`` rounds."""
    rounds = []
    for number in range(count):
        rounds.append(measure())
        _print_progress(f"{name} {number + 1} of {count} done")
    return rounds


def _print_progress(text: str) -> None:
    print(text, file=sys.stderr)


def measured(root: Path, arguments: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    """Measure all parts, or the one given with ``--only``."""
    parts: dict[str, Callable[[], dict[str, list[dict[str, float]]]]] = {
        "journal": lambda: {
            "rounds": repeated("round", arguments.rounds, lambda: small(root, arguments.seconds))
        },
        "worker": lambda: {
            "worker_rounds": repeated(
                "worker round", arguments.worker_rounds, lambda: end_to_end(root, arguments.seconds)
            )
        },
        "large": lambda: {
            "large_rounds": repeated(
                "large round", arguments.large_rounds, lambda: large(root, arguments.backlog)
            )
        },
        "letters": lambda: {
            "letters_rounds": repeated(
                "dead letters",
                1 if arguments.dead_letters else 0,
                lambda: dead_letters(root, arguments.dead_letters),
            )
        },
        "payloads": lambda: {
            "payload_rounds": pairs(root, "payloads", arguments.pairs, payloads.measure)
        },
        "registry": lambda: {
            "registry_rounds": pairs(root, "registry", arguments.pairs, registry.measure)
        },
        "batches": lambda: {"batch_rounds": batch_rounds(root, arguments.rounds)},
        "events": lambda: {
            "event_rounds": repeated(
                "events",
                arguments.event_rounds,
                lambda: events.measure(root, arguments.events, arguments.stored_events),
            )
        },
        "neighbours": lambda: {
            "neighbour_rounds": repeated(
                "attacks on the metrics port",
                1 if arguments.attack_seconds else 0,
                lambda: neighbours.measure(root, arguments.attack_seconds),
            )
        },
        "api": lambda: {
            "api_rounds": repeated(
                "HTTP API", arguments.api_rounds, lambda: api.measure(root, 2 * arguments.seconds)
            )
        },
        "postgres": lambda: postgres_rounds(arguments),
        "postgres-events": lambda: postgres_event_rounds(arguments),
    }
    found: dict[str, list[dict[str, float]]] = {}
    for name in [arguments.only] if arguments.only else parts:
        found |= parts[name]()
    return found


def read_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--only",
        choices=(
            *("journal", "worker", "large", "letters", "payloads", "registry", "batches"),
            *("events", "neighbours", "api", "postgres", "postgres-events"),
        ),
        help="measure this part alone",
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5, help="for each small measurement")
    parser.add_argument("--backlog", type=int, default=1_000_000)
    parser.add_argument("--large-rounds", type=int, default=3)
    parser.add_argument("--worker-rounds", type=int, default=3)
    parser.add_argument("--dead-letters", type=int, default=1_000_000)
    parser.add_argument("--pairs", type=int, default=5, help="with and without something")
    parser.add_argument("--event-rounds", type=int, default=3)
    parser.add_argument("--api-rounds", type=int, default=3)
    parser.add_argument("--postgres-rounds", type=int, default=3)
    parser.add_argument("--events", type=int, default=40_000, help="appended and projected")
    parser.add_argument(
        "--stored-events", type=int, default=1_000_000, help="rebuilt from; 0 is none"
    )
    parser.add_argument(
        "--steady-seconds", type=float, default=60, help="of even load on PostgreSQL; 0 is none"
    )
    parser.add_argument(
        "--pin-seconds",
        type=float,
        default=postgres.PIN_SECONDS,
        help="length of an idle transaction that blocks vacuum",
    )
    parser.add_argument(
        "--attack-seconds", type=float, default=60, help="of each attack; 0 is none"
    )
    parser.add_argument("--output", type=Path, default=HERE / "results.json")
    return parser.parse_args()


def main() -> None:
    """Run the benchmark."""
    arguments = read_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # runs the cleanup below
    root = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    try:
        found = measured(root, arguments)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    result = {
        "holdfast": holdfast.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.release()}, {os.cpu_count()} cores",
        **found,
        "medians": {
            name: statistics.median(one[name] for one in runs)
            for runs in found.values()
            for name in (runs[0] if runs else {})
        },
    }
    arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    print(table(result))


main()
