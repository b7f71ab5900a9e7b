"""How a part of the benchmark that runs in processes of its own begins, and tells what it found."""

import asyncio
import json
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.brokers import group


def answer(measure: Callable[..., Awaitable[dict[str, float]]]) -> None:
    """Measure with the arguments DIRECTORY …; print what was found; remove the directory."""
    directory, *rest = sys.argv[1:]
    root = Path(directory)
    group.end_with_parent(root)

    async def run() -> dict[str, float]:
        return await measure(root, *rest)

    sys.stdout.write(json.dumps(asyncio.run(run())))
    shutil.rmtree(root)
