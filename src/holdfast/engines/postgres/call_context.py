"""Per-call context: options, notification channel, clock override."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.engines.contract import EngineOptions
from holdfast.model.job import MICROSECONDS

from .connection.sansio import Statement


class CallContext(NamedTuple):
    """The options of an engine, its channel, and the times unless the database's count."""

    options: EngineOptions
    channel: str
    now_us: int | None = None
    created_us: int | None = None
    """When the first job of an enqueue is created, if the database's time does not count."""
    joined: bool = False
    """Whether the transaction is the caller's: it may stay open for long, and hold no lock that
    claims or settles need."""

    @property
    def remember_us(self) -> int:
        """How long finished jobs are kept."""
        return int(self.options.remember_seconds * MICROSECONDS)

    @property
    def max_processing_seconds(self) -> float | None:
        """How long a job may stay claimed unless it says otherwise; None: its worker says."""
        return self.options.max_processing_seconds

    def now(self) -> Statement:
        """Return the statement that reads the time."""
        return Statement("now", {"now_us": self.now_us})

    def notify(self, queues: list[str]) -> Statement:
        """Return the statement that notifies the processes that wait for these queues."""
        if self.joined:
            return Statement("notify_at_commit", {"channel": self.channel, "queues": queues})
        parameters = {"channel": self.channel, "queues": queues, "now_us": self.now_us}
        return Statement("notify", parameters)

    def get(self, names: dict[str, object]) -> Statement:
        """Return the statement that reads jobs from whichever table they are in."""
        parameters = {**names, "now_us": self.now_us, "remember_us": self.remember_us}
        return Statement("get", parameters)
