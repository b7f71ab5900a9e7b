"""``python -m bench.brokers``: the peers on Valkey, as a table."""

import argparse

from . import PEERS, measure

FIGURES = ("enqueue_per_second", "process_per_second", "latency_p50_ms", "latency_p99_ms")


def main() -> None:
    """Measure once and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.brokers", description=__doc__)
    parser.add_argument("--seconds", type=float, default=2, help="of enqueuing, for each peer")
    parser.add_argument("--appendfsync", choices=("everysec", "always"), default="everysec")
    arguments = parser.parse_args()
    found = measure(arguments.seconds, arguments.appendfsync)
    print(f"| appendfsync {arguments.appendfsync} | enqueue /s | process /s | p50, ms | p99, ms |")
    print("|---|--:|--:|--:|--:|")
    for name in PEERS:
        put, processed, p50, p99 = (found[f"{name}_{figure}"] for figure in FIGURES)
        print(f"| {name} | {put:,.0f} | {processed:,.0f} | {p50:.2f} | {p99:.2f} |")


if __name__ == "__main__":
    main()
