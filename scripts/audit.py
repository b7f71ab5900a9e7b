"""Look up known vulnerabilities of every package that requirements/dev.txt names.

pip-audit asks the advisory service of the package index. Where that cannot be reached it would
only warn; this says so and fails, since nothing was checked then.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

LOCK = Path(__file__).parent.parent / "requirements" / "dev.txt"


def say(text: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{text}\n")


def main() -> int:
    """Return 0 if every package was checked and none has a known vulnerability."""
    command = [sys.executable, "-m", "pip_audit", "--require-hashes", "--disable-pip"]
    done = subprocess.run(
        [*command, "--requirement", str(LOCK), "--format", "json", "--progress-spinner", "off"],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        found = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        sys.exit(f"audit: pip-audit failed: {done.stderr.strip()}")
    skipped = [one["name"] for one in found if "skip_reason" in one]
    affected = [one for one in found if one.get("vulns")]
    for one in affected:
        for problem in one["vulns"]:
            fixed = ", ".join(problem["fix_versions"]) or "no version"
            say(f"{one['name']} {one['version']}: {problem['id']}, fixed in {fixed}")
    checked = len(found) - len(skipped)
    say(f"audit: {checked} of {len(found)} packages checked, {len(affected)} are vulnerable")
    if skipped:
        say(
            f"audit: the advisory service does not answer for {len(skipped)} packages "
            f"({', '.join(skipped[:5])} …): nothing is known of those"
        )
    return 1 if affected or skipped else 0


if __name__ == "__main__":
    sys.exit(main())
