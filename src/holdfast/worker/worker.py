"""A worker: slot pools, one per group of queues, and their leases."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence

from holdfast.engines.argument_checks import CheckedNames, check_names
from holdfast.engines.contract import Engine
from holdfast.model.errors import InvalidInput
from holdfast.model.fleet import MAX_SLOTS, ProcessSlots, RunningAttempt
from holdfast.model.job import check_size
from holdfast.model.outage import base_queue
from holdfast.telemetry.counters import ProcessMetrics

from .batch_pool import BATCHES_AT_ONCE, BatchPool
from .executor import Executor
from .options import WorkerOptions
from .outage_detector import OutageDetector
from .registry import Registry
from .slot_pool import SlotPool

_FORGET_SECONDS = 3_600.0
"""How long a queue that has become empty is still served."""


class Worker:
    """Claims and runs the jobs of an application. It belongs to one event loop."""

    def __init__(
        self,
        engine: Engine,
        registry: Registry,
        name: str,
        options: WorkerOptions,
    ) -> None:
        self.name = name
        self._engine = engine
        self._registry = registry
        self._options = options
        self._seen_queues: dict[str, float] = {}
        self._known: CheckedNames | None = None
        """The queues to claim from; None: they are to be listed anew."""
        self._known_of_tasks: list[str] = []
        self._served: dict[tuple[str, ...], CheckedNames] = {}
        self._look_again_at = -math.inf
        self._look_seconds = 0.0
        self._draining = False
        self.outage_detector = OutageDetector(asyncio.get_running_loop().time)
        self._executor = Executor(
            registry,
            options.retry,
            memory_limit_bytes=options.memory_limit_bytes,
            cpu_limit_seconds=options.cpu_limit_seconds,
            inline=options.inline,
        )
        self._pools = {
            label: SlotPool(
                engine,
                self._executor,
                registry,
                worker=name,
                queues=queues,
                size=check_size("workers", size, 1, MAX_SLOTS),
                options=options,
                observe=self.outage_detector.observe,
            )
            for label, queues, size in self._pool_specs(options)
        }
        self._batch_pools = [
            BatchPool(
                engine,
                self._executor,
                registry,
                task,
                worker=name,
                queues=self._all_queues,
                # A projection applies one batch at a time, also beside worker processes.
                size=min(BATCHES_AT_ONCE, sum(self.slots.values())) if task.runner is None else 1,
                options=options,
                observe=self.outage_detector.observe,
            )
            for task in registry.tasks.values()
            if task.batch
        ]

    @property
    def _every_pool(self) -> list[SlotPool]:
        return [*self._pools.values(), *self._batch_pools]

    def start(self) -> None:
        """Start to claim."""
        for pool in self._every_pool:
            pool.start()

    @property
    def lease_seconds(self) -> float:
        """How long a claim holds a job before it must be renewed."""
        return self._options.lease_seconds

    @property
    def slots(self) -> dict[str, int]:
        """The size of each slot pool, by its label."""
        return {label: pool.size for label, pool in self._pools.items()}

    @property
    def late_outcomes(self) -> int:
        """How many outcomes were refused because their lease was lost."""
        return sum(pool.refused for pool in self._every_pool)

    @property
    def abandoned_threads(self) -> int:
        """How many threads are held by attempts that timed out."""
        return self._executor.abandoned_threads

    def metrics(self, loop_lag_seconds: float = 0.0) -> ProcessMetrics:
        """Return the metrics of this worker, with the lag of its event loop."""
        return ProcessMetrics(
            slots=sum(pool.size for pool in self._every_pool if not pool.internal),
            busy=sum(pool.busy for pool in self._every_pool if not pool.internal),
            abandoned_threads=self.abandoned_threads,
            abandoned_tasks=sum(pool.abandoned for pool in self._every_pool),
            child_kills=self._executor.child_kills,
            loop_lag_seconds=loop_lag_seconds,
            draining=self._draining,
        )

    @property
    def process_slots(self) -> ProcessSlots:
        """The slots of this process."""
        found = self.metrics()
        return ProcessSlots(found.slots, found.busy, found.draining)

    @property
    def queues(self) -> tuple[str, ...] | None:
        """The queues that it serves; None: all."""
        if self._options.queue_slots is not None:
            return tuple(self._options.queue_slots)
        return None if self._options.queues is None else tuple(self._options.queues)

    def tokens(self) -> set[int]:
        """Return the tokens of the running attempts."""
        return {attempt.job.token for pool in self._every_pool for attempt in pool.running.values()}

    def running(self) -> list[RunningAttempt]:
        """Return the running attempts."""
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
            for pool in self._every_pool
            for attempt in list(pool.running.values())
        ]

    def resize(self, slots: int, label: str = "") -> None:
        """Set the size of a slot pool; surplus slots end when they become free."""
        self.check_resize(slots, label)
        self._pools[label].resize(slots)

    def check_resize(self, slots: int, label: str = "") -> None:
        """Raise ``InvalidInput`` unless this pool exists and can have this many slots."""
        check_size("workers", slots, 1, MAX_SLOTS)
        if label not in self._pools:
            known = ", ".join(repr(name) for name in self._pools)
            raise InvalidInput("queue", f"no slots are reserved for {label!r}; there are {known}")

    def change(self, options: WorkerOptions) -> None:
        """Use other options from now on; running attempts continue.

        A pool whose size is the same in both options keeps its current size, even if it was
        resized. Raise ``InvalidInput`` for other queues: they need another worker.
        """
        if not self.can_change(options):
            raise InvalidInput("queues", "a running worker cannot serve other queues")
        sizes = {label: size for label, _queues, size in self._pool_specs(options)}
        for label, _queues, size in self._pool_specs(self._options):
            if sizes[label] != size:
                self.resize(sizes[label], label)
        self._options = options
        for pool in self._every_pool:
            pool.options = options
        self._executor.change(options.retry, options.memory_limit_bytes, options.cpu_limit_seconds)

    def can_change(self, options: WorkerOptions) -> bool:
        """Whether these options are for the same queues and slot pools."""
        labels = [label for label, _queues, _size in self._pool_specs(options)]
        return list(self._pools) == labels and options.queues == self._options.queues

    @property
    def draining(self) -> bool:
        """Whether it claims no more."""
        return self._draining

    def drain(self) -> None:
        """Stop claiming until ``resume``; running attempts continue."""
        self._draining = True
        for pool in self._every_pool:
            pool.drain()

    def resume(self) -> None:
        """Claim again."""
        self._draining = False
        for pool in self._every_pool:
            pool.resume()

    async def heartbeat(self, *, everything: bool = False) -> None:
        """Renew leases; call it a few times per lease, and before any reclaim.

        ``everything`` renews fresh ones too: for a jump of the engine's clock.
        """
        for pool in self._every_pool:
            await pool.heartbeat(everything=everything)

    async def look_for_cancellations(self) -> None:
        """Stop attempts whose cancellation was requested; call it about every second."""
        for pool in self._every_pool:
            await pool.look_for_cancellations()

    def has_overdue(self) -> bool:
        """Whether a running attempt's lease has ended by our clock and can still be renewed."""
        return any(pool.has_overdue() for pool in self._every_pool)

    async def look_for_queues(self) -> None:
        """Find queues that have jobs and that no task names."""
        loop = asyncio.get_running_loop()
        if (now := loop.time()) < self._look_again_at:
            return
        before, queues = self._look_seconds, self._seen_queues.keys() | ()
        self._seen_queues |= dict.fromkeys(await self._engine.queues(), now)
        # Where dead rows cannot be vacuumed a look is slow, and must stay a small part of the
        # work. One slow look may be chance: take the faster of the last two.
        self._look_seconds = loop.time() - now
        self._look_again_at = now + 20 * min(self._look_seconds, before)
        for queue, seen_at in list(self._seen_queues.items()):
            if seen_at < now - _FORGET_SECONDS:
                del self._seen_queues[queue]
        if self._seen_queues.keys() != queues:
            self._known = None

    async def stop(self, drain_seconds: float) -> None:
        """Stop claiming, wait for running attempts, release the rest without charging them."""
        await asyncio.gather(*(pool.stop(drain_seconds) for pool in self._every_pool))
        await self._executor.close()

    def _pool_specs(
        self, options: WorkerOptions
    ) -> list[tuple[str, Callable[[], Sequence[str]], int]]:
        if options.queue_slots is None:
            return [("", self._queues, options.slots)]
        return [
            (queue, lambda queue=queue: self._serving([queue]), size)  # type: ignore[misc]
            for queue, size in options.queue_slots.items()
        ]

    def _all_queues(self) -> Sequence[str]:
        """Return the queues that any of its slots serves."""
        return self._known_queues() if self.queues is None else self._serving(self.queues)

    def _queues(self) -> Sequence[str]:
        if self._options.queues is not None:
            return self._serving(self._options.queues)
        return self._known_queues()

    def _serving(self, queues: Sequence[str]) -> Sequence[str]:
        """Return these queues, and those of their dependencies that no other slots are for."""
        known, wanted = self._known_queues(), tuple(queues)
        if wanted not in self._served:
            named, bases = set(self.queues or ()), set(wanted)
            others = [queue for queue in known if queue not in named and base_queue(queue) in bases]
            self._served[wanted] = check_names("queues", [*wanted, *others])
        return self._served[wanted]

    def _known_queues(self) -> Sequence[str]:
        """Return the queues of the tasks and those that were seen, checked once for all claims."""
        of_tasks = self._registry.queues
        if self._known is None or of_tasks != self._known_of_tasks:
            self._known = check_names("queues", [*of_tasks, *self._seen_queues])
            self._known_of_tasks = of_tasks
            self._served.clear()
        return self._known
