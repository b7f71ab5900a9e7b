"""Group commit: verbs add effects to the open batch and are answered when it is durable.

One flush is in flight at a time; what arrives meanwhile is the next batch. So an idle engine
answers after one sync, a busy one shares each sync among all waiting calls, without a timer.
One batch is one frame: a frame that is whole on disk means that every frame before it was durable.
"""

from __future__ import annotations

import asyncio
import enum
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from holdfast.engines.histogram import Histogram
from holdfast.model.effects import Effect
from holdfast.model.errors import DurabilityLost, EngineClosed, StorageFull, TooLarge

from . import frames
from .flush import FlushRunner
from .segments import SegmentWriter

ALONE_IN_A_ROW = 8
"""After so many flushes that served one caller each, there is only one caller."""


class SyncMode(enum.StrEnum):
    """When an answer is given."""

    ALWAYS = "always"
    """After fdatasync: it survives a power cut."""
    INTERVAL = "interval"
    """After the write; fdatasync follows within the interval. It survives a kill."""
    OFF = "off"
    """After the write; the system decides when to sync. It survives a kill."""


class _Batch:
    __slots__ = ("callers", "count", "first_seq", "owner", "parts", "promised", "size", "waiters")

    def __init__(self, first_seq: int) -> None:
        self.first_seq = first_seq
        self.count = 0
        self.size = 0
        self.promised = 0
        self.parts: list[bytes] = []
        self.owner: asyncio.Future[None] | None = None
        """The caller of a chore: only it learns that there was no room."""
        self.waiters: list[asyncio.Future[None]] = []
        self.callers = 0


