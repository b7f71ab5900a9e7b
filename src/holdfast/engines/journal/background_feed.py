"""Feeds what is recorded on the event loop to a SQLite store, in the background.

The history and the events are both stored so: in order, in few transactions, each of them only
after the log has it. What fails is tried again, and nothing is lost meanwhile.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Generic, TypeVar

from holdfast.model.errors import EngineClosed, HoldfastError, StorageError

from .history.bloom import KnownNames
from .history.database import READERS, translated

R = TypeVar("R")
T = TypeVar("T")

FEED_AFTER_SECONDS = 0.25
FEED_FROM = 5_000
FEED_MOST = 5_000
"""How many items one transaction takes."""
_REST = 3
"""The pause after a feed, as a multiple of its duration, while there is room."""
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 10.0


class BackgroundFeed(ABC, Generic[R]):
    """Items that wait to be stored, and the task that stores them. It belongs to one event loop.

    ``durable_seq`` makes everything recorded so far durable in the log and returns a seq up to
    which all is durable and recorded: only that is fed. ``most`` is how much may wait: the items
    and their weight; ``feed_from`` of it start a feed at once. ``inline`` does everything on the
    event loop, for deterministic tests; otherwise ``threads`` makes the executors.
    """

    def __init__(
        self,
        name: str,
        *,
        durable_seq: Callable[[], Awaitable[int]],
        most: int,
        feed_from: int | None = None,
        inline: bool,
        threads: Callable[[int, str], Executor],
    ) -> None:
        self.failure: HoldfastError | None = None
        """Why nothing can be stored at the moment; it is retried, and nothing is lost."""
        self._durable_seq = durable_seq
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._unfed: list[R] = []
        self._stored = 0
        """How many items were stored since opening."""
        self._weights: list[int] = []
        """How much more each unfed item counts than one."""
        self._weight = 0
        """Their sum."""
        self._feeding: asyncio.Task[HoldfastError | None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._least = FEED_FROM if feed_from is None else feed_from
        self._feed_from = self._least
        """How much starts a feed at once: more during a pause."""
        self._pause_seconds = _FIRST_PAUSE_SECONDS
        self._writing = asyncio.Lock()
        self._waiting_for_room: list[asyncio.Future[None]] = []
        self._closed = False
        self._feeder: Executor | None = None
        self._readers: Executor | None = None
        if not inline:
            self._feeder = threads(1, name)
            self._readers = threads(READERS, f"{name}-read")
        self._known = KnownNames()
        self._filling: asyncio.Task[None] | None = None

    # --- the store ---------------------------------------------------------------------------

    @property
    @abstractmethod
    def checkpoint(self) -> int:
        """Everything up to this seq is in the store."""

    @abstractmethod
    def _file(self) -> str:
        """Return the file, for messages."""

    @abstractmethod
    def _seq_of(self, item: R) -> int:
        """Return the sequence number of an item."""

    @abstractmethod
    def _weight_of(self, item: R) -> int:
        """Return how much more than one an item counts while it waits."""

    @abstractmethod
    def _store(self, batch: Sequence[R], checkpoint: int) -> None:
        """Store these in one transaction with the checkpoint."""

    @abstractmethod
    def _after_storing(self, batch: Sequence[R]) -> None:
        """Follow what was stored, on the event loop."""

    @abstractmethod
    def _fill_steps(self) -> Iterator[None]:
        """Fill the filter of known names, step by step."""

    @abstractmethod
    def _close_store(self) -> None:
        """Close the store."""

    @abstractmethod
    def _log_failure(self, failure: HoldfastError) -> None:
        """Log the first failure."""

    @abstractmethod
    def _log_recovery(self) -> None:
        """Log that storing works again."""

    @abstractmethod
    def _log_unfiltered(self, error: HoldfastError) -> None:
        """Log that the known names could not be read."""

    # --- record ------------------------------------------------------------------------------

    def _take(self, item: R) -> None:
        """Take an item, to be stored soon."""
        weight = self._weight_of(item)
        self._weight += weight
        self._weights.append(weight)
        unfed = self._unfed
        unfed.append(item)
        if self._timer is None and self._feeding is None:
            self._timer = self._loop.call_later(FEED_AFTER_SECONDS, self._feed_soon)
        elif len(unfed) + self._weight >= self._feed_from and self.failure is None:
            self._feed_soon()

    @property
    def unfed(self) -> int:
        """How many items are recorded and not stored yet."""
        return len(self._unfed)

    @property
    def _recorded(self) -> int:
        """How many items were recorded since opening."""
        return self._stored + len(self._unfed)

    @property
    def behind(self) -> bool:
        """Whether more waits than should."""
        return self.unfed + self._weight > self._most

    async def flush(self) -> None:
        """Return when everything recorded so far is stored.

        Raise ``StorageError`` while nothing can be stored.
        """
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
        """Return when it is not ``behind``."""
        while self.behind and not self._closed:
            waiter = self._loop.create_future()
            self._waiting_for_room.append(waiter)
            if self.failure is None:
                self._feed_soon()
            await waiter

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
            failure = self._translated(error)
            if failure is not error:
                failure.__cause__ = error
        self._feeding = None
        self._plan_next(failure, self._loop.time() - began)
        return failure

    def _translated(self, error: Exception) -> HoldfastError:
        return translated(error, self._file())

    async def _feed_some(self, seq: int) -> bool:
        """Feed what one transaction takes; return whether there is more up to this seq."""
        batch = self._unfed[:FEED_MOST]
        more = len(self._unfed) > len(batch)
        if batch and self._seq_of(batch[-1]) > seq:
            batch, more = [one for one in batch if self._seq_of(one) <= seq], False
        checkpoint = self._seq_of(batch[-1]) if more else seq
        if batch or checkpoint > self.checkpoint:
            async with self._writing:
                await self._on(self._feeder, partial(self._store, batch, checkpoint))
        del self._unfed[: len(batch)]
        self._stored += len(batch)
        self._weight -= sum(self._weights[: len(batch)])
        del self._weights[: len(batch)]
        self._after_storing(batch)
        if not self.behind:
            self._wake()
        if self._known.full:
            self._fill_known()
        return more

    def _plan_next(self, failure: HoldfastError | None, took_seconds: float) -> None:
        """Log the first failure and the recovery, and schedule the next feed."""
        if failure is None:
            if self.failure is not None:
                self._log_recovery()
            self.failure, self._pause_seconds = None, _FIRST_PAUSE_SECONDS
            # While there is room, pause: workers need the interpreter more.
            busy = len(self._unfed) >= FEED_FROM
            self._feed_from = max(self._least, self._most // 2) if busy else self._least
            if self._unfed and not self._closed:
                wait_seconds = _REST * took_seconds if busy else FEED_AFTER_SECONDS
                self._timer = self._loop.call_later(wait_seconds, self._feed_soon)
            return
        if self.failure is None:
            self._log_failure(failure)
        self.failure = failure
        if not self._closed:
            self._timer = self._loop.call_later(self._pause_seconds, self._feed_soon)
            self._pause_seconds = min(2 * self._pause_seconds, _LONGEST_PAUSE_SECONDS)

    def _wake(self) -> None:
        waiters, self._waiting_for_room = self._waiting_for_room, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def close(self) -> None:
        """Store everything, and release the store; raise ``StorageError`` if that failed."""
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
        self._close_store()

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

    async def _fill_in_background(self) -> None:
        """Fill the filter step by step: until it is done, lookups read the store."""
        steps = self._fill_steps()
        try:
            while await self._on(self._readers, lambda: next(steps, steps)) is not steps:
                pass
        except HoldfastError as error:
            self._known.abandon()
            self._log_unfiltered(error)


def _copy_of(failure: HoldfastError) -> HoldfastError:
    """Return a copy of the failure: a shared exception would collect tracebacks."""
    again = StorageError(str(failure))
    if isinstance(failure, StorageError):
        again = type(failure).__new__(type(failure), *failure.args)
        again.__dict__.update(failure.__dict__)
    again.__cause__ = failure.__cause__
    return again
