"""A worker: crews of slots, one per group of queues, and their leases."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec

from holdfast.engines.base import Engine
from holdfast.model.errors import InvalidInput
from holdfast.model.job import check_size
from holdfast.model.retry import RetryPolicy

from .crew import Crew
from .definition import Definition
from .executor import Executor

MAX_SLOTS = 10_000


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker works."""

    slots: int = 8
    queue_slots: Mapping[str, int] | None = None
    """Slots of their own for each of these queues; without it all slots serve all queues."""
    queues: Sequence[str] | None = None
    """The queues to serve; None is every queue that is known or turns up."""
    lease_seconds: float = 30.0
    task_timeout_seconds: float = 3.0
    retry: RetryPolicy = RetryPolicy()
    memory_limit_bytes: int | None = None
    inline: bool = False


class Running(msgspec.Struct, frozen=True):
    """An attempt under way, as a person sees it."""

    job_id: str
    task: str
    queue: str
    attempt: int
    seconds: float
    progress_share: float | None
    progress_note: str


class Worker:
    """Claims and runs what the application declares. It belongs to one event loop."""

    def __init__(
        self,
        engine: Engine,
        definition: Definition,
        name: str,
        options: WorkerOptions,
    ) -> None:
        self.name = name
        self.lease_seconds = options.lease_seconds
        self.task_timeout_seconds = options.task_timeout_seconds
        self._engine = engine
        self._definition = definition
        self._options = options
        self._seen_queues: list[str] = []
        self._executor = Executor(
            definition,
            options.retry,
            memory_limit_bytes=options.memory_limit_bytes,
            inline=options.inline,
        )
        self._crews = {
            label: Crew(
                engine,
                self._executor,
                definition,
                worker=name,
                queues=queues,
                size=check_size("workers", size, 1, MAX_SLOTS),
                terms=self,
            )
            for label, queues, size in self._shares()
        }

    def start(self) -> None:
        """Begin to claim."""
        for crew in self._crews.values():
            crew.start()

    @property
    def slots(self) -> dict[str, int]:
        """How many slots each crew has, by its queues."""
        return {label: crew.size for label, crew in self._crews.items()}

    @property
    def late_outcomes(self) -> int:
        """How many outcomes were refused because they came too late."""
        return sum(crew.refused for crew in self._crews.values())

    @property
    def abandoned_threads(self) -> int:
        """How many threads are held by attempts that timed out."""
        return self._executor.abandoned_threads

    def running(self) -> list[Running]:
        """Return what is under way."""
        now = asyncio.get_running_loop().time()
        return [
            Running(
                attempt.job.id,
                attempt.job.task,
                attempt.job.queue,
                attempt.job.attempt,
                now - attempt.started,
                attempt.progress_share,
                attempt.progress_note,
            )
            for crew in self._crews.values()
            for attempt in list(crew.running.values())
        ]

    def resize(self, slots: int, label: str = "") -> None:
        """Have this many slots, in the crew of this label; a larger crew shrinks as it frees."""
        check_size("workers", slots, 1, MAX_SLOTS)
        crew = self._crews.get(label)
        if crew is None:
            known = ", ".join(repr(name) for name in self._crews)
            raise InvalidInput("queue", f"no slots are set aside for {label!r}; there are {known}")
        crew.resize(slots)

    async def heartbeat(self, *, everything: bool = False) -> None:
        """Renew leases; to be called a few times per lease, and before any reclaim.

        With ``everything`` also those that are fresh: after the engine's clock has leapt.
        """
        for crew in self._crews.values():
            await crew.heartbeat(everything=everything)

    def has_overdue(self) -> bool:
        """Whether a lease of what is under way has run out, by our clock, and can be renewed."""
        return any(crew.has_overdue() for crew in self._crews.values())

    async def look_for_queues(self) -> None:
        """Take note of queues that no task names but that have jobs all the same."""
        if self._options.queues is None and self._options.queue_slots is None:
            self._seen_queues = list(await self._engine.counts())

    async def stop(self, drain_seconds: float) -> None:
        """Claim no more, wait for what runs, hand back the rest without charging an attempt."""
        await asyncio.gather(*(crew.stop(drain_seconds) for crew in self._crews.values()))
        await self._executor.close()

    def _shares(self) -> list[tuple[str, Callable[[], Sequence[str]], int]]:
        if self._options.queue_slots is None:
            return [("", self._queues, self._options.slots)]
        return [
            (queue, lambda queue=queue: (queue,), size)  # type: ignore[misc]
            for queue, size in self._options.queue_slots.items()
        ]

    def _queues(self) -> Sequence[str]:
        if self._options.queues is not None:
            return self._options.queues
        return list(dict.fromkeys([*self._definition.queues, *self._seen_queues]))
