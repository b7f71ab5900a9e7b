"""Holdfast: its usual daemon with 1,000 slots, metrics on, so that 500 go into a call at most.

With 200 and with 500 slots it was slower by 0 to 15 %.
"""

from .jobs import SLOTS, app, nothing
from .side import BULK, TEXT, Side


async def _put() -> None:
    await nothing.enqueue(TEXT)


async def _put_many() -> None:
    await nothing.enqueue_many([(TEXT,)] * BULK)


SIDE = Side(
    put=_put,
    put_many=_put_many,
    close=app.close,
    worker=(
        *("-m", "holdfast", "run", f"{__package__}.jobs:app"),
        *("--workers", str(SLOTS), "--metrics-port", "0", "--log-level", "error"),
    ),
    unfinished="SELECT EXISTS (SELECT FROM holdfast.jobs)",
    clear="TRUNCATE holdfast.jobs",
    backlog_per_second=30_000,
    ours=True,
)
