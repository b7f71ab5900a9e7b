"""Snapshots: the whole state in one file, written beside the log and put in place by a rename.

A HEAD frame says what it covers, JOBS frames hold the jobs compressed, an END frame closes it.
"""

from __future__ import annotations

import contextlib
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

import msgspec

from holdfast.engines.journal.state.limits import LimitUsage
from holdfast.engines.journal.wal import frames
from holdfast.engines.journal.wal.disk import SNAPSHOTS, Disk, read_all, write_all
from holdfast.engines.journal.wal.frames import BadFrame, Frame, FrameKind
from holdfast.engines.journal.wal.schema import SCHEMA, RecordReader
from holdfast.model.audit import AuditHead
from holdfast.model.effects import ScheduleState
from holdfast.model.errors import CorruptLog, InvariantViolation, UnknownFormat
from holdfast.model.group_life import GroupLife
from holdfast.model.job import Job, Whole
from holdfast.model.operation import Operation
from holdfast.model.outage import Outage
from holdfast.model.policy import QueuePolicy
from holdfast.model.projection import ProjectionState
from holdfast.model.record import Record
from holdfast.model.subscription import Subscription

SUFFIX = ".snap"
UNFINISHED_SUFFIX = ".new"
_CHUNK_JOBS = 4_096
_CHUNKS_AHEAD = 2
_MOST_CHUNK_BYTES = frames.MAX_FRAME_BYTES // 2
"""A chunk of several jobs is smaller, so that it fits into a frame even if nothing compresses."""


class SnapshotHead(msgspec.Struct, frozen=True):
    """The first frame of a snapshot: what it covers."""

    last_seq: Whole
    last_at_us: Whole
    last_crc: Whole
    """The CRC of the log frame that holds ``last_seq``: the log continues from there."""
    first_segment: Whole
    """The first segment that holds something newer."""
    salt: Whole
    cold: bool = False
    """Whether finished jobs are in the history; if not, they are in the snapshot."""
    last_token: Whole = 0
    """No token up to this one is ever issued again."""
    policies: dict[str, QueuePolicy] = {}
    gates: dict[str, LimitUsage] = {}
    flags: dict[str, bool] = {}
    schedules: dict[str, ScheduleState] = {}
    audit_head: AuditHead = AuditHead()
    last_created_us: Whole = 0
    """When the job that was enqueued last was created; it may be finished or purged."""
    outages: list[Outage] = []
    """Those that last, and the last ones that have ended."""
    operations: list[Operation] = []
    group_lives: dict[str, GroupLife] = {}
    subscriptions: dict[str, Subscription] = {}
    fanout_version: Whole = 0
    last_event_seq: Whole = 0
    """The position of the last event: the store of events must have everything up to it."""
    projections: dict[str, ProjectionState] = {}
    unordered: list[Whole] = []
    """The tokens of jobs that were claimed while the keys of their queue had no order."""
    records: list[Record] = []


def snapshot_name(last_seq: int) -> str:
    """Return the file name of the snapshot up to this sequence number."""
    return f"{SNAPSHOTS}/{last_seq:020d}{SUFFIX}"


def snapshot_names(disk: Disk) -> list[str]:
    """Return the snapshots that are in place, newest first."""
    return [name for name in reversed(disk.names(SNAPSHOTS)) if name.endswith(SUFFIX)]


def write_unfinished(disk: Disk, head: SnapshotHead, jobs: Iterable[Job]) -> tuple[str, int]:
    """Write a snapshot under a temporary name, synced; return the name and its size."""
    name = snapshot_name(head.last_seq) + UNFINISHED_SUFFIX
    encoder = msgspec.msgpack.Encoder()
    fd = disk.create(name)
    try:
        frame, crc = frames.encode(FrameKind.HEAD, SCHEMA, encoder.encode(head))
        write_all(disk, fd, frame, 0)
        offset, total = len(frame), 0
        source = iter(jobs)
        while chunk := list(islice(source, _CHUNK_JOBS)):
            for part in _parts(encoder, chunk):
                frame, crc = frames.encode(
                    FrameKind.JOBS,
                    SCHEMA,
                    part[0],
                    first_seq=total,
                    count=part[1],
                    prev_crc=crc,
                    salt=head.salt,
                )
                write_all(disk, fd, frame, offset)
                offset += len(frame)
                total += part[1]
        frame, _crc = frames.encode(
            FrameKind.END, SCHEMA, b"", first_seq=total, prev_crc=crc, salt=head.salt
        )
        write_all(disk, fd, frame, offset)
        disk.sync(fd)
        return name, offset + len(frame)
    finally:
        disk.close(fd)


def _parts(encoder: msgspec.msgpack.Encoder, jobs: list[Job]) -> Iterator[tuple[bytes, int]]:
    """Compress a chunk, in halves as long as one is too large."""
    encoded = encoder.encode(jobs)
    if len(jobs) == 1 or len(encoded) <= _MOST_CHUNK_BYTES:
        yield zlib.compress(encoded, 1), len(jobs)
        return
    middle = len(jobs) // 2
    yield from _parts(encoder, jobs[:middle])
    yield from _parts(encoder, jobs[middle:])


