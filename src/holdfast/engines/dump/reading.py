"""Reads a dump from a file. It may come from anywhere: everything is bounded and checked.

A dump that was altered or cut short is refused before anything of it is used, and so is one with a
record that no store would have taken.
"""

from __future__ import annotations

import functools
import hashlib
import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from holdfast.model.errors import CorruptDump, InvalidInput, UnknownFormat

from .checks import check_record
from .format import (
    BLOCK_HEAD,
    BLOCK_RECORDS,
    FORMAT,
    KINDS,
    MAGIC,
    DumpHead,
    DumpManifest,
    DumpRecord,
    kind_of,
    name_of,
)

MAX_BLOCK_BYTES = 512 << 20
"""The most that a block may take, as stored and unpacked: earlier versions wrote blocks of 1,000
records, however large those were."""
MAX_RECORD_BYTES = 16 << 20
"""The most that one record may take, and what is decoded at a time: what a store keeps fits into a
frame of its log."""
MAX_MANIFEST_BYTES = 64 * 1024
_RAW_RECORDS = msgspec.msgpack.Decoder(list[msgspec.Raw])


@functools.cache
def _records() -> msgspec.msgpack.Decoder[DumpRecord]:
    """Return the decoder of a record, made on first use: making it is slow."""
    return msgspec.msgpack.Decoder(DumpRecord)


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
        manifest = msgspec.json.decode(file.readline(MAX_MANIFEST_BYTES), type=DumpManifest)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CorruptDump(name_of(file), f"its manifest cannot be read ({error})") from None
    if manifest.sha256 != digest.hexdigest():
        raise CorruptDump(name_of(file), "its SHA-256 does not match its manifest")
    if head is None or manifest != DumpManifest(
        version, head.engine, head.at_us, dict(counts), manifest.sha256
    ):
        raise CorruptDump(name_of(file), "its record counts or its head do not match its manifest")
    if file.read(1):
        raise CorruptDump(name_of(file), "something follows its manifest")
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
        raise CorruptDump(name_of(file), "it does not begin as a dump does")
    (version,) = struct.unpack("<I", _take(file, 4, digest))
    if version > FORMAT:
        raise UnknownFormat(name_of(file), "dump format", version, FORMAT)
    return int(version)


def _take(file: BinaryIO, size: int, digest: hashlib._Hash) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise CorruptDump(name_of(file), "it ends too early")
    digest.update(data)
    return data


def _blocks(file: BinaryIO, digest: hashlib._Hash) -> Iterator[list[DumpRecord]]:
    """Go through the blocks that follow the beginning."""
    while True:
        size, crc = BLOCK_HEAD.unpack(_take(file, BLOCK_HEAD.size, digest))
        if size == 0:
            return
        if size > MAX_BLOCK_BYTES:
            raise CorruptDump(name_of(file), "the length of a block exceeds the limit")
        packed = _take(file, size, digest)
        if zlib.crc32(packed) != crc:
            raise CorruptDump(name_of(file), "a block is damaged")
        yield from _batches(packed, name_of(file))


def _batches(packed: bytes, name: str) -> Iterator[list[DumpRecord]]:
    """Go through the records of a block; what is decoded at a time is bounded."""
    try:
        raw_records = _RAW_RECORDS.decode(_unpacked(packed))
    except (zlib.error, msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CorruptDump(name, f"a block cannot be read ({error})") from None
    batch: list[DumpRecord] = []
    taken = 0
    for raw in raw_records:
        size = memoryview(raw).nbytes
        if size > MAX_RECORD_BYTES:
            raise CorruptDump(name, f"a record has more than {MAX_RECORD_BYTES:,} bytes")
        if batch and taken + size > MAX_RECORD_BYTES:
            yield batch
            batch, taken = [], 0
        batch.append(_record(raw, name))
        taken += size
    if batch:
        yield batch


def _unpacked(packed: bytes) -> bytes:
    """Decompress a block that has no more records and bytes than it may; raise ``ValueError``."""
    unpacker = zlib.decompressobj()
    head = unpacker.decompress(packed, _ARRAY_HEAD_BYTES)
    if _array_length(head) > BLOCK_RECORDS:
        raise ValueError(f"more than {BLOCK_RECORDS:,} records")
    data = head + unpacker.decompress(unpacker.unconsumed_tail, MAX_BLOCK_BYTES)
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError("the compressed part is incomplete or too large")
    return data


_ARRAY_HEAD_BYTES = 5
_FIXED_ARRAY, _ARRAY_16, _ARRAY_32 = 0x90, 0xDC, 0xDD


def _array_length(head: bytes) -> int:
    """Return how many members the MessagePack array has that begins so."""
    kind = head[0] if head else 0
    if kind & 0xF0 == _FIXED_ARRAY:
        return kind & 0x0F
    if kind not in (_ARRAY_16, _ARRAY_32):
        raise ValueError("not a list of records")
    return int.from_bytes(head[1 : 3 if kind == _ARRAY_16 else 5], "big")


def _record(raw: msgspec.Raw, name: str) -> DumpRecord:
    """Decode and check a record."""
    try:
        record = _records().decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        kind = _kind_of_raw(raw)
        if kind is not None and kind not in KINDS:
            raise CorruptDump(name, f"it has a record of the unknown kind {kind[:60]!r}") from None
        raise CorruptDump(name, f"a record cannot be read ({error})") from None
    try:
        check_record(record)
    except InvalidInput as error:
        problem = f"a record of kind {kind_of(record)} is not valid: {error}"
        raise CorruptDump(name, problem) from None
    return record


def _kind_of_raw(raw: msgspec.Raw) -> str | None:
    try:
        return msgspec.msgpack.decode(_RAW_RECORDS.decode(raw)[0], type=str)
    except (msgspec.MsgspecError, ValueError, RecursionError, IndexError):
        return None
