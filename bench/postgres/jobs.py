"""The application that is measured: a task that does nothing but say so."""

from bench.brokers.progress import started
from holdfast import Holdfast

SLOTS = 200

app = Holdfast()


@app.task
async def nothing(text: str) -> None:  # noqa: ARG001
    """Do nothing, on the loop."""
    started()
