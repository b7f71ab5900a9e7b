"""The measured application: tasks that do nothing or record their start."""

import time
from pathlib import Path

from holdfast import Holdfast

app = Holdfast()
ran = 0
late_seconds: list[float] = []


@app.task
async def nothing(n: int) -> None:  # noqa: ARG001
    """Do nothing, on the loop."""
    global ran  # noqa: PLW0603 - the cheapest counter
    ran += 1


@app.task
def nothing_in_thread(n: int) -> None:  # noqa: ARG001
    """Do nothing, in a thread."""
    global ran  # noqa: PLW0603
    ran += 1


@app.task
async def started(sent: float) -> None:
    """Record the time from enqueue to start; the clock is shared by all processes."""
    late_seconds.append(time.monotonic() - sent)


@app.task
def report(path: str) -> None:
    """Write the latencies that ``started`` has recorded to a file."""
    Path(path).write_text("\n".join(map(str, late_seconds)))
    late_seconds.clear()
