"""Asks the daemon of this container for its health: ``python probe.py live`` or ``ready``.

Exit code 0 if it is well. Metrics and health are served on the loopback address only, so a probe
runs where the daemon runs. HOLDFAST_METRICS_PORT is the port, 9090 by default.
"""

from __future__ import annotations

import http.client
import os
import sys

SECONDS = 4.0


def main(asked: str) -> int:
    """Ask for ``live`` or ``ready``; return the exit code."""
    if asked not in ("live", "ready"):
        sys.stderr.write("usage: probe.py live|ready\n")
        return 2
    port = int(os.environ.get("HOLDFAST_METRICS_PORT", "9090"))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request("GET", f"/health/{asked}")
        answer = connection.getresponse()
        text = answer.read(1_000).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        sys.stderr.write(f"no answer on port {port}: {error}\n")
        return 1
    sys.stdout.write(f"{text}\n")
    return 0 if answer.status == http.client.OK else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "live"))
