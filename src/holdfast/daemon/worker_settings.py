"""What the settings mean for a worker: its event loop, options and name."""

from __future__ import annotations

import asyncio
import os

from holdfast.engines.contract import OWN_SLOT_PREFIX
from holdfast.model.errors import InvalidInput
from holdfast.model.retry import RetryPolicy
from holdfast.settings import Settings, queue_slots
from holdfast.worker.loops import LeaseLoop
from holdfast.worker.options import WorkerOptions
from holdfast.worker.process_identity import host_name
from holdfast.worker.worker import Worker


def event_loop_runner(settings: Settings) -> asyncio.Runner:
    """Return a runner of the event loop that the settings name."""
    if settings.event_loop == "asyncio":
        return asyncio.Runner()
    try:
        import uvloop  # noqa: PLC0415 - an extra
    except ImportError:
        problem = "uvloop is not installed: pip install 'holdfast[fast]', or set asyncio"
        raise InvalidInput("event_loop", problem) from None
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


def worker_options(settings: Settings) -> WorkerOptions:
    """Return the options of a worker."""
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
        max_processing_seconds=settings.max_processing_seconds,
        batch_size=settings.batch_size,
        poll_interval_seconds=settings.poll_interval_seconds,
        retry=RetryPolicy(
            max_attempts=settings.max_attempts,
            base_backoff_seconds=settings.base_backoff_seconds,
            max_backoff_seconds=settings.max_backoff_seconds,
            jitter=settings.backoff_jitter,
        ),
        memory_limit_bytes=settings.memory_limit_bytes,
        cpu_limit_seconds=settings.cpu_limit_seconds,
    )


def apply_settings(worker: Worker, leases: LeaseLoop | None, settings: Settings) -> None:
    """Apply the settings that may change while a worker runs."""
    worker.change(worker_options(settings))
    if leases is not None:
        leases.interval_seconds = settings.reclaim_interval_seconds


def default_worker_id() -> str:
    """Return what a worker without a worker_id is called."""
    return f"{host_name()}-{os.getpid()}"


def worker_names(settings: Settings, worker_id: str) -> list[str]:
    """Return the names under which a daemon's processes claim, its own first.

    A prefix marks those that end with the owner of the store.
    """
    own = f"{'' if settings.directory is None else OWN_SLOT_PREFIX}{worker_id}"
    return [own, *(f"{own}-{number}" for number in range(2, settings.processes + 1))]
