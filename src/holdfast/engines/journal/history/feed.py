"""Records effects on the event loop and feeds them to the SQLite store in the background."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from holdfast.engines.dump.format import DumpRecord
from holdfast.engines.embedded.history import AppliedEffect, StateCounts
from holdfast.engines.structured_log import StructuredLog
from holdfast.model.access import Caller
from holdfast.model.audit import AuditRecord
from holdfast.model.effects import Completed
from holdfast.model.errors import DurabilityLost, EngineClosed, HoldfastError, StorageError
from holdfast.model.history import AttemptRecord, Note
from holdfast.model.job import MAX_TIME_US, Job, State
from holdfast.model.search import FailureGroup, Filter, Order, Place

from .bloom import KnownNames
from .database import translated
from .store import READERS, SqliteHistory
from .writer import KEPT

log = StructuredLog("holdfast.journal")
T = TypeVar("T")

FEED_AFTER_SECONDS = 0.25
FEED_FROM = 5_000
FEED_MOST = 5_000
"""How many effects one transaction takes."""
MOST_UNFED = 100_000
_REST = 3
"""The pause after a feed, as a multiple of its duration, while there is room."""
_HEAVY = 4
"""How much more than a completion any other effect counts: it has a failure, or comes from a
person."""
_BYTES_PER_WEIGHT = 2_048
"""How many bytes of a payload or a result count as much as a small completion."""
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 10.0
_NAMES_PER_STEP = 500
_NAMES_PER_SLICE = 200


class HistoryFeed:
    """A ``HistoryStore``. It belongs to one event loop.

    ``durable_seq`` makes everything recorded so far durable in the log and returns a seq up to
    which all is durable and recorded: only that is fed. ``fed`` is called on the event loop with
    the new checkpoint: memory need not keep what it covers. ``inline`` does everything on the
    event loop, for deterministic tests; otherwise ``threads`` makes the executors.
    """

    def __init__(
        self,
        store: SqliteHistory,
        *,
        durable_seq: Callable[[], Awaitable[int]],
        fed: Callable[[int], None] = lambda _checkpoint: None,
        inline: bool = False,
        max_backlog: int = MOST_UNFED,
        max_bytes: int = MAX_TIME_US,
        threads: Callable[[int, str], Executor] = ThreadPoolExecutor,
    ) -> None:
        self.failure: HoldfastError | None = None
        """Why nothing can be stored at the moment; it is retried, and nothing is lost."""
        self.store = store
        self._durable_seq = durable_seq
        self._fed = fed
        self._most_unfed = max_backlog
        self._max_bytes = max_bytes
        self._loop = asyncio.get_running_loop()
        self._unfed: list[AppliedEffect] = []
        self._stored = 0
        """How many effects were stored since opening."""
        self._weight = 0
        """How much more the unfed effects count than as many small completions."""
        self._feeding: asyncio.Task[HoldfastError | None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._feed_from = FEED_FROM
        """How many unfed effects start a feed at once: more during a pause."""
        self._pause_seconds = _FIRST_PAUSE_SECONDS
        self._writing = asyncio.Lock()
        self._waiting_for_room: list[asyncio.Future[None]] = []
        self._pins = 0
        self._unannounced: int | None = None
        """The checkpoint for which ``fed`` was not called yet, because memory is pinned."""
        self._closed = False
        self._feeder: Executor | None = None
        self._readers: Executor | None = None
        if not inline:
            self._feeder = threads(1, "holdfast-history")
            self._readers = threads(READERS, "holdfast-history-read")
        self._known = KnownNames()
        self._filling: asyncio.Task[None] | None = None
        self._fill_known()

    # --- record ------------------------------------------------------------------------------

    def record(self, applied: AppliedEffect) -> None:
        """See ``HistoryStore.record``; effects that leave no row are dropped at once."""
        if type(applied.effect) not in KEPT:
            return
        self._weight += _weight_of(applied)
        unfed = self._unfed
        unfed.append(applied)
        if self._timer is None and self._feeding is None:
            self._timer = self._loop.call_later(FEED_AFTER_SECONDS, self._feed_soon)
        elif len(unfed) + self._weight >= self._feed_from and self.failure is None:
            self._feed_soon()

    @property
    def unfed(self) -> int:
        """How many effects are recorded and not stored yet."""
        return len(self._unfed)

    @property
    def _recorded(self) -> int:
        """How many effects were recorded since opening."""
        return self._stored + len(self._unfed)

    @property
    def behind(self) -> bool:
        """See ``HistoryStore.behind``."""
        return self.unfed + self._weight > self._most_unfed

    @property
    def checkpoint(self) -> int:
        """Everything up to this seq is in the store."""
        return self.store.checkpoint

    async def flush(self) -> None:
        """See ``HistoryStore.flush``. Raise ``StorageError`` while nothing can be stored."""
        recorded = self._recorded
        while self._stored < recorded:
            await self._feed()

    async def cover(self) -> int:
        """Store everything recorded so far; return the checkpoint.

        Unlike after ``flush``, it covers effects that leave no row too: log segments up to it may
        be deleted.
        """
        recorded = self._recorded
        await self._feed()
        while self._stored < recorded:
            await self._feed()
        return self.checkpoint

    async def room(self) -> None:
        """See ``HistoryStore.room``."""
        while self.behind and not self._closed:
            waiter = self._loop.create_future()
            self._waiting_for_room.append(waiter)
            if self.failure is None:
                self._feed_soon()
            await waiter

    @contextlib.contextmanager
    def pinned(self) -> Iterator[None]:
        """See ``HistoryStore.pinned``: ``fed`` is not called meanwhile."""
        self._pins += 1
        try:
            yield
        finally:
            self._pins -= 1
            self._announce()

    # --- feed --------------------------------------------------------------------------------

    def _feed_soon(self) -> asyncio.Task[HoldfastError | None]:
        """Start feeding, unless it is under way; return the task, which never raises."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._feeding is None:
            self._feeding = self._loop.create_task(self._feed_all())
        return self._feeding

    async def _feed(self) -> None:
        """Feed what can be fed now, or raise what prevents it."""
        if self._closed:
            raise EngineClosed("this engine was closed: open another one")
        # The caller may be cancelled: the feed goes on.
        failure = await asyncio.shield(self._feed_soon())
        if failure is not None:
            raise _copy_of(failure)

    async def _feed_all(self) -> HoldfastError | None:
        failure: HoldfastError | None = None
        began = self._loop.time()
        try:
            seq = await self._durable_seq()
            more = True
            while more:
                more = await self._feed_some(seq)
        except Exception as error:  # noqa: BLE001 - it is retried and reported
            failure = translated(error, self.store.file)
            if failure is not error:
                failure.__cause__ = error
        self._feeding = None
        self._plan_next(failure, self._loop.time() - began)
        return failure

    async def _feed_some(self, seq: int) -> bool:
        """Feed what one transaction takes; return whether there is more up to this seq."""
        batch = self._unfed[:FEED_MOST]
        more = len(self._unfed) > len(batch)
        if batch and batch[-1].seq > seq:
            batch, more = [one for one in batch if one.seq <= seq], False
        checkpoint = batch[-1].seq if more else seq
        if batch or checkpoint > self.store.checkpoint:
            async with self._writing:
                await self._on(self._feeder, partial(self._store, batch, checkpoint))
        del self._unfed[: len(batch)]
        self._stored += len(batch)
        if self._weight:
            self._weight -= sum(map(_weight_of, batch))
        self._unannounced = self.store.checkpoint
        self._announce()
        if not self.behind:
            self._wake()
        if self._known.full:
            self._fill_known()
        return more

    def _store(self, batch: Sequence[AppliedEffect], checkpoint: int) -> None:
        self.store.feed(batch, checkpoint)
        for start in range(0, len(batch), _NAMES_PER_SLICE):
            if start:
                time.sleep(0)  # lets the event loop have the interpreter lock
            names = [
                (job.tenant, job.id)
                for one in batch[start : start + _NAMES_PER_SLICE]
                if (job := one.job) is not None
                and (type(one.effect) is Completed or job.state.finished)
            ]
            self._known.add_all(names)

    def _plan_next(self, failure: HoldfastError | None, took_seconds: float) -> None:
        """Log the first failure and the recovery, and schedule the next feed."""
        if failure is None:
            if self.failure is not None:
                log.emit("history.recovered", file=self.store.file)
            self.failure, self._pause_seconds = None, _FIRST_PAUSE_SECONDS
            # While there is room, pause: workers need the interpreter more.
            busy = len(self._unfed) >= FEED_FROM
            self._feed_from = max(FEED_FROM, self._most_unfed // 2) if busy else FEED_FROM
            if self._unfed and not self._closed:
                wait_seconds = _REST * took_seconds if busy else FEED_AFTER_SECONDS
                self._timer = self._loop.call_later(wait_seconds, self._feed_soon)
            return
        if self.failure is None and not isinstance(failure, DurabilityLost):
            log.emit("history.failed", unfed=self.unfed, error=failure)
        self.failure = failure
        if not self._closed:
            self._timer = self._loop.call_later(self._pause_seconds, self._feed_soon)
            self._pause_seconds = min(2 * self._pause_seconds, _LONGEST_PAUSE_SECONDS)

    def _announce(self) -> None:
        if not self._pins and self._unannounced is not None:
            checkpoint, self._unannounced = self._unannounced, None
            self._fed(checkpoint)

    def _wake(self) -> None:
        waiters, self._waiting_for_room = self._waiting_for_room, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # --- read --------------------------------------------------------------------------------

    def get(self, tenant: str, job_id: str) -> Job | None:
        """See ``HistoryStore.get``."""
        if not self._known.may_hold(tenant, job_id):
            return None
        return self.store.get(tenant, job_id)

    async def find(
        self, wanted: Filter, caller: Caller, after: Place | None, limit: int, order: Order
    ) -> list[Job]:
        """See ``HistoryStore.find``."""
        look = partial(self.store.find, wanted, caller, after, limit, order)
        return await self._on(self._readers, look)

    async def count_matching(self, wanted: Filter, caller: Caller, most: int) -> int:
        """See ``HistoryStore.count_matching``."""
        return await self._on(
            self._readers, partial(self.store.count_matching, wanted, caller, most)
        )

    async def groups(self, wanted: Filter, caller: Caller, now_us: int) -> list[FailureGroup]:
        """See ``HistoryStore.groups``."""
        return await self._on(self._readers, partial(self.store.groups, wanted, caller, now_us))

    async def history(self, job: Job) -> tuple[list[AttemptRecord], list[Note]]:
        """See ``HistoryStore.history``."""
        return await self._on(self._readers, partial(self.store.history, job))

    async def audit(self, after: int, limit: int) -> Sequence[AuditRecord]:
        """See ``HistoryStore.audit``."""
        return await self._on(self._readers, partial(self.store.audit, after, limit))

    async def count(self, caller: Caller) -> StateCounts:
        """See ``HistoryStore.count``."""
        return await self._on(self._readers, partial(self.store.count, caller))

    def dump(self) -> AsyncIterator[Sequence[DumpRecord]]:
        """See ``HistoryStore.dump``."""
        batches = self.store.dump()
        if self._readers is None:
            batches = iter(list(batches))  # in a database in memory, readers wait for writers
        return self._dump(batches)

    async def _dump(self, batches: Iterator[list[DumpRecord]]) -> AsyncIterator[list[DumpRecord]]:
        while batch := await self._on(self._readers, lambda: next(batches, [])):
            yield batch

    # --- forget ------------------------------------------------------------------------------

    async def forget(self, before_us: int) -> StateCounts:
        """See ``HistoryStore.forget``. Feeding goes on between the steps."""
        gone: Counter[tuple[str, str, State]] = Counter()
        if self._unfed and self._unfed[0].effect.at_us < before_us:
            await self.flush()
        after: int | None = 0
        while after is not None:
            if self.store.has_forgotten(before_us):
                self.store.hide(before_us)
                break
            async with self._writing:
                step = partial(self.store.forget, before_us, after=after)
                went, after = await self._on(self._feeder, step)
            gone.update(went)
        if self.too_large:
            gone.update(await self._forget_excess())
        return gone

    async def _forget_excess(self) -> Counter[tuple[str, str, State]]:
        """Drop what finished first until the rest fits, with room for more."""
        gone: Counter[tuple[str, str, State]] = Counter()
        step = partial(self.store.forget_excess, self._max_bytes - self._max_bytes // 16)
        while True:
            async with self._writing:
                went = await self._on(self._feeder, step)
            if not went:
                break
            gone.update(went)
        log.emit("history.bounded", jobs=gone.total(), max_bytes=self._max_bytes)
        return gone

    @property
    def too_large(self) -> bool:
        """Whether there are more bytes of completed and cancelled jobs than should be kept."""
        return self.store.size_bytes > self._max_bytes

    async def close(self) -> None:
        """See ``HistoryStore.close``. Raise ``StorageError`` if something could not be stored."""
        if self._closed:
            return
        try:
            await self.cover()
        finally:
            self._closed = True
            if self._timer is not None:
                self._timer.cancel()
            self._wake()
            await self._release()

    async def _release(self) -> None:
        for task in (self._filling, self._feeding):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        for executor in (self._feeder, self._readers):
            if executor is not None:
                executor.shutdown()
        self.store.close()

    # --- threads -----------------------------------------------------------------------------

    async def _on(self, executor: Executor | None, work: Callable[[], T]) -> T:
        """Run the work on one of these threads or, without any, inline."""
        if executor is None:
            return work()
        # To the end, even if the caller is cancelled: only one may write at a time.
        future = self._loop.run_in_executor(executor, work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])
            raise

    def _fill_known(self) -> None:
        if self._feeder is None:
            for _ in self._fill_steps():
                pass
        elif self._filling is None or self._filling.done():
            self._filling = self._loop.create_task(self._fill_in_background())

    def _fill_steps(self) -> Iterator[None]:
        self._known.begin(sum(self.store.tallies().values()))
        for table in ("done", "dead"):
            after: int | None = 0
            while after is not None:
                names, after = self.store.names(table, after, _NAMES_PER_STEP)
                self._known.fill(names)
                yield
        self._known.finish()

    async def _fill_in_background(self) -> None:
        """Fill the filter step by step: until it is done, ``get`` reads the store."""
        steps = self._fill_steps()
        try:
            while await self._on(self._readers, lambda: next(steps, steps)) is not steps:
                pass
        except HoldfastError as error:
            self._known.abandon()
            log.emit("history.unfiltered", error=error)


def _weight_of(applied: AppliedEffect) -> int:
    """Return how much more than a small completion this counts while it is in memory."""
    weight = 0 if type(applied.effect) is Completed else _HEAVY
    job = applied.job
    if job is not None:
        weight += (len(job.payload) + len(job.result or b"")) // _BYTES_PER_WEIGHT
    return weight


def _copy_of(failure: HoldfastError) -> HoldfastError:
    """Return a copy of the failure: a shared exception would collect tracebacks."""
    again = StorageError(str(failure))
    if isinstance(failure, StorageError):
        again = type(failure).__new__(type(failure), *failure.args)
        again.__dict__.update(failure.__dict__)
    again.__cause__ = failure.__cause__
    return again
