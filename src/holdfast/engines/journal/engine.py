"""The journal engine: opens a directory, keeps the contract, compacts behind the scenes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import force_setattr

from holdfast.engines.base import MAX_CLAIM, OWN_SLOT_PREFIX, Capabilities, Counts, EngineOptions
from holdfast.engines.clock import Clock, SystemClock
from holdfast.engines.embedded import EmbeddedEngine
from holdfast.engines.entropy import random_bytes as pooled_bytes
from holdfast.model import lifecycle, outcome
from holdfast.model.access import SYSTEM
from holdfast.model.effects import Effect
from holdfast.model.errors import HoldfastError, InvalidInput, StorageError, StorageFull
from holdfast.model.job import MICROSECONDS, Job, check_seconds, check_size

from .commit import GroupCommit, InlineRunner, Sync, ThreadRunner
from .compaction import KEPT_SNAPSHOTS, Compacted, CompactionOrder, adopt, compact
from .compactor import compact_elsewhere
from .disk import Disk, LocalDisk, file_size
from .recovery import Recovered, make_durable, recover, repair, seal_of, tidy
from .segments import DEFAULT_SEGMENT_BYTES, SegmentWriter, segment_name
from .snapshot import discard_unfinished, snapshot_name
from .state import JournalState

logger = logging.getLogger("holdfast.journal")

MIN_SEGMENT_BYTES = 4 * 1024
_TOKENS_PER_SEGMENT_BITS = 36
DEFAULT_COMPACT_BYTES = 64 * 1024 * 1024


class JournalOptions(EngineOptions, frozen=True, kw_only=True):
    """Settings of the journal, on top of those that every engine has."""

    sync: Sync = Sync.ALWAYS
    sync_interval_seconds: float = 0.1
    """With ``sync=interval``: how much acknowledged work a power cut may take, in seconds."""
    segment_bytes: int = DEFAULT_SEGMENT_BYTES
    compact_bytes: int = DEFAULT_COMPACT_BYTES
    """Compact when this much is sealed, and at least as much as the last snapshot."""
    keep_segments: int = 0
    """How many needless segments to keep, renamed, for a person to look at."""
    inline: bool = False
    """Do everything on the event loop, one thing after another: for deterministic tests."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.sync, Sync):
            # A word from a settings file; anything unknown must not pass for "do not sync".
            if self.sync not in list(Sync):
                raise InvalidInput("sync", f"{self.sync!r} is not one of {', '.join(Sync)}")
            force_setattr(self, "sync", Sync(self.sync))
        check_size("segment_bytes", self.segment_bytes, MIN_SEGMENT_BYTES)
        check_size("compact_bytes", self.compact_bytes, 1)
        check_size("keep_segments", self.keep_segments, 0)
        check_seconds("sync_interval_seconds", self.sync_interval_seconds)


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
        writer: SegmentWriter,
        clock: Clock,
        options: JournalOptions,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        """Take what ``open`` has prepared."""
        loop = asyncio.get_running_loop()
        self.commit = GroupCommit(
            writer,
            InlineRunner() if options.inline else ThreadRunner(loop),
            options.sync,
            options.sync_interval_seconds,
            after_rotation=self._after_rotation,
        )
        capabilities = Capabilities(name="journal", durable=True, shared=False)
        super().__init__(capabilities, state, self.commit, clock, random_bytes, options)
        self._disk = disk
        self._writer = writer
        self._journal_options = options
        self._journal_state = state
        self._closing = False
        self._compaction = asyncio.Lock()
        self._compacting: asyncio.Task[None] | None = None
        self._snapshot_bytes = 0
        self._snapshot_seq = 0
        self._covered_bytes = 0

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
            found = recover(disk) if options.inline else await asyncio.to_thread(recover, disk)
            writer = _begin_log(disk, found, options, random_bytes)
        except BaseException as error:
            disk.unlock()
            if isinstance(error, OSError):
                raise StorageError(f"{disk.root} cannot be opened: {error}") from error
            raise
        engine = cls(disk, found.state, writer, clock, options, random_bytes)
        try:
            engine._note_files(found)
            ended = await engine._end_own_leases(closed_in_order=found.end.closed)
        except BaseException as error:
            # Not in order: what this life did not do the next one must.
            engine.commit.stop(error)
            with contextlib.suppress(HoldfastError):
                await engine.close()
            raise
        engine.recovery = RecoveryReport(
            closed_in_order=found.end.closed,
            last_seq=found.end.last_seq,
            jobs=len(found.state),
            seconds=(clock.now_us() - began_us) / MICROSECONDS,
            torn_bytes=len(found.end.torn),
            damaged_snapshots=[damaged.file for damaged in found.damaged_snapshots],
            leases_ended=ended,
        )
        logger.info(
            "journal.opened directory=%s sync=%s jobs=%d last_seq=%d seconds=%.3f",
            disk.root,
            options.sync,
            engine.recovery.jobs,
            engine.recovery.last_seq,
            engine.recovery.seconds,
        )
        return engine

    @property
    def failure(self) -> HoldfastError | None:
        """Why the engine has stopped for good, if it has."""
        return self.commit.failure

    def counts_now(self) -> Mapping[str, Counts]:
        """Return the counts as they are in memory, for a scrape: they promise nothing."""
        return self._journal_state.counts(SYSTEM)

    def kept(self) -> list[Job]:
        """Return every job as it is in memory, for a test: they promise nothing."""
        return list(self._journal_state.jobs())

    async def close(self) -> None:
        """See ``Engine.close``; the log is ended in order, even if the caller is cancelled."""
        self._closing = True
        await _to_the_end(self._close())

    async def _close(self) -> None:
        if self._compacting is not None:
            self._compacting.cancel()
            await asyncio.wait([self._compacting])
        # Somebody's own compaction is waited for: nothing may touch the files once we let go.
        async with self._compaction:
            if self._closed:
                return
            try:
                await super().close()
            finally:
                self._disk.unlock()

    async def compact(self) -> Compacted | None:
        """Write a snapshot of everything up to now and drop what it makes needless.

        Return None when nothing has changed since the last one.
        """
        async with self._compaction:
            self._check_open()
            return await self._compact()

    async def _compact(self) -> Compacted | None:
        discard_unfinished(self._disk)
        keep_snapshots = KEPT_SNAPSHOTS
        try:
            await self.commit.run(self._writer.seal)
        except StorageFull:
            # No room to begin another segment: give up what is sealed, and the second snapshot.
            if self._writer.sealed_bytes <= self._covered_bytes:
                raise
            keep_snapshots = 1
        if self._writer.last_seq == self._snapshot_seq:
            return None
        covered_bytes = self._writer.sealed_bytes
        order = CompactionOrder(
            self._disk.root,
            self._disk.snapshots,
            self._writer.last_sealed,
            self._options.remember_seconds,
            int.from_bytes(self._random_bytes(4), "little"),
        )
        keep = self._journal_options.keep_segments
        try:
            if self._journal_options.inline:
                done = compact(self._disk, order)
                adopt(self._disk, done, keep, keep_snapshots=keep_snapshots)
            else:
                done = await compact_elsewhere(order)
                take = partial(adopt, self._disk, done, keep, keep_snapshots=keep_snapshots)
                await _to_the_end(asyncio.to_thread(take))
        except OSError as error:
            raise StorageError(f"no snapshot could be written: {error}") from error
        self._remember_snapshot(done.last_seq, done.size, covered_bytes)
        return done

    def compaction_due(self) -> bool:
        """Whether enough has been sealed since the last snapshot to be worth a new one."""
        least = max(self._journal_options.compact_bytes, self._snapshot_bytes)
        return self._writer.sealed_bytes - self._covered_bytes >= least

    def _remember_snapshot(self, last_seq: int, size: int, covered_bytes: int) -> None:
        self._snapshot_seq = last_seq
        self._snapshot_bytes = size
        self._covered_bytes = covered_bytes

    def _note_files(self, found: Recovered) -> None:
        """Take note of what an earlier owner left to compact."""
        seq, size, first = 0, 0, 1
        if found.snapshot is not None:
            seq, first = found.snapshot.last_seq, found.snapshot.first_segment
            size = file_size(self._disk, snapshot_name(seq))
        numbers = range(first, self._writer.last_sealed + 1)
        waiting = sum(file_size(self._disk, segment_name(number)) for number in numbers)
        self._remember_snapshot(seq, size, self._writer.sealed_bytes - waiting)
        # Time goes on from the log's, whatever the clock says by now.
        self._ahead_us = max(0, found.state.last_at_us - self._clock.now_us())
        # Above every token of an earlier life, those that were lost with unsynced records too.
        floor = max(
            (self._writer.last_sealed + 1) << _TOKENS_PER_SEGMENT_BITS, found.state.last_token
        )
        self._token_offset = floor - found.state.seq

    def _after_rotation(self) -> None:
        if self.compaction_due() and self._compacting is None and not self._closing:
            self._compacting = asyncio.get_running_loop().create_task(self._compact_quietly())

    async def _compact_quietly(self) -> None:
        try:
            await self.compact()
        except Exception as error:  # noqa: BLE001 - whatever it is must not become a storm
            # The log is whole without it: say so, and try again after the next segment.
            logger.warning("journal.compaction_failed %s", error)
        finally:
            self._compacting = None

    async def _end_own_leases(self, *, closed_in_order: bool) -> int:
        """End the leases of slots that lived in the process that owned this directory before."""
        now_us = self._now_us()
        ended = 0
        while own := [
            job for job in self._journal_state.in_flight() if job.worker.startswith(OWN_SLOT_PREFIX)
        ]:
            effects: list[Effect] = []
            for job in own[:MAX_CLAIM]:
                if closed_in_order or lifecycle.runs_alone(job):
                    # One that ran alone, in a process of its own, did not end its owner.
                    effects.append(lifecycle.settle(job, outcome.release(job), now_us))
                else:
                    why = f"{job.worker} ended with the process that owned the store"
                    effects.append(lifecycle.lose(job, now_us, "worker_lost", why))
            done = len(self._commit_most(effects))
            if not done:
                raise StorageFull(f"{self._disk.root} has no room to end the leases of its slots")
            ended += done
            await self._durable()
        return ended


async def _to_the_end(work: Coroutine[None, None, None]) -> None:
    """Await this even if the caller is cancelled meanwhile: it must not go on behind our back."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


def _begin_log(
    disk: Disk,
    found: Recovered,
    options: JournalOptions,
    random_bytes: Callable[[int], bytes],
) -> SegmentWriter:
    """Make the files ready to go on: the next segment first, then the end of the last one."""
    end = found.end
    make_durable(disk, found)
    tidy(disk, end)
    mend = repair(disk, end)
    writer = SegmentWriter(
        disk,
        first_number=end.next_number,
        prev_crc=end.prev_crc if mend is None else seal_of(end)[1],
        last_seq=end.last_seq,
        segment_bytes=options.segment_bytes,
        random_bytes=random_bytes,
        relaxed=options.sync is not Sync.ALWAYS,
    )
    if mend is not None:
        mend()
    return writer
