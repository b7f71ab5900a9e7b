"""Everything that a store keeps: an engine-neutral stream of records, and its file format.

The stream begins with a ``DumpHead``. The file is a magic line, blocks of compressed records with
a length and a CRC each, and a manifest with the number of records and the SHA-256 of all before
it: a dump that was altered or cut short is refused before anything of it is used.
"""

from __future__ import annotations

import functools
import hashlib
import struct
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import BinaryIO

import msgspec

from holdfast.model.audit import AuditRecord
from holdfast.model.effects import ScheduleState
from holdfast.model.errors import CorruptDump, UnknownFormat
from holdfast.model.event import Event
from holdfast.model.group_life import GroupLife
from holdfast.model.history import AttemptRecord, Note
from holdfast.model.job import Job, Whole
from holdfast.model.operation import Operation
from holdfast.model.outage import Outage
from holdfast.model.policy import QueuePolicy
from holdfast.model.projection import ProjectionState
from holdfast.model.record import Record
from holdfast.model.subscription import Subscription

FORMAT = 4
"""Version 2 added operations, outages and what people did with groups of failures; version 3 events
and subscriptions; version 4 records."""
MAGIC = b"holdfast dump\n"
BLOCK_RECORDS = 1_000
_BLOCK = struct.Struct("<II")
_MOST_BLOCK_BYTES = 1 << 30


class DumpHead(msgspec.Struct, frozen=True, array_like=True, tag="head"):
    """Where and when the dump was made, and the last numbers that its store issued."""

    engine: str
    at_us: Whole
    last_seq: Whole
    last_token: Whole


class DumpedJob(msgspec.Struct, frozen=True, array_like=True, tag="job"):
    """A job as it is."""

    job: Job


class DumpedAttempt(msgspec.Struct, frozen=True, array_like=True, tag="attempt"):
    """An attempt of this job, except the one that completed it, which is in the job itself."""

    tenant: str
    id: str
    created_at_us: Whole
    attempt: AttemptRecord


class DumpedNote(msgspec.Struct, frozen=True, array_like=True, tag="note"):
    """A note or action of a person on this job."""

    tenant: str
    id: str
    created_at_us: Whole
    note: Note


class DumpedPolicy(msgspec.Struct, frozen=True, array_like=True, tag="policy"):
    """The policy of a queue."""

    queue: str
    policy: QueuePolicy


class DumpedFlag(msgspec.Struct, frozen=True, array_like=True, tag="flag"):
    """A flag that was switched."""

    name: str
    on: bool


class DumpedSchedule(msgspec.Struct, frozen=True, array_like=True, tag="schedule"):
    """A schedule that is known."""

    name: str
    schedule: ScheduleState


class DumpedOutage(msgspec.Struct, frozen=True, array_like=True, tag="outage"):
    """An outage of a dependency that lasts, or one of the last that have ended."""

    outage: Outage


class DumpedOperation(msgspec.Struct, frozen=True, array_like=True, tag="operation"):
    """An operation, with what it has come to."""

    operation: Operation


class DumpedGroup(msgspec.Struct, frozen=True, array_like=True, tag="group"):
    """What people did with a group of failures."""

    id: str
    life: GroupLife


class DumpedAudit(msgspec.Struct, frozen=True, array_like=True, tag="audit"):
    """A record of the audit, in order."""

    record: AuditRecord


class DumpedSubscription(msgspec.Struct, frozen=True, array_like=True, tag="subscription"):
    """A subscription, with the version at which it began."""

    subscription: Subscription


class DumpedProjection(msgspec.Struct, frozen=True, array_like=True, tag="projection"):
    """What is known about a projection: read models are not part of a dump, but rebuilt."""

    state: ProjectionState


class DumpedEvent(msgspec.Struct, frozen=True, array_like=True, tag="event"):
    """An event, by rising position."""

    event: Event


class DumpedRecord(msgspec.Struct, frozen=True, array_like=True, tag="record"):
    """A record that does not expire: those that do, such as sessions, stay behind."""

    record: Record


DumpRecord = (
    DumpHead
    | DumpedJob
    | DumpedAttempt
    | DumpedNote
    | DumpedPolicy
    | DumpedFlag
    | DumpedSchedule
    | DumpedOutage
    | DumpedOperation
    | DumpedAudit
    | DumpedGroup
    | DumpedSubscription
    | DumpedProjection
    | DumpedEvent
    | DumpedRecord
)

_ENCODER = msgspec.msgpack.Encoder()


