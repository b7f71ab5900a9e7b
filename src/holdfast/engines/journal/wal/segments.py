"""The log as a series of preallocated files, written by one thread at a time.

A segment gets its final name only when it is allocated, described by its first frame, and synced.
It ends with a SEAL when another follows, or with a CLOSE, and is then truncated, when the engine
was closed. Space is reserved before work is accepted: after that only an error of the device can
stop a write.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable

import msgspec

from holdfast import __version__
from holdfast.engines.clock import monotonic
from holdfast.engines.histogram import Histogram
from holdfast.model.errors import InvariantViolation, StorageFull
from holdfast.model.job import Whole

from . import frames
from .disk import CANNOT_GROW, LOG, Disk, remedy, write_all
from .frames import FrameKind
from .schema import SCHEMA

SUFFIX = ".seg"
KEPT_SUFFIX = ".kept"
"""Follows the name of a segment that is needless, and kept for inspection."""
UNFINISHED_SUFFIX = ".new"
DEFAULT_SEGMENT_BYTES = 64 * 1024 * 1024
_FSYNC_BOUNDS = (0.0001, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)


class SegmentHead(msgspec.Struct, frozen=True):
    """The description of a segment, in its first frame."""

    number: Whole
    size: Whole
    salt: Whole
    relaxed: bool = False
    """Whether several frames may have been written before a sync: a power cut may tear them all."""
    holdfast_version: str = __version__


def segment_name(number: int) -> str:
    """Return the file name of a segment."""
    return f"{LOG}/{number:012d}{SUFFIX}"


class _Segment:
    def __init__(self, fd: int, head: SegmentHead, offset: int) -> None:
        self.fd = fd
        self.head = head
        self.offset = offset

    @property
    def room(self) -> int:
        return self.head.size - self.offset - frames.OVERHEAD  # what the seal needs


class SegmentWriter:
    """Appends frames. ``reserve`` may be called from any thread, the rest from one at a time."""

    def __init__(
        self,
        disk: Disk,
        *,
        first_number: int,
        prev_crc: int,
        last_seq: int,
        segment_bytes: int,
        random_bytes: Callable[[int], bytes],
        relaxed: bool = False,
    ) -> None:
        """Begin a new segment; raise ``StorageFull`` when there is no room for one."""
        self.segment_bytes = segment_bytes
        self.max_frame_bytes = min(frames.MAX_FRAME_BYTES, segment_bytes // 4)
        self.reserve_bytes = segment_bytes // 4
        self.sealed_bytes = 0
        self.syncs = 0
        self.fsync_seconds = Histogram(_FSYNC_BOUNDS)
        self.last_seq = last_seq
        self._disk = disk
        self._random_bytes = random_bytes
        self._relaxed = relaxed
        self._prev_crc = prev_crc
        self._next_number = first_number
        self._spares: deque[_Segment] = deque()
        self._promised = 0
        self._headroom = 0
        """What can be promised without computing the capacity: never more than there is."""
        self._disk_full = False
        self._abandoned = False
        self._lock = threading.Lock()
        self._allocating = threading.Lock()
        self._current = self._allocate()

    @property
    def last_sealed(self) -> int:
        """The number of the last sealed segment."""
        return self._current.head.number - 1

    def reserve(self, size: int, *, essential: bool) -> None:
        """Reserve this many bytes, or raise ``StorageFull``.

        Without ``essential`` the last quarter of a segment stays free for essential effects.
        """
        while True:
            with self._lock:
                room = self._capacity(essential=essential) if size > self._headroom else None
                if room is None or self._promised + size <= room:
                    self._headroom -= size
                    self._promised += size
                    return
            self._add_spare()

    def append(self, payload: bytes, first_seq: int, count: int, promised: int) -> None:
        """Write one frame of records. It is not durable before ``sync``."""
        if first_seq != self.last_seq + 1:
            raise InvariantViolation(f"seq {first_seq} cannot follow {self.last_seq}")
        if len(payload) + frames.OVERHEAD > self._current.room:
            self._rotate()
        self._write(FrameKind.RECORDS, payload, first_seq, count)
        self.last_seq = first_seq + count - 1
        with self._lock:
            self._promised -= promised
            self._headroom = self._capacity(essential=False) - self._promised

    def sync(self) -> None:
        """Return when everything written is on stable storage."""
        began = monotonic()
        self._disk.sync(self._current.fd)
        self.fsync_seconds.observe(monotonic() - began)
        self.syncs += 1

    @property
    def needs_spare(self) -> bool:
        """Whether the next segment must still be allocated."""
        return not self._spares and not self._disk_full

    def prepare(self) -> None:
        """Allocate the next segment ahead of time; a full disk is not an error yet."""
        try:
            if not self._spares:
                self._add_spare()
        except StorageFull:
            self._disk_full = True

    def seal(self) -> None:
        """Seal the current segment, so that it can be compacted, and begin another."""
        if self._current.offset <= _head_end(self._current.head):
            return
        while True:
            # What was promised must still fit when the rest of this segment is given up.
            with self._lock:
                if self._spares and self._promised <= self._room_in(list(self._spares)):
                    break
            self._add_spare()
        self._rotate()

    def close(self) -> None:
        """Close the log cleanly: after this any damage to it is recognised as such."""
        self._write(FrameKind.CLOSE, b"", self.last_seq + 1, 0)
        self.sync()
        self._disk.truncate(self._current.fd, self._current.offset)
        self.sync()
        self.abandon()
        for spare in self._spares:
            self._disk.remove(segment_name(spare.head.number))
        self._spares.clear()
        self._disk.sync_directory(LOG)

    def abandon(self) -> None:
        """Close the files as they are."""
        if not self._abandoned:
            self._abandoned = True
            for segment in (self._current, *self._spares):
                with contextlib.suppress(OSError):
                    self._disk.close(segment.fd)

    def _capacity(self, *, essential: bool) -> int:
        room = self._room_in([self._current, *self._spares])
        return room if essential else room - self.reserve_bytes

    def _room_in(self, segments: list[_Segment]) -> int:
        """How much certainly fits into these, one after another."""
        if len(segments) == 1:
            return segments[0].room
        # A frame that does not fit at the end of a segment leaves the rest of it unused.
        return sum(max(0, segment.room - self.max_frame_bytes) for segment in segments)

    def _rotate(self) -> None:
        # The next segment first: a sealed one without a next is damage.
        if not self._spares:
            self._add_spare()
        self._write(FrameKind.SEAL, b"", self.last_seq + 1, 0)
        self.sync()
        full = self._current
        with self._lock:
            self._current = self._spares.popleft()
            self._headroom = self._capacity(essential=False) - self._promised
        self._disk.close(full.fd)
        self.sealed_bytes += full.offset

    def _write(self, kind: FrameKind, payload: bytes, first_seq: int, count: int) -> None:
        segment = self._current
        frame, self._prev_crc = frames.encode(
            kind,
            SCHEMA,
            payload,
            first_seq=first_seq,
            count=count,
            prev_crc=self._prev_crc,
            salt=segment.head.salt,
        )
        write_all(self._disk, segment.fd, frame, segment.offset)
        segment.offset += len(frame)

    def _add_spare(self) -> None:
        """Allocate a segment; ``reserve`` does not wait for the disk meanwhile."""
        with self._allocating:
            segment = self._allocate()
            with self._lock:
                self._spares.append(segment)

    def _allocate(self) -> _Segment:
        salt = int.from_bytes(self._random_bytes(4), "little")
        head = SegmentHead(self._next_number, self.segment_bytes, salt, self._relaxed)
        frame, _crc = frames.encode(FrameKind.HEAD, SCHEMA, msgspec.msgpack.encode(head))
        name = segment_name(head.number)
        try:
            fd = self._disk.create(name + UNFINISHED_SUFFIX)
            try:
                self._disk.allocate(fd, self.segment_bytes)
                write_all(self._disk, fd, frame, 0)
                self._disk.sync(fd)
                self._disk.rename(name + UNFINISHED_SUFFIX, name)
                self._disk.sync_directory(LOG)
            except BaseException:
                self._disk.close(fd)
                raise
        except OSError as error:
            if error.errno not in CANNOT_GROW:
                raise
            with contextlib.suppress(OSError):
                self._disk.remove(name + UNFINISHED_SUFFIX)
            raise StorageFull(
                f"{self._disk.root} has no room for another segment of "
                f"{self.segment_bytes:,} bytes ({error.strerror}): "
                f"{remedy(error, self._disk.root)}. Work under way goes on meanwhile"
            ) from None
        self._next_number += 1
        self._disk_full = False
        return _Segment(fd, head, len(frame))


def _head_end(head: SegmentHead) -> int:
    return frames.OVERHEAD + len(msgspec.msgpack.encode(head))
