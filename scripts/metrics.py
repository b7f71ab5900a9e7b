"""Prints the metrics of a running daemon: ``make metrics``."""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request

PORT = os.environ.get("HOLDFAST_METRICS_PORT", "9090")
ADDRESS = f"http://127.0.0.1:{PORT}/metrics"


def main() -> int:
    """Print them, or say why there are none."""
    try:
        with urllib.request.urlopen(ADDRESS, timeout=10) as answer:
            sys.stdout.write(answer.read().decode())
    except (OSError, ValueError) as error:
        why = error.reason if isinstance(error, urllib.error.URLError) else error
        sys.stderr.write(
            f"no metrics at {ADDRESS}: {why}. Start `holdfast run`, or set HOLDFAST_METRICS_PORT "
            "to the port that it prints\n"
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
