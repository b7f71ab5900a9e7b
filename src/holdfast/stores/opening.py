"""From settings to the things that run: engine options, worker options, names."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING

from holdfast.engines.contract import OWN_SLOT_PREFIX
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import DamagedHistory, JournalOptions
from holdfast.engines.journal.wal.disk import LocalDisk
from holdfast.engines.journal.wal.group_commit import SyncMode
from holdfast.model.errors import DirectoryInUse, InvalidInput
from holdfast.model.retry import RetryPolicy
from holdfast.settings import Settings, queue_slots
from holdfast.worker.loops import LeaseLoop
from holdfast.worker.options import WorkerOptions
from holdfast.worker.worker import Worker

if TYPE_CHECKING:
    from holdfast.engines.postgres.engine import PostgresEngine

LOCK_PATIENCE_SECONDS = 5.0
_LOOK_AGAIN_SECONDS = 0.05


def looping(settings: Settings) -> asyncio.Runner:
    """Return what runs the event loop that these settings ask for."""
    if settings.event_loop == "asyncio":
        return asyncio.Runner()
    try:
        import uvloop  # noqa: PLC0415 - an extra
    except ImportError:
        problem = "uvloop is not installed: pip install 'holdfast[fast]', or say asyncio"
        raise InvalidInput("event_loop", problem) from None
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


async def own_store(
    settings: Settings, patience_seconds: float = LOCK_PATIENCE_SECONDS
) -> JournalEngine:
    """Become the owner of the store, waiting a little for one who is about to leave."""
    if settings.directory is None:
        raise InvalidInput(
            "store", f"{settings.store_shown!r} is not a directory that can be owned"
        )
    options = JournalOptions(
        remember_seconds=settings.remember_seconds,
        max_processing_seconds=settings.max_processing_seconds,
        sync=SyncMode(settings.sync),
        history=DamagedHistory(settings.history),
    )
    disk = LocalDisk(settings.directory, snapshots=settings.snapshot_directory)
    loop = asyncio.get_running_loop()
    give_up = loop.time() + patience_seconds
    while True:
        try:
            return await JournalEngine.open(disk, options=options)
        except DirectoryInUse:
            if loop.time() >= give_up:
                raise
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)


async def open_server(settings: Settings) -> PostgresEngine:
    """Connect to the server that keeps the store."""
    try:
        from holdfast.engines.postgres.engine import PostgresEngine  # noqa: PLC0415 - an extra
        from holdfast.engines.postgres.options import PostgresOptions  # noqa: PLC0415 - an extra
    except ImportError as error:
        problem = (
            f"{settings.store_shown} needs psycopg ({error}): pip install 'holdfast[postgres]'"
        )
        raise InvalidInput("store", problem) from None
    options = PostgresOptions(
        remember_seconds=settings.remember_seconds,
        max_processing_seconds=settings.max_processing_seconds,
        schema=settings.schema,
        max_connections=settings.max_connections,
        statement_timeout_seconds=settings.statement_timeout_seconds,
        poll_interval_seconds=settings.poll_interval_seconds,
        listen=settings.wake == "notify",
        listen_url=settings.listen_url,
    )
    return await PostgresEngine.open(settings.store, options=options)


def worker_options(settings: Settings) -> WorkerOptions:
    """Return how a worker of these settings works."""
    queues: list[str] | None = None
    slots: dict[str, int] | None = None
    if settings.queues is not None:
        asked = queue_slots(settings.queues)
        if any(size is not None for size in asked.values()):
            slots = {queue: size or settings.worker_count for queue, size in asked.items()}
        else:
            queues = list(asked)
    return WorkerOptions(
        slots=settings.worker_count,
        queue_slots=slots,
        queues=queues,
        lease_seconds=settings.lease_seconds,
        task_timeout_seconds=settings.task_timeout_seconds,
        batch_size=settings.batch_size,
        poll_interval_seconds=settings.poll_interval_seconds,
        retry=RetryPolicy(
            max_attempts=settings.max_attempts,
            base_backoff_seconds=settings.base_backoff_seconds,
            max_backoff_seconds=settings.max_backoff_seconds,
        ),
        memory_limit_bytes=settings.memory_limit_bytes,
    )


def change(worker: Worker, leases: LeaseLoop | None, settings: Settings) -> None:
    """Have a worker go by settings that may change while it runs."""
    worker.change(worker_options(settings))
    if leases is not None:
        leases.interval_seconds = settings.reclaim_interval_seconds


def own_name(settings: Settings, suffix: str = "") -> str:
    """Return the name of a worker: one that lives and dies with the owner of the store says so."""
    label = settings.worker_id or f"{socket.gethostname()}-{os.getpid()}"
    return f"{'' if settings.on_server else OWN_SLOT_PREFIX}{label}{suffix}"
