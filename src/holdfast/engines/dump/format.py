"""Everything that a store keeps: an engine-neutral stream of records, and its file format.

The stream begins with a ``DumpHead``. The file is a magic line, blocks of compressed records with
a length and a CRC each, and a manifest with the number of records and the SHA-256 of all before
it. ``reading`` reads it.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import BinaryIO, get_args

import msgspec

from holdfast.model.audit import AuditRecord
from holdfast.model.effects import ScheduleState
from holdfast.model.errors import CorruptDump
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
"""The most records of a block."""
BLOCK_BYTES = 8 << 20
"""A block that is written has no more than this before it is compressed, or a single record."""
BLOCK_HEAD = struct.Struct("<II")
"""The length of a block as it is stored, and its CRC."""


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

KINDS = tuple(str(kind.__struct_config__.tag) for kind in get_args(DumpRecord))
_ENCODER = msgspec.msgpack.Encoder()


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
            for packed in _packed(block):
                put(BLOCK_HEAD.pack(len(packed), zlib.crc32(packed)) + packed)
    put(BLOCK_HEAD.pack(0, 0))
    if head is None:
        raise CorruptDump(name_of(file), "the stream has no head")
    manifest = DumpManifest(FORMAT, head.engine, head.at_us, dict(counts), digest.hexdigest())
    file.write(msgspec.json.encode(manifest) + b"\n")
    return manifest


def _packed(block: Sequence[DumpRecord]) -> Iterator[bytes]:
    """Compress a block, in halves as long as one is too large."""
    encoded = _ENCODER.encode(block)
    if len(block) == 1 or len(encoded) <= BLOCK_BYTES:
        yield zlib.compress(encoded, 6)
        return
    middle = len(block) // 2
    yield from _packed(block[:middle])
    yield from _packed(block[middle:])


def kind_of(record: DumpRecord) -> str:
    """Return the kind of a record."""
    return str(record.__struct_config__.tag)


def name_of(file: BinaryIO) -> str:
    """Return the name of the file, for messages."""
    return str(getattr(file, "name", "the dump"))