class GroupCommit:
    """The journal's ``CommitLog``. It belongs to one event loop."""

    def __init__(
        self,
        writer: SegmentWriter,
        runner: FlushRunner,
        sync: SyncMode,
        sync_interval_seconds: float,
        after_rotation: Callable[[], None],
    ) -> None:
        self.failure: DurabilityLost | None = None
        self.batches = 0
        self.batch_records = Histogram(_BATCH_BOUNDS)
        self._writer = writer
        self._runner = runner
        self._sync = sync
        self._sync_interval_seconds = sync_interval_seconds
        self._after_rotation = after_rotation
        self._sealed_bytes = writer.sealed_bytes
        self._loop = asyncio.get_running_loop()
        self._encoder = msgspec.msgpack.Encoder()
        self._limit = writer.max_frame_bytes - frames.OVERHEAD - _FRAME_ARRAY_BYTES
        self._waiting: deque[_Batch] = deque()
        self._chores: deque[tuple[Callable[[], None], _Batch]] = deque()
        self._in_flight: _Batch | None = None
        self._launching = False
        self._alone = False
        self._alone_in_a_row = 0
        self._served_in_turn = False
        self._sync_timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._closed = False

    def add(self, effects: Sequence[Effect], first_seq: int, *, essential: bool) -> None:
        """Add effects to the open batch; see ``CommitLog``."""
        if self._closed or self.failure is not None:
            self._check()
        count = len(effects)
        encoded = self._encoder.encode(effects)
        body = encoded[_array_header_bytes(count) :]
        size = len(body)
        if size > self._limit:
            raise TooLarge("jobs", size, self._limit, "send them in several calls")
        promised = size + frames.OVERHEAD + _FRAME_ARRAY_BYTES
        try:
            self._writer.reserve(promised, essential=essential)
        except OSError as error:
            self._fail(error)
            self._check()
        if not self._waiting or self._waiting[-1].size + size > self._limit:
            self._waiting.append(_Batch(first_seq))
        batch = self._waiting[-1]
        batch.parts.append(body)
        batch.count += count
        batch.size += size
        batch.promised += promised
        if self._in_flight is None and not self._launching and not self._alone:
            # Not at once: calls that are ready in this turn of the loop share the flush.
            self._launching = True
            self._loop.call_soon(self._launch)

    @property
    def many_callers(self) -> bool:
        """Whether several callers shared a flush or a turn lately; see ``CommitLog``."""
        return not self._alone

    @property
    def waits_for_disk(self) -> bool:
        """Whether the event loop itself waits for the disk now; callable from any thread."""
        return self._runner.here

    def durable_future(self, callers: int = 1) -> asyncio.Future[None] | None:
        """Return a future for when everything added so far is durable; see ``CommitLog``."""
        if self.failure is not None:
            raise self._failure_copy()
        waiter = self._wait_for(self._waiting[-1] if self._waiting else self._in_flight, callers)
        if (self._alone or callers > 1) and self._in_flight is None:
            # A single caller, or a batch that is complete: do not wait another turn of the loop.
            if self._alone and waiter is not None:
                self._serve_alone()
            self._launch()
        return waiter

    def _serve_alone(self) -> None:
        """Record a caller that shares no flush; a second one in the same turn does share."""
        if self._served_in_turn:
            self._alone, self._alone_in_a_row = False, 0
        else:
            self._served_in_turn = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._served_in_turn = False

    def _wait_for(self, batch: _Batch | None, callers: int = 1) -> asyncio.Future[None] | None:
        if batch is None:
            return None
        # One future per waiter: cancelling a shared one would cancel it for all.
        waiter = self._loop.create_future()
        batch.waiters.append(waiter)
        batch.callers += callers
        return waiter

    async def run(self, chore: Callable[[], None]) -> None:
        """Run this between two flushes."""
        self._check()
        batch = _Batch(0)
        batch.owner = self._loop.create_future()
        self._chores.append((chore, batch))
        self._launch()
        await batch.owner

    async def close(self) -> None:
        """Make everything durable and close the log cleanly."""
        if self._closing:
            return
        self._closing = True
        try:
            while waiter := self._wait_for(self._waiting[-1] if self._waiting else self._in_flight):
                await waiter
            await self.run(self._writer.close)
        finally:
            self._closed = True
            if self._sync_timer is not None:
                self._sync_timer.cancel()
            self._runner.close()
            self._writer.abandon()

    def _launch(self) -> None:
        self._launching = False
        if self._in_flight is not None or self.failure is not None:
            return
        if self._chores:
            self._start(*self._chores.popleft())
        elif self._waiting:
            batch = self._waiting.popleft()
            self._start(lambda: self._flush(batch), batch)
        elif self._writer.needs_spare and not self._closing:
            self._start(self._writer.prepare, _Batch(0))

    def _start(self, work: Callable[[], None], batch: _Batch) -> None:
        self._in_flight = batch
        small = 0 < batch.size <= _SMALL_BYTES
        self._runner.submit(work, lambda error: self._flushed(batch, error), small=small)

    def _flush(self, batch: _Batch) -> None:
        payload = b"".join((b"\xdd", batch.count.to_bytes(4, "big"), *batch.parts))
        self._writer.append(payload, batch.first_seq, batch.count, batch.promised)
        if self._sync is SyncMode.ALWAYS:
            self._writer.sync()

    def _flushed(self, batch: _Batch, error: BaseException | None) -> None:
        self._in_flight = None
        full = isinstance(error, StorageFull) and not batch.count
        if error is not None and not full:
            self._fail(error, batch)
            return
        if batch.owner is not None:
            # A chore that found no room has written nothing; only its owner gets the error.
            _wake([batch.owner], error if isinstance(error, StorageFull) else None)
        self.batches += 1
        if batch.count:
            self._alone_in_a_row = self._alone_in_a_row + 1 if batch.callers == 1 else 0
            self._alone = self._alone_in_a_row >= ALONE_IN_A_ROW
            self.batch_records.observe(batch.count)
        _wake(batch.waiters)
        if self._sync is SyncMode.INTERVAL and self._sync_timer is None and batch.count:
            self._sync_timer = self._loop.call_later(
                self._sync_interval_seconds, self._sync_in_background
            )
        self._launch()
        if self._writer.sealed_bytes != self._sealed_bytes:
            self._sealed_bytes = self._writer.sealed_bytes
            self._after_rotation()

    def _sync_in_background(self) -> None:
        self._sync_timer = None
        if not self._closed:
            self._chores.append((self._writer.sync, _Batch(0)))
            self._launch()

    def stop(self, error: BaseException) -> None:
        """Refuse everything from now on; see ``CommitLog``."""
        if self.failure is None:
            self._fail(error)

    def _fail(self, error: BaseException, batch: _Batch | None = None) -> None:
        """Stop for good: after a failed write or sync the content of the disk is unknown."""
        self.failure = DurabilityLost(
            f"the log could not be written ({error}): the engine has stopped and nothing is "
            "retried. Fix the disk and start again: what was acknowledged is on it"
        )
        self.failure.__cause__ = error
        batches = [*self._waiting, *(chore[1] for chore in self._chores)]
        for failed in batches if batch is None else [batch, *batches]:
            for waiter in [*failed.waiters, *([failed.owner] if failed.owner else [])]:
                _wake([waiter], self._failure_copy())
        self._waiting.clear()
        self._chores.clear()

    def _check(self) -> None:
        if self._closed:
            raise EngineClosed("this engine was closed: open another one")
        if self.failure is not None:
            raise self._failure_copy()

    def _failure_copy(self) -> DurabilityLost:
        """Return a copy of the failure: a shared exception would collect tracebacks."""
        again = DurabilityLost(str(self.failure))
        again.__cause__ = None if self.failure is None else self.failure.__cause__
        return again


_FRAME_ARRAY_BYTES = 5
_SMALL_BYTES = 64 * 1024
_BATCH_BOUNDS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 10_000)


def _array_header_bytes(count: int) -> int:
    """How many bytes msgpack uses for the header of an array of this length."""
    if count < 16:
        return 1
    return 3 if count < 65_536 else 5


def _wake(waiters: list[asyncio.Future[None]], error: Exception | None = None) -> None:
    for waiter in waiters:
        if waiter.done():
            continue
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)
