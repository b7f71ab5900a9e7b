"""What holds for every verb of an engine, whatever it is asked."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.engines.contract import EngineOptions
from holdfast.model.job import MICROSECONDS

from .connection.sansio import Statement


class CallContext(NamedTuple):
    """The options of an engine, its channel, and the time if it is not the database's."""

    options: EngineOptions
    channel: str
    now_us: int | None = None

    @property
    def remember_us(self) -> int:
        """How long finished jobs are kept."""
        return int(self.options.remember_seconds * MICROSECONDS)

    @property
    def max_processing_seconds(self) -> float:
        """How long a job may stay claimed that does not say."""
        return self.options.max_processing_seconds

    def now(self) -> Statement:
        """Ask what time it is."""
        return Statement("now", {"now_us": self.now_us})

    def notify(self, queues: list[str]) -> Statement:
        """Tell those who wait for work in these queues."""
        parameters = {"channel": self.channel, "queues": queues, "now_us": self.now_us}
        return Statement("notify", parameters)

    def get(self, names: dict[str, object]) -> Statement:
        """Ask for jobs, wherever they are."""
        parameters = {**names, "now_us": self.now_us, "remember_us": self.remember_us}
        return Statement("get", parameters)
