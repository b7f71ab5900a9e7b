"""The scenario of a seed: the size and settings of the simulated world."""

from __future__ import annotations

import random

import msgspec

from holdfast.engines.journal.options import JournalOptions
from holdfast.settings import Settings
from holdfast.worker.options import WorkerOptions

from . import projected
from .application import QUEUES


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about a run that is drawn before it starts."""

    seed: int
    fault_seconds: float
    """The length of the fault phase."""
    faults: int
    clients: int
    remote_workers: int
    slots: int
    remote_slots: int
    pause_seconds: float
    """The average pause of a client between two calls."""
    settings: Settings
    options: JournalOptions

    def remote_options(self) -> WorkerOptions:
        """Return the options of a remote worker."""
        return WorkerOptions(
            slots=self.remote_slots,
            queues=None if self.settings.queues is None else QUEUES,
            lease_seconds=self.settings.lease_seconds,
            task_timeout_seconds=self.settings.task_timeout_seconds,
            inline=True,
        )


def draw_scenario(seed: int) -> Scenario:
    """Return the scenario of this seed."""
    rng = random.Random(f"scenario/{seed}")
    slots = rng.randint(1, 4)
    owned = ",".join((*QUEUES, *projected.QUEUES))
    remember_seconds = rng.choice([3_600.0, 3_600.0, 20.0])
    segment_bytes = rng.choice([8, 16, 16, 64]) * 1024
    settings = Settings(
        store="./simulated",
        worker_count=slots,
        worker_id="owner",
        queues=rng.choice([None, owned, owned]),
        lease_seconds=rng.choice([1.2, 2.0, 4.0]),
        task_timeout_seconds=rng.choice([1.0, 3.0]),
        reclaim_interval_seconds=rng.choice([0.4, 1.0]),
        max_backoff_seconds=2.0,
        base_backoff_seconds=0.5,
        remember_seconds=remember_seconds,
        snapshot_interval_seconds=rng.choice([None, 2.0]),
        drain_seconds=rng.choice([0.1, 2.0]),
        stall_seconds=None,
        metrics_port=None,
    )
    options = JournalOptions(
        remember_seconds=remember_seconds,
        # In the engine only: as a setting, the daemon refuses 25 s for a task of a minute.
        max_processing_seconds=rng.choice([25.0, 600.0]),
        segment_bytes=segment_bytes,
        compact_bytes=segment_bytes * rng.choice([1, 2, 4]),
        keep_log_bytes=rng.choice([0, 0, 4 * segment_bytes]),
        max_history_backlog=rng.choice([20, 100_000, 100_000]),
    )
    return Scenario(
        seed=seed,
        fault_seconds=rng.uniform(4.0, 9.0),
        faults=rng.randint(2, 6),
        clients=rng.randint(1, 2),
        remote_workers=rng.randint(1, 2),
        slots=slots,
        remote_slots=rng.randint(1, 3),
        pause_seconds=rng.choice([0.25, 0.4]),
        settings=settings,
        options=options,
    )
