"""Records effects on the event loop and feeds them to the SQLite store in the background."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial

from holdfast.engines.dump.format import DumpRecord
from holdfast.engines.embedded.history import AppliedEffect, StateCounts
from holdfast.engines.journal.background_feed import BackgroundFeed
from holdfast.engines.structured_log import StructuredLog
from holdfast.model.access import Caller
from holdfast.model.audit import WHOLE_AUDIT, AuditFilter, AuditRecord
from holdfast.model.effects import Completed
from holdfast.model.errors import DurabilityLost, HoldfastError
from holdfast.model.history import AttemptRecord, Note
from holdfast.model.job import MAX_TIME_US, Job, State
from holdfast.model.search import FailureGroup, Filter, Order, Place

from .store import SqliteHistory
from .writer import KEPT

log = StructuredLog("holdfast.journal")

MOST_UNFED = 100_000
_HEAVY = 4
"""How much more than a completion any other effect counts: it has a failure, or comes from a
person."""
_BYTES_PER_WEIGHT = 2_048
"""How many bytes of a payload or a result count as much as a small completion."""
_NAMES_PER_STEP = 500
_NAMES_PER_SLICE = 200


class HistoryFeed(BackgroundFeed[AppliedEffect]):
    """A ``HistoryStore``; see ``BackgroundFeed``.

    ``fed`` is called on the event loop with the new checkpoint: memory need not keep what it
    covers.
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
        super().__init__(
            "holdfast-history",
            durable_seq=durable_seq,
            most=max_backlog,
            inline=inline,
            threads=threads,
        )
        self.store = store
        self._fed = fed
        self._max_bytes = max_bytes
        self._pins = 0
        self._unannounced: int | None = None
        """The checkpoint for which ``fed`` was not called yet, because memory is pinned."""
        self._fill_known()

    # --- record ------------------------------------------------------------------------------

    def record(self, applied: AppliedEffect) -> None:
        """See ``HistoryStore.record``; effects that leave no row are dropped at once."""
        if type(applied.effect) in KEPT:
            self._take(applied)

    @property
    def checkpoint(self) -> int:
        """Everything up to this seq is in the store."""
        return self.store.checkpoint

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

    def _file(self) -> str:
        return self.store.file

    def _seq_of(self, item: AppliedEffect) -> int:
        return item.seq

    def _weight_of(self, item: AppliedEffect) -> int:
        """Return how much more than a small completion this counts while it is in memory."""
        weight = 0 if type(item.effect) is Completed else _HEAVY
        job = item.job
        if job is not None:
            weight += (len(job.payload) + len(job.result or b"")) // _BYTES_PER_WEIGHT
        return weight

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

    def _after_storing(self, batch: Sequence[AppliedEffect]) -> None:
        del batch
        self._unannounced = self.store.checkpoint
        self._announce()

    def _announce(self) -> None:
        if not self._pins and self._unannounced is not None:
            checkpoint, self._unannounced = self._unannounced, None
            self._fed(checkpoint)

    def _close_store(self) -> None:
        self.store.close()

    def _log_failure(self, failure: HoldfastError) -> None:
        if not isinstance(failure, DurabilityLost):
            log.emit("history.failed", unfed=self.unfed, error=failure)

    def _log_recovery(self) -> None:
        log.emit("history.recovered", file=self.store.file)

    def _log_unfiltered(self, error: HoldfastError) -> None:
        log.emit("history.unfiltered", error=error)

    def _fill_steps(self) -> Iterator[None]:
        self._known.begin(sum(self.store.tallies().values()))
        for table in ("done", "dead"):
            after: int | None = 0
            while after is not None:
                names, after = self.store.names(table, after, _NAMES_PER_STEP)
                self._known.fill(names)
                yield
        self._known.finish()

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

    async def audit(
        self, after: int, limit: int, wanted: AuditFilter = WHOLE_AUDIT, *, newest: bool = False
    ) -> Sequence[AuditRecord]:
        """See ``HistoryStore.audit``."""
        read = partial(self.store.audit, after, limit, wanted, newest=newest)
        return await self._on(self._readers, read)

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
