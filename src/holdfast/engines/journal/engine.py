"""The journal engine: opens a directory, keeps the contract, compacts in the background."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec

from holdfast.engines.clock import Clock, SystemClock
from holdfast.engines.contract import MAX_CLAIM, OWN_SLOT_PREFIX, Capabilities
from holdfast.engines.embedded.engine import EmbeddedEngine
from holdfast.engines.embedded.history import AppliedEffect
from holdfast.engines.entropy import random_bytes as pooled_bytes
from holdfast.engines.queue_stats import StoreMetrics
from holdfast.engines.structured_log import StructuredLog
from holdfast.model import lifecycle, outcome
from holdfast.model.effects import Cancelled, Died, Effect, Lost, Purged
from holdfast.model.errors import (
    HoldfastError,
    InvalidInput,
    StorageError,
    StorageFull,
)
from holdfast.model.event import Event
from holdfast.model.job import MICROSECONDS, Job

from .events.feed import EventFeed
from .events.store import SqliteEvents
from .history.feed import HistoryFeed
from .history.store import SqliteHistory
from .opening import open_files
from .options import JournalOptions
from .samples.store import SqliteSamples
from .snapshots.compaction import (
    KEPT_SNAPSHOTS,
    CompactionRequest,
    CompactionResult,
    adopt,
    compact,
)
from .snapshots.compactor import compact_in_process
from .snapshots.snapshot import discard_unfinished, snapshot_name
from .state.state import TOKENS_PER_SEGMENT_BITS, JournalState
from .wal.disk import Disk, LocalDisk, file_size, remedy
from .wal.flush import AdaptiveRunner, FlushRunner, InlineRunner, ThreadRunner
from .wal.group_commit import GroupCommit, SyncMode
from .wal.recovery import RecoveredState
from .wal.segments import SegmentWriter, segment_name

log = StructuredLog("holdfast.journal")

_FORGET_EVERY_US = 60 * MICROSECONDS


class RecoveryReport(msgspec.Struct, frozen=True):
    """What opening the directory found."""

    closed_in_order: bool
    last_seq: int
    jobs: int
    seconds: float
    torn_bytes: int
    damaged_snapshots: list[str]
    leases_ended: int


class JournalEngine(EmbeddedEngine):
    """Keeps work in a directory that it alone owns. Use ``JournalEngine.open``."""

    recovery: RecoveryReport

    def __init__(
        self,
        disk: Disk,
        state: JournalState,
        history: SqliteHistory,
        events: SqliteEvents,
        writer: SegmentWriter,
        clock: Clock,
        options: JournalOptions,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        """Take what ``open`` has prepared."""
        self.commit = GroupCommit(
            writer,
            self._runner(options),
            options.sync,
            options.sync_interval_seconds,
            after_rotation=self._after_rotation,
        )
        self._history = HistoryFeed(
            history,
            durable_seq=self._durable_seq,
            fed=self._after_feeding,
            inline=options.inline,
            max_backlog=options.max_history_backlog,
            max_bytes=options.max_history_bytes,
            threads=self._threads,
        )
        self._event_feed = EventFeed(
            events,
            durable_seq=self._durable_seq,
            inline=options.inline,
            max_bytes=options.max_events_backlog_bytes,
            threads=self._threads,
        )
        threads = None if options.inline else self._threads
        super().__init__(
            Capabilities(name="journal", durable=True, shared=False),
            state,
            self.commit,
            self._history,
            self._event_feed,
            clock,
            random_bytes,
            options,
            SqliteSamples(disk.samples, threads),
            read_models=disk.read_models,
            threads=threads,
        )
        self._disk, self._writer = disk, writer
        self._options = options
        self._state = state
        self.lost_at_open: list[Job] = []
        """The jobs, as they are now, that were lost with the process that owned this before."""
        self._closing = False
        self._compaction = asyncio.Lock()
        self._compacting: asyncio.Task[None] | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._forgot_at_us = 0
        self._snapshot_seq = self._snapshot_bytes = self._covered_bytes = 0

    @classmethod
    async def open(
        cls,
        directory: str | Path | Disk,
        *,
        clock: Clock | None = None,
        options: JournalOptions | None = None,
        random_bytes: Callable[[int], bytes] = pooled_bytes,
    ) -> JournalEngine:
        """Become the owner of the directory, recover what is in it, and return the engine.

        Raise ``DirectoryInUse``, ``CorruptLog``, ``UnknownFormat``, ``StorageFull`` or another
        ``StorageError``; then nothing was lost or changed for the worse.
        """
        if isinstance(directory, bytes) or not isinstance(directory, str | Path | Disk):
            raise InvalidInput("directory", f"a {type(directory).__name__} is not a directory")
        disk = LocalDisk(directory) if isinstance(directory, str | Path) else directory
        clock = clock or SystemClock()
        options = options or JournalOptions()
        began_us = clock.now_us()
        disk.lock()
        try:
            work = partial(open_files, disk, options, random_bytes)
            opened = work() if options.inline else await asyncio.to_thread(work)
        except BaseException as error:
            disk.unlock()
            if isinstance(error, OSError):
                raise StorageError(f"{disk.root} cannot be opened: {error}") from error
            raise
        found = opened.found
        files = (found.state, opened.history, opened.events, opened.writer)
        engine = cls(disk, *files, clock, options, random_bytes)
        try:
            engine._note_files(found)
            await engine._catch_up(opened.unrecorded, opened.unstored)
            ended = await engine._end_own_leases(closed_in_order=found.end.closed)
            if found.migrated:
                await engine._write_back()
        except BaseException as error:
            # Not a clean close: the next open must do what this one did not.
            engine.commit.stop(error)
            with contextlib.suppress(HoldfastError):
                await engine.close()
            if isinstance(error, OSError):
                raise StorageError(f"{disk.root} cannot be opened: {error}") from error
            raise
        engine._report(found, ended, (clock.now_us() - began_us) / MICROSECONDS)
        return engine

    def _report(self, found: RecoveredState, leases_ended: int, seconds: float) -> None:
        """Keep what opening found, and log it."""
        self.recovery = RecoveryReport(
            closed_in_order=found.end.closed,
            last_seq=found.end.last_seq,
            jobs=len(found.state),
            seconds=seconds,
            torn_bytes=len(found.end.torn),
            damaged_snapshots=[damaged.file for damaged in found.damaged_snapshots],
            leases_ended=leases_ended,
        )
        log.emit(
            "journal.opened",
            directory=str(self._disk.root),
            sync=self._options.sync.value,
            jobs=self.recovery.jobs,
            last_seq=self.recovery.last_seq,
            seconds=round(self.recovery.seconds, 3),
        )

    async def _write_back(self) -> None:
        """Write what was read of an older schema as a snapshot, so that it is migrated once."""
        try:
            await self.compact()
        except HoldfastError as error:  # it is readable as it is: the next start tries again
            log.emit("journal.compaction_failed", error=error)

    async def _catch_up(
        self, unrecorded: Sequence[AppliedEffect], unstored: Sequence[Event]
    ) -> None:
        """Count the jobs in history, and record what it and the store of events lack."""
        self._state.add_counts(self._history.store.tallies())
        for applied in unrecorded:
            self._history.record(applied)
        self._state.record = self._history.record
        for event in unstored:
            self._event_feed.record(event)
        self._state.record_event = self._event_feed.record
        if any(isinstance(one.effect, Purged) for one in unrecorded):
            with contextlib.suppress(StorageError):  # logged, and retried later
                await self._history.flush()  # until then purged jobs would still be found

    @property
    def clock(self) -> Clock:
        """The clock that decides when leases end."""
        return self._core.clock

    @property
    def failure(self) -> HoldfastError | None:
        """Why the engine has stopped for good, if it has."""
        return self.commit.failure

    def figures(self) -> StoreMetrics:
        """Return the store's metrics, from memory; they may not be durable yet."""
        return StoreMetrics(
            survey=self.survey(),
            fsync_seconds=self._writer.fsync_seconds,
            batch_records=self.commit.batch_records,
            recovery_seconds=self.recovery.seconds,
            history_backlog=self._history.unfed,
            history_failing=self._history.failure is not None,
        )

    def held_now(self) -> list[Job]:
        """Return the jobs in flight, from memory; they may not be durable yet."""
        return self._state.in_flight()

    def kept(self) -> list[Job]:
        """Return every job, finished or not, for tests; they may not be durable yet."""
        jobs = {(job.tenant, job.id): job for job in self._history.store.jobs()}
        jobs |= {(job.tenant, job.id): job for job in self._state.jobs()}
        return list(jobs.values())

    async def close(self) -> None:
        """See ``Engine.close``; the log is closed cleanly, even if the caller is cancelled."""
        self._closing = True
        await _uninterrupted(self._close)

    async def _close(self) -> None:
        for task in (self._compacting, self._sweeping):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        # Wait for a caller's own compaction: nothing may touch the files after the unlock.
        async with self._compaction:
            if self._core.closed:
                return
            try:
                await super().close()
            finally:
                self._disk.unlock()

    async def compact(self) -> CompactionResult | None:
        """Write a snapshot of everything up to now and drop the segments that it replaces.

        Return None when nothing has changed since the last one.
        """
        async with self._compaction:
            self._core.check_open()
            try:
                return await self._compact()
            except OSError as error:
                advice = remedy(error, self._disk.snapshots)
                raise StorageError(f"no snapshot could be written ({error}): {advice}") from error

    async def _compact(self) -> CompactionResult | None:
        discard_unfinished(self._disk)
        keep_snapshots = KEPT_SNAPSHOTS
        try:
            await self.commit.run(self._writer.seal)
        except StorageFull:
            # No room for another segment: compact what is sealed and keep only one snapshot.
            if self._writer.sealed_bytes <= self._covered_bytes:
                raise
            keep_snapshots = 1
        if self._writer.last_seq == self._snapshot_seq:
            return None
        covered_bytes = self._writer.sealed_bytes
        last_sealed = self._writer.last_sealed
        # A snapshot leaves finished jobs to history, and events to their store.
        await self._history.cover()
        await self._event_feed.cover()
        request = CompactionRequest(
            self._disk.root,
            self._disk.snapshots,
            last_sealed,
            int.from_bytes(self._core.random_bytes(4), "little"),
        )
        keep = self._options.keep_log_bytes
        if self._options.inline:
            done = compact(self._disk, request)
            adopt(self._disk, done, keep, keep_snapshots=keep_snapshots)
        else:
            done = await self._compact_in_process(request)
            take = partial(adopt, self._disk, done, keep, keep_snapshots=keep_snapshots)
            await _uninterrupted(partial(asyncio.to_thread, take))
        self._remember_snapshot(done.last_seq, done.size, covered_bytes)
        return done

    # --- threads and processes: the simulation replaces these --------------------------------

    def _runner(self, options: JournalOptions) -> FlushRunner:
        """Return what runs the flushes."""
        if options.inline:
            return InlineRunner()
        return AdaptiveRunner(ThreadRunner(asyncio.get_running_loop()))

    def _threads(self, count: int, name: str) -> Executor:
        """Return threads for history."""
        return ThreadPoolExecutor(count, name)

    async def _compact_in_process(self, request: CompactionRequest) -> CompactionResult:
        """Have another process write the next snapshot."""
        return await compact_in_process(request)

    # --- history -----------------------------------------------------------------------------

    async def _durable_seq(self) -> int:
        """Make everything up to now durable; return its last sequence number."""
        seq = self._state.seq
        await self._core.durable()
        if self._options.sync is not SyncMode.ALWAYS:
            await self.commit.run(self._writer.sync)
        return seq

    def _after_feeding(self, checkpoint: int) -> None:
        self._state.evict(checkpoint)
        now_us = self._core.now_us()
        pause_us = min(self._core.remember_us // 60, _FORGET_EVERY_US)
        if (
            (now_us - self._forgot_at_us > pause_us or self._history.too_large)
            and self._sweeping is None
            and not self._closing
            and not self._options.inline
        ):
            self._forgot_at_us = now_us
            self._sweeping = asyncio.get_running_loop().create_task(self._sweep())

    async def _sweep(self) -> None:
        """Drop jobs that finished long ago, in the background; ``counts`` does it too."""
        try:
            await self._core.forget()
        except HoldfastError as error:
            log.emit("journal.forgetting_failed", error=error)
        finally:
            self._sweeping = None

    # --- files -------------------------------------------------------------------------------

    def compaction_due(self) -> bool:
        """Whether enough was sealed since the last snapshot to be worth a new one."""
        least = max(self._options.compact_bytes, self._snapshot_bytes)
        return self._writer.sealed_bytes - self._covered_bytes >= least

    def _remember_snapshot(self, last_seq: int, size: int, covered_bytes: int) -> None:
        self._snapshot_seq = last_seq
        self._snapshot_bytes = size
        self._covered_bytes = covered_bytes

    def _note_files(self, found: RecoveredState) -> None:
        """Set what depends on the files: what is left to compact, the time, the tokens."""
        seq, size, first = 0, 0, 1
        if found.snapshot is not None:
            seq, first = found.snapshot.last_seq, found.snapshot.first_segment
            size = file_size(self._disk, snapshot_name(seq))
        numbers = range(first, self._writer.last_sealed + 1)
        waiting = sum(file_size(self._disk, segment_name(number)) for number in numbers)
        self._remember_snapshot(seq, size, self._writer.sealed_bytes - waiting)
        # Time continues from the log's, even if the clock was set back.
        core = self._core
        core.ahead_us = max(0, found.state.last_at_us - core.clock.now_us())
        # Above every token of an earlier process, including those lost with unsynced records.
        floor = max(
            (self._writer.last_sealed + 1) << TOKENS_PER_SEGMENT_BITS, found.state.last_token
        )
        core.token_offset = floor - found.state.seq

    def _after_rotation(self) -> None:
        if self.compaction_due() and self._compacting is None and not self._closing:
            self._compacting = asyncio.get_running_loop().create_task(self._compact_in_background())

    async def _compact_in_background(self) -> None:
        try:
            await self.compact()
        except Exception as error:  # noqa: BLE001 - a background task must not raise
            # The log is complete without it: try again after the next segment.
            log.emit("journal.compaction_failed", error=error)
        finally:
            self._compacting = None

    async def _end_own_leases(self, *, closed_in_order: bool) -> int:
        """End the leases of the slots of the process that owned this directory before."""
        now_us = self._core.now_us()
        ended = 0
        while own := [
            job for job in self._state.in_flight() if job.worker.startswith(OWN_SLOT_PREFIX)
        ]:
            effects: list[Effect] = []
            for job in own[:MAX_CLAIM]:
                if closed_in_order or lifecycle.runs_alone(job):
                    # A job that runs alone, in its own process, cannot have crashed the owner.
                    effects.append(lifecycle.settle(job, outcome.release(job), now_us))
                else:
                    why = f"{job.worker} ended with the process that owned the store"
                    effects.append(lifecycle.lose(job, now_us, "worker_lost", why))
            done = self._core.commit_most(
                effects, lambda ends: self._commands.with_dependents(ends, now_us)
            )
            if not done:
                raise StorageFull(f"{self._disk.root} has no room to end the leases of its slots")
            ended += len(done)
            self.lost_at_open += [
                job for job, effect in zip(done, effects, strict=False) if _is_loss(effect)
            ]
            await self._core.durable()
        return ended


def _is_loss(effect: Effect) -> bool:
    return isinstance(effect, Lost | Died | Cancelled)


async def _uninterrupted(work: Callable[[], Coroutine[None, None, None]]) -> None:
    """Run this to its end, even if the caller is cancelled meanwhile."""
    loop = asyncio.get_running_loop()  # first: without a loop nothing may start
    task = loop.create_task(work())
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
