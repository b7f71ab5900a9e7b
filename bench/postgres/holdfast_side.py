"""Holdfast: its usual worker with 200 slots, metrics on, which is what a batch is at most."""

from holdfast.engines.postgres import PostgresEngine
from holdfast.model.job import NewJob

from .jobs import SLOTS, nothing
from .side import BULK, TEXT, Side, url

__all__ = ["SIDE", "SLOTS"]

_PAYLOAD = nothing.spec.signature.encode((TEXT,), {})
_open: list[PostgresEngine] = []


def new_jobs(count: int) -> list[NewJob]:
    """Return this many requests for a job that does nothing."""
    return [NewJob(task=nothing.name, payload=_PAYLOAD) for _ in range(count)]


async def _connect() -> None:
    _open.append(await PostgresEngine.open(url()))


async def _put() -> None:
    await _open[0].enqueue(new_jobs(1))


async def _put_many() -> None:
    await _open[0].enqueue(new_jobs(BULK))


async def _close() -> None:
    await _open.pop().close()


SIDE = Side(
    open=_connect,
    put=_put,
    put_many=_put_many,
    close=_close,
    worker=("-m", f"{__package__}.work"),
    unfinished="SELECT EXISTS (SELECT FROM holdfast.jobs)",
    clear="TRUNCATE holdfast.jobs",
    backlog_per_second=20_000,
    ours=True,
)
