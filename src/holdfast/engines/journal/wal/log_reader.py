"""Reads the log, and decides whether what cannot be read is a torn end or damage.

A torn end is the last frame, never written completely and never acknowledged. It can only be in
the last segment that was written to, with no whole frame after it, and at least one of its
sectors still blank. Everything else that fails a check is ``CorruptLog``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec

from holdfast.model.errors import CorruptLog, UnknownFormat

from . import frames
from .disk import LOG, Disk, read_all
from .frames import BadFrame, Frame, FrameKind
from .schema import SCHEMA
from .segments import KEPT_SUFFIX, SUFFIX, SegmentHead, segment_name

_HEAD_BYTES_MOST = 512
"""No description of a segment is longer."""
_WORTH_A_THREAD = 3
"""Up to so many segments are read one after another."""

Visit = Callable[[Frame, str, int], None]
"""Called with each frame of records, the file's name and the frame's offset."""


class LogEnd(msgspec.Struct, frozen=True):
    """Where the log ends."""

    next_number: int
    """The number of the next segment."""
    prev_crc: int
    last_seq: int
    closed: bool
    """Whether the engine was closed cleanly."""
    unsealed: bytes | None = None
    """The whole frames of the last segment, if it has no end: it must be rewritten."""
    salt: int = 0
    torn_offset: int | None = None
    torn: bytes = b""


class _SegmentScan(msgspec.Struct):
    number: int
    name: str
    data: bytes
    head: SegmentHead
    first_offset: int


def segment_numbers(disk: Disk) -> list[int]:
    """Return the numbers of the existing segments, in order."""
    names = [name for name in disk.names(LOG) if name.endswith(SUFFIX)]
    stems = [name.removeprefix(f"{LOG}/").removesuffix(SUFFIX) for name in names]
    return sorted(int(stem) for stem in stems if stem.isdigit())


def kept_names(disk: Disk) -> list[str]:
    """Return the needless segments that are kept for inspection, in order."""
    return sorted(name for name in disk.names(LOG) if name.endswith(SUFFIX + KEPT_SUFFIX))


def read_kept(disk: Disk, name: str, visit: Visit) -> None:
    """Read one of these; raise ``CorruptLog`` if a checksum is wrong."""
    data = read_all(disk, name)
    last_seq = 0
    try:
        for frame in _whole_frames(data):
            if frame.kind == FrameKind.RECORDS:
                visit(frame, name, frame.start)
            last_seq = frame.first_seq + frame.count - 1
    except BadFrame as bad:
        raise CorruptLog(name, bad.offset, last_seq, bad.problem) from None


def used_bytes(data: bytes) -> int:
    """Return where the last whole frame of a segment ends."""
    end = 0
    with contextlib.suppress(BadFrame):
        for frame in _whole_frames(data):
            end = frame.end
    return end or len(data)


def _whole_frames(data: bytes) -> Iterator[Frame]:
    """Yield the frames of a segment; raise ``BadFrame`` where one cannot be read."""
    frame = frames.read(data, 0)
    salt = 0 if frame is None else msgspec.msgpack.decode(frame.payload, type=SegmentHead).salt
    while frame is not None:
        yield frame
        frame = frames.read(data, frame.end, salt)


class LogReader:
    """Reads segments in order, from a known point on."""

    def __init__(self, disk: Disk, *, prev_crc: int = 0, last_seq: int = 0) -> None:
        self.prev_crc = prev_crc
        self.last_seq = last_seq
        self._disk = disk

    def read(self, first: int, visit: Visit, *, last: int | None = None) -> LogEnd:
        """Read from segment ``first`` to the end of the log, or to the end of ``last``."""
        numbers = [n for n in segment_numbers(self._disk) if n >= first]
        wanted = [n for n in numbers if last is None or n <= last]
        number = first
        for found, data in self._contents(wanted):
            if found != number:
                break  # there is a gap: segments after it must be blank
            # A blank segment was begun too: its number and its tokens are used up.
            segment = self._segment(number, data)
            end = self._frames(segment, visit, [n for n in numbers if n > number])
            number += 1
            if end is not None:
                self._check_blank([n for n in numbers if n >= number])
                return end
        self._check_blank([n for n in numbers if n >= number and last is None])
        return LogEnd(number, self.prev_crc, self.last_seq, closed=False)

    def _contents(self, numbers: list[int]) -> Iterator[tuple[int, bytes]]:
        """Yield the content of the segments, reading one ahead if there are several."""
        if len(numbers) <= _WORTH_A_THREAD:
            for number in numbers:
                yield number, read_all(self._disk, segment_name(number))
            return
        with ThreadPoolExecutor(1) as ahead:
            reading = ahead.submit(read_all, self._disk, segment_name(numbers[0]))
            for number, following in zip(numbers, [*numbers[1:], None], strict=True):
                data = reading.result()
                if following is not None:
                    reading = ahead.submit(read_all, self._disk, segment_name(following))
                yield number, data

    def _segment(self, number: int, data: bytes) -> _SegmentScan:
        """Check the segment's description."""
        name = segment_name(number)
        try:
            first = frames.read(data, 0)
        except BadFrame as bad:
            if bad.unknown_format is not None:
                raise UnknownFormat(
                    name, "frame format", bad.unknown_format, frames.FORMAT
                ) from None
            raise CorruptLog(name, 0, self.last_seq, bad.problem) from None
        if first is None or first.kind != FrameKind.HEAD:
            raise CorruptLog(name, 0, self.last_seq, "the segment's description is missing")
        head = _head(first, name)
        if head.number != number:
            raise CorruptLog(name, 0, self.last_seq, f"this is segment {head.number}, misplaced")
        if len(data) > head.size:
            raise CorruptLog(name, head.size, self.last_seq, "the segment is longer than it was")
        return _SegmentScan(number, name, data, head, first.end)

    def _frames(self, segment: _SegmentScan, visit: Visit, following: list[int]) -> LogEnd | None:
        """Read one segment; return the end of the log if it is in here."""
        offset = segment.first_offset
        while True:
            try:
                frame = frames.read(segment.data, offset, segment.head.salt)
            except BadFrame as bad:
                self._check_torn(segment, bad)
                return self._unsealed(segment, offset, torn=segment.data[offset:].rstrip(b"\0"))
            if frame is None:
                if len(segment.data) != segment.head.size:
                    self._raise(segment, offset, "the segment was cut short")
                return self._unsealed(segment, offset)
            self._check_chain(segment, frame, offset)
            if frame.kind in (FrameKind.SEAL, FrameKind.CLOSE):
                self._check_end(segment, frame, offset, following)
                self.prev_crc = frame.crc
                closed = frame.kind == FrameKind.CLOSE and segment.number + 1 not in following
                return (
                    LogEnd(segment.number + 1, frame.crc, self.last_seq, closed=True)
                    if closed
                    else None
                )
            visit(frame, segment.name, offset)
            self.prev_crc = frame.crc
            self.last_seq = frame.first_seq + frame.count - 1
            offset = frame.end

    def _unsealed(self, segment: _SegmentScan, offset: int, torn: bytes = b"") -> LogEnd:
        return LogEnd(
            segment.number + 1,
            self.prev_crc,
            self.last_seq,
            closed=False,
            unsealed=segment.data[:offset],
            salt=segment.head.salt,
            torn_offset=offset if torn else None,
            torn=torn,
        )

    def _check_chain(self, segment: _SegmentScan, frame: Frame, offset: int) -> None:
        if frame.kind not in (FrameKind.RECORDS, FrameKind.SEAL, FrameKind.CLOSE):
            self._raise(segment, offset, f"a frame of kind {frame.kind} does not belong here")
        if frame.first_seq != self.last_seq + 1 or frame.prev_crc != self.prev_crc:
            self._raise(
                segment, offset, f"it does not follow seq {self.last_seq}: something is missing"
            )
        if (frame.count == 0) is (frame.kind == FrameKind.RECORDS):
            self._raise(segment, offset, f"a frame of {frame.count} records")

    def _check_end(
        self, segment: _SegmentScan, frame: Frame, offset: int, following: list[int]
    ) -> None:
        if not frames.is_blank(segment.data, frame.end):
            self._raise(segment, frame.end, "something follows the segment's end")
        if frame.kind == FrameKind.SEAL and segment.number + 1 not in following:
            self._raise(segment, offset, "the next segment is missing")

    def _check_torn(self, segment: _SegmentScan, bad: BadFrame) -> None:
        """Return if the bad frame is a torn end; raise otherwise."""
        if bad.unknown_format is not None:
            known = frames.FORMAT
            raise UnknownFormat(segment.name, "frame format", bad.unknown_format, known)
        data, salt = segment.data, segment.head.salt
        if len(data) != segment.head.size:
            self._raise(segment, bad.offset, bad.problem)
        if segment.head.relaxed:
            return  # only what had been synced was promised
        whole_after = frames.find_after(data, bad.offset, salt)
        if whole_after is not None:
            self._raise(
                segment, bad.offset, f"{bad.problem}, and a whole frame follows at {whole_after}"
            )
        if not frames.looks_torn(data, bad.offset, salt):
            self._raise(segment, bad.offset, f"{bad.problem}, though it was written whole")

    def _check_blank(self, numbers: list[int]) -> None:
        """Raise if a segment after the end of the log was written to: frames between are lost."""
        for number in numbers:
            name = segment_name(number)
            data = read_all(self._disk, name)
            try:
                first = frames.read(data, 0)
            except BadFrame:
                first = None
            if first is None or first.kind != FrameKind.HEAD:
                if frames.is_blank(data, _HEAD_BYTES_MOST):
                    continue  # never written to: it will be replaced
                raise CorruptLog(name, 0, self.last_seq, "the segment's description is damaged")
            found = frames.find_after(data, 0, _head(first, name).salt)
            if found is not None:
                problem = "it holds frames, but the segment before it has no end"
                raise CorruptLog(name, found, self.last_seq, problem)

    def _raise(self, segment: _SegmentScan, offset: int, problem: str) -> None:
        raise CorruptLog(segment.name, offset, self.last_seq, problem)


def _head(frame: Frame, name: str) -> SegmentHead:
    if frame.schema > SCHEMA:
        raise UnknownFormat(name, "schema version", frame.schema, SCHEMA)
    try:
        return msgspec.msgpack.decode(frame.payload, type=SegmentHead)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptLog(name, 0, 0, f"its description cannot be read ({error})") from None
