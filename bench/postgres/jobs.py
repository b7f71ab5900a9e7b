"""The application that is measured: a task that does nothing."""

from bench.brokers.progress import started
from holdfast import Holdfast

SLOTS = 1_000
BATCH = SLOTS // 2
"""How many one call takes: the worker has two in flight."""

app = Holdfast()


@app.task
async def nothing(text: str) -> None:  # noqa: ARG001
    """Do nothing, on the loop."""
    started()
