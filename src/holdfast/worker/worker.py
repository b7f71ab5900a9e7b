"""A worker: crews of slots, one per group of queues, and their leases."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence

import msgspec

from holdfast.engines.contract import Engine
from holdfast.model.errors import InvalidInput
from holdfast.model.job import check_size
from holdfast.model.retry import RetryPolicy
from holdfast.operations.views import ProcessSlots, RunningAttempt
from holdfast.telemetry.counters import ProcessMetrics

from .executor import Executor
from .registry import Registry
from .slot_pool import SlotPool

MAX_SLOTS = 10_000
_FORGET_SECONDS = 3_600.0
"""How long a queue in which nothing is left is served: what comes next need not be looked for."""


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker works."""

    slots: int = 8
    queue_slots: Mapping[str, int] | None = None
    """Slots of their own for each of these queues; without it all slots serve all queues."""
    queues: Sequence[str] | None = None
    """The queues to serve; None is every queue that is known or turns up."""
    lease_seconds: float = 30.0
    task_timeout_seconds: float = 3.0
    batch_size: int | None = None
    """How many jobs one claim takes at most; None is as many as there are free slots."""
    poll_interval_seconds: float = 1.0
    """How long a claim waits for work before it is made anew."""
    retry: RetryPolicy = RetryPolicy()
    memory_limit_bytes: int | None = None
    inline: bool = False


class Worker:
    """Claims and runs what the application declares. It belongs to one event loop."""

    def __init__(
        self,
        engine: Engine,
        definition: Registry,
        name: str,
        options: WorkerOptions,
    ) -> None:
        self.name = name
        self._engine = engine
        self._definition = definition
        self._go_by(options)
        self._seen_queues: dict[str, float] = {}
        self._look_again_at = -math.inf
        self._look_seconds = 0.0
        self._draining = False
        self._executor = Executor(
            definition,
            options.retry,
            memory_limit_bytes=options.memory_limit_bytes,
            inline=options.inline,
        )
        self._crews = {
            label: SlotPool(
                engine,
                self._executor,
                definition,
                worker=name,
                queues=queues,
                size=check_size("workers", size, 1, MAX_SLOTS),
                terms=self,
            )
            for label, queues, size in self._shares(options)
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

    def figures(self, loop_lag_seconds: float = 0.0) -> ProcessMetrics:
        """Return how this worker, and the event loop that it shares, is doing."""
        return ProcessMetrics(
            slots=sum(crew.size for crew in self._crews.values()),
            busy=sum(len(crew.running) for crew in self._crews.values()),
            abandoned_threads=self.abandoned_threads,
            abandoned_tasks=sum(crew.abandoned for crew in self._crews.values()),
            child_kills=self._executor.child_kills,
            loop_lag_seconds=loop_lag_seconds,
            draining=self._draining,
        )

    @property
    def processes(self) -> dict[str, ProcessSlots | None]:
        """The slots of the one process that it is."""
        found = self.figures()
        return {"1": ProcessSlots(found.slots, found.busy, found.draining)}

    def tokens(self) -> set[int]:
        """Return the tokens of what is under way."""
        return {
            attempt.job.token for crew in self._crews.values() for attempt in crew.running.values()
        }

    def running(self) -> list[RunningAttempt]:
        """Return what is under way."""
        now = asyncio.get_running_loop().time()
        return [
            RunningAttempt(
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
        self.check_resize(slots, label)
        self._crews[label].resize(slots)

    def check_resize(self, slots: int, label: str = "") -> None:
        """Raise ``InvalidInput`` if no crew of this label can have this many slots."""
        check_size("workers", slots, 1, MAX_SLOTS)
        if label not in self._crews:
            known = ", ".join(repr(name) for name in self._crews)
            raise InvalidInput("queue", f"no slots are set aside for {label!r}; there are {known}")

    def change(self, options: WorkerOptions) -> None:
        """Work by other options from now on; what is under way goes on.

        Slots that these options do not change stay as they are, also where they were resized.
        Raise ``InvalidInput`` if other queues are to be served: that takes another worker.
        """
        if not self.can_change(options):
            raise InvalidInput("queues", "a worker that runs cannot serve other queues")
        sizes = {label: size for label, _queues, size in self._shares(options)}
        for label, _queues, size in self._shares(self._options):
            if sizes[label] != size:
                self.resize(sizes[label], label)
        self._go_by(options)
        self._executor.change(options.retry, options.memory_limit_bytes)

    def can_change(self, options: WorkerOptions) -> bool:
        """Whether these options are for the same queues, with or without slots of their own."""
        labels = [label for label, _queues, _size in self._shares(options)]
        return list(self._crews) == labels and options.queues == self._options.queues

    @property
    def draining(self) -> bool:
        """Whether it was told to claim no more."""
        return self._draining

    def drain(self) -> None:
        """Claim no more until told otherwise; what runs goes on."""
        self._draining = True
        for crew in self._crews.values():
            crew.drain()

    def resume(self) -> None:
        """Claim again."""
        self._draining = False
        for crew in self._crews.values():
            crew.resume()

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
            loop = asyncio.get_running_loop()
            if (now := loop.time()) < self._look_again_at:
                return
            before = self._look_seconds
            self._seen_queues |= dict.fromkeys(await self._engine.queues(), now)
            # Where dead rows cannot be swept up, to look takes long, and must not be all we do.
            # A look that was only held up once says nothing of that.
            self._look_seconds = loop.time() - now
            self._look_again_at = now + 20 * min(self._look_seconds, before)
            for queue, seen_at in list(self._seen_queues.items()):
                if seen_at < now - _FORGET_SECONDS:
                    del self._seen_queues[queue]

    async def stop(self, drain_seconds: float) -> None:
        """Claim no more, wait for what runs, hand back the rest without charging an attempt."""
        await asyncio.gather(*(crew.stop(drain_seconds) for crew in self._crews.values()))
        await self._executor.close()

    def _go_by(self, options: WorkerOptions) -> None:
        self._options = options
        self.lease_seconds = options.lease_seconds
        self.task_timeout_seconds = options.task_timeout_seconds
        self.batch_size = options.batch_size
        self.poll_interval_seconds = options.poll_interval_seconds

    def _shares(self, options: WorkerOptions) -> list[tuple[str, Callable[[], Sequence[str]], int]]:
        if options.queue_slots is None:
            return [("", self._queues, options.slots)]
        return [
            (queue, lambda queue=queue: (queue,), size)  # type: ignore[misc]
            for queue, size in options.queue_slots.items()
        ]

    def _queues(self) -> Sequence[str]:
        if self._options.queues is not None:
            return self._options.queues
        return list(dict.fromkeys([*self._definition.queues, *self._seen_queues]))