def put_in_place(disk: Disk, unfinished: str) -> str:
    """Check a finished temporary snapshot and give it its name; return the name."""
    for _frame in _frames(read_all(disk, unfinished), unfinished):
        pass
    name = unfinished.removesuffix(UNFINISHED_SUFFIX)
    disk.rename(unfinished, name)
    disk.sync_directory(SNAPSHOTS)
    return name


def is_whole(disk: Disk, name: str) -> bool:
    """Whether every checksum of the snapshot is right."""
    try:
        for _frame in _frames(read_all(disk, name), name):
            pass
    except CorruptLog:
        return False
    return True


def discard_unfinished(disk: Disk) -> None:
    """Remove what an interrupted compaction left behind."""
    for name in disk.names(SNAPSHOTS):
        if name.endswith(UNFINISHED_SUFFIX):
            with contextlib.suppress(OSError):
                disk.remove(name)


def read_head(disk: Disk, name: str) -> SnapshotHead:
    """Return a snapshot's head; raise ``CorruptLog`` if that much cannot be read."""
    return _head(next(_frames(read_all(disk, name), name)), name)


def is_current(disk: Disk, head: SnapshotHead) -> bool:
    """Whether the snapshot with this head has today's schema."""
    name = snapshot_name(head.last_seq)
    return next(_frames(read_all(disk, name), name)).schema == SCHEMA


def read_snapshot(
    disk: Disk, name: str, load: Callable[[Iterator[Job], SnapshotHead], None]
) -> SnapshotHead:
    """Read a whole snapshot and pass its jobs to ``load``; raise ``CorruptLog`` if damaged."""
    # Check every checksum before the first job is loaded.
    whole = list(_frames(read_all(disk, name), name))
    head = _head(whole[0], name)
    reader = RecordReader(name)

    def jobs() -> Iterator[Job]:
        if len(whole) <= _CHUNKS_AHEAD + 2:
            for frame in whole[1:-1]:
                yield from reader.jobs(_unpack(frame.payload), frame.schema)
            return
        with ThreadPoolExecutor(1) as ahead:
            # zlib releases the interpreter lock: unpack one chunk while another is decoded.
            waiting: deque[tuple[int, Future[bytes]]] = deque()
            for frame in whole[1:-1]:
                waiting.append((frame.schema, ahead.submit(_unpack, frame.payload)))
                if len(waiting) > _CHUNKS_AHEAD:
                    schema, unpacked = waiting.popleft()
                    yield from reader.jobs(unpacked.result(), schema)
            for schema, unpacked in waiting:
                yield from reader.jobs(unpacked.result(), schema)

    try:
        load(jobs(), head)
    except (
        zlib.error,
        msgspec.MsgspecError,
        ValueError,
        UnicodeDecodeError,
        InvariantViolation,
    ) as error:
        problem = f"its jobs cannot be read ({error})"
        raise CorruptLog(name, 0, head.last_seq, problem) from None
    return head


def _unpack(payload: bytes) -> bytes:
    # A job fits into a log frame: one that does not cannot have come from there.
    limit = frames.MAX_FRAME_BYTES * 2
    unpacker = zlib.decompressobj()
    data = unpacker.decompress(payload, limit)
    if not unpacker.eof:
        raise zlib.error("the compressed part is incomplete or too large")
    return data


def _frames(data: bytes, name: str) -> Iterator[Frame]:
    """Yield the frames of a snapshot; check everything but the content of the jobs."""
    offset = prev_crc = salt = total = 0
    expected = {int(FrameKind.HEAD)}
    while expected:
        try:
            frame = frames.read(data, offset, salt)
        except BadFrame as bad:
            if bad.unknown_format is not None:
                raise UnknownFormat(
                    name, "frame format", bad.unknown_format, frames.FORMAT
                ) from None
            raise CorruptLog(name, offset, total, bad.problem) from None
        if frame is None or frame.kind not in expected:
            raise CorruptLog(name, offset, total, "a part of the snapshot is missing")
        if frame.prev_crc != prev_crc or frame.first_seq != total:
            raise CorruptLog(name, offset, total, "a part of the snapshot is out of order")
        yield frame
        if frame.kind == FrameKind.HEAD:
            salt = _head(frame, name).salt
        offset, prev_crc = frame.end, frame.crc
        total += frame.count
        expected = (
            set() if frame.kind == FrameKind.END else {int(FrameKind.JOBS), int(FrameKind.END)}
        )
    if offset != len(data):
        raise CorruptLog(name, offset, total, "something follows its end")


def _head(frame: Frame, name: str) -> SnapshotHead:
    if frame.schema > SCHEMA:
        raise UnknownFormat(name, "schema version", frame.schema, SCHEMA)
    try:
        return msgspec.msgpack.decode(frame.payload, type=SnapshotHead)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptLog(name, 0, 0, f"its head cannot be read ({error})") from None
