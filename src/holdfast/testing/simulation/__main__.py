"""Command line of the simulation: run one seed with its trace, or many seeds."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence

from .run import simulate
from .trace import BrokenPromise


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the seeds; return 0 if every promise was kept."""
    parser = argparse.ArgumentParser(
        prog="python -m holdfast.testing.simulation",
        description="Run the whole daemon in a simulated world and check every promise.",
    )
    parser.add_argument("--seed", type=int, default=0, help="the seed, or the first of several")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds to run")
    parser.add_argument("--trace", action="store_true", help="print every event")
    parser.add_argument("--hashes", action="store_true", help="print the hash of each trace")
    parser.add_argument("--counts", action="store_true", help="print how often each event happened")
    given = parser.parse_args(arguments)
    write_line = _print if given.trace else None
    counts: Counter[str] = Counter()
    broken = 0
    for seed in range(given.seed, given.seed + given.seeds):
        try:
            report = simulate(seed, write_line=write_line)
        except BrokenPromise as error:
            broken += 1
            _print(str(error))
            continue
        counts.update(report.counts)
        if given.hashes or given.seeds == 1:
            _print(f"seed {seed}: kept every promise; its trace is {report.hash}")
    if given.counts:
        for kind, count in sorted(counts.items()):
            _print(f"{count:>10}  {kind}")
    if given.seeds > 1:
        _print(f"{given.seeds} seeds from {given.seed}: {broken} broke a promise")
    return 1 if broken else 0


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