@functools.cache
def _batches() -> msgspec.msgpack.Decoder[list[DumpRecord]]:
    """Return the decoder of a block, made on first use: making it is slow."""
    return msgspec.msgpack.Decoder(list[DumpRecord])


class DumpManifest(msgspec.Struct, frozen=True):
    """The number of records by kind, and the SHA-256 of all that precedes the manifest."""

    format: int
    engine: str
    at_us: Whole
    records: dict[str, int]
    sha256: str


async def write_dump(file: BinaryIO, batches: AsyncIterator[Sequence[DumpRecord]]) -> DumpManifest:
    """Write the stream into a file that is open for writing; return its manifest."""
    digest = hashlib.sha256()
    counts: Counter[str] = Counter()
    head: DumpHead | None = None

    def put(data: bytes) -> None:
        digest.update(data)
        file.write(data)

    put(MAGIC + struct.pack("<I", FORMAT))
    async for batch in batches:
        for start in range(0, len(batch), BLOCK_RECORDS):
            block = batch[start : start + BLOCK_RECORDS]
            head = head or next((one for one in block if isinstance(one, DumpHead)), None)
            counts.update(kind_of(record) for record in block)
            packed = zlib.compress(_ENCODER.encode(block), 6)
            put(_BLOCK.pack(len(packed), zlib.crc32(packed)) + packed)
    put(_BLOCK.pack(0, 0))
    if head is None:
        raise CorruptDump(_name(file), "the stream has no head")
    manifest = DumpManifest(FORMAT, head.engine, head.at_us, dict(counts), digest.hexdigest())
    file.write(msgspec.json.encode(manifest) + b"\n")
    return manifest


def verify_dump(file: BinaryIO) -> DumpManifest:
    """Read a dump from its beginning to its end; raise ``CorruptDump`` or ``UnknownFormat``."""
    counts: Counter[str] = Counter()
    digest = hashlib.sha256()
    head: DumpHead | None = None
    version = _version(file, digest)
    for batch in _blocks(file, digest):
        head = head or next((one for one in batch if isinstance(one, DumpHead)), None)
        counts.update(kind_of(record) for record in batch)
    try:
        manifest = msgspec.json.decode(file.readline(), type=DumpManifest)
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptDump(_name(file), f"its manifest cannot be read ({error})") from None
    if manifest.sha256 != digest.hexdigest():
        raise CorruptDump(_name(file), "its SHA-256 does not match its manifest")
    if head is None or manifest != DumpManifest(
        version, head.engine, head.at_us, dict(counts), manifest.sha256
    ):
        raise CorruptDump(_name(file), "its record counts or its head do not match its manifest")
    if file.read(1):
        raise CorruptDump(_name(file), "something follows its manifest")
    return manifest


def read_dump(file: BinaryIO) -> Iterator[list[DumpRecord]]:
    """Verify a dump, which must be seekable, then go through its records."""
    file.seek(0)
    verify_dump(file)
    file.seek(0)
    digest = hashlib.sha256()
    _version(file, digest)
    yield from _blocks(file, digest)


def _version(file: BinaryIO, digest: hashlib._Hash) -> int:
    """Read the beginning of a dump; return the version of its format."""
    if _take(file, len(MAGIC), digest) != MAGIC:
        raise CorruptDump(_name(file), "it does not begin as a dump does")
    (version,) = struct.unpack("<I", _take(file, 4, digest))
    if version > FORMAT:
        raise UnknownFormat(_name(file), "dump format", version, FORMAT)
    return int(version)


def _take(file: BinaryIO, size: int, digest: hashlib._Hash) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise CorruptDump(_name(file), "it ends too early")
    digest.update(data)
    return data


def _blocks(file: BinaryIO, digest: hashlib._Hash) -> Iterator[list[DumpRecord]]:
    """Go through the blocks that follow the beginning."""
    while True:
        size, crc = _BLOCK.unpack(_take(file, _BLOCK.size, digest))
        if size == 0:
            return
        if size > _MOST_BLOCK_BYTES:
            raise CorruptDump(_name(file), "the length of a block exceeds the limit")
        packed = _take(file, size, digest)
        if zlib.crc32(packed) != crc:
            raise CorruptDump(_name(file), "a block is damaged")
        try:
            yield _batches().decode(zlib.decompress(packed))
        except (zlib.error, msgspec.MsgspecError, ValueError) as error:
            raise CorruptDump(_name(file), f"a block cannot be read ({error})") from None


def kind_of(record: DumpRecord) -> str:
    """Return the kind of a record."""
    return str(record.__struct_config__.tag)


def _name(file: BinaryIO) -> str:
    return str(getattr(file, "name", "the dump"))
