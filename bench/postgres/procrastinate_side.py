"""procrastinate on psycopg: its own worker, 20 jobs at a time, done ones deleted."""

from procrastinate import App, PsycopgConnector
from procrastinate.types import JSONDict

from bench.brokers.progress import started

from .side import BULK, TEXT, Side, url

app = App(connector=PsycopgConnector(conninfo=url(), min_size=1, max_size=24))


@app.task
async def nothing(text: str) -> None:  # noqa: ARG001
    """Do nothing."""
    started()


async def _connect() -> None:
    await app.open_async()
    await app.schema_manager.apply_schema_async()


async def _put() -> None:
    await nothing.defer_async(text=TEXT)


async def _put_many() -> None:
    arguments: list[JSONDict] = [{"text": TEXT} for _ in range(BULK)]
    await nothing.batch_defer_async(*arguments)


SIDE = Side(
    open=_connect,
    put=_put,
    put_many=_put_many,
    close=app.close_async,
    worker=(
        *("-m", "procrastinate", f"--app={__name__}.app", "--log-level=warning", "worker"),
        *("--concurrency", "20", "--delete-jobs", "successful"),
    ),
    unfinished="SELECT EXISTS (SELECT FROM procrastinate_jobs)",
    clear="TRUNCATE procrastinate_jobs CASCADE",
    backlog_per_second=1_000,
)
