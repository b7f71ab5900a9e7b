"""Frames: the layout of bytes in the journal, and how it is checked.

A frame is one commit batch, or one part of a snapshot:

    magic       4   b"HFst"
    format      1   version of this layout
    kind        1   see ``FrameKind``
    schema      2   version of the records inside
    length      4   bytes of payload
    first_seq   8   sequence number of the first record
    count       4   records
    prev_crc    4   CRC of the frame before it
    header_crc  4   over the 28 bytes above, seeded with the file's salt
    payload     length bytes
    crc         4   over the payload, seeded with header_crc

The header has its own CRC, so that a corrupt length is never used: without it, damage in the
middle of a log would look like a torn end. The salt is random in each file and stands in its
first frame: bytes that a user put into a payload never pass for a frame. Each frame names the
one before it, so that frames cannot be lost, repeated or exchanged unseen.
"""

from __future__ import annotations

import enum
import struct
import zlib

import msgspec

MAGIC = b"HFst"
FORMAT = 1
HEADER = struct.Struct("<4sBBHIQIII")
CRC = struct.Struct("<I")
OVERHEAD = HEADER.size + CRC.size
MAX_FRAME_BYTES = 16 * 1024 * 1024
"""No frame is larger: a length is bounded before it is trusted."""


MAX_SEQ = 2**62


class FrameKind(enum.IntEnum):
    """What a frame holds."""

    HEAD = 1
    """The first frame of a file: its description and salt."""
    RECORDS = 2
    SEAL = 3
    """The file is complete and another follows."""
    CLOSE = 4
    """The file is complete and nothing follows: the engine was closed."""
    JOBS = 5
    """A part of a snapshot."""
    END = 6
    """The last frame of a snapshot."""


class Frame(msgspec.Struct, frozen=True):
    """A frame that was read and found whole."""

    kind: int
    schema: int
    first_seq: int
    count: int
    prev_crc: int
    crc: int
    payload: bytes
    start: int
    """The offset of its first byte."""
    end: int
    """The offset of the byte after it."""


class BadFrame(Exception):
    """There is no whole frame of this layout at this offset."""

    def __init__(self, offset: int, problem: str, *, unknown_format: int | None = None) -> None:
        super().__init__(problem)
        self.offset = offset
        self.problem = problem
        self.unknown_format = unknown_format


def encode(
    kind: FrameKind,
    schema: int,
    payload: bytes,
    *,
    first_seq: int = 0,
    count: int = 0,
    prev_crc: int = 0,
    salt: int = 0,
) -> tuple[bytes, int]:
    """Return a frame and its CRC."""
    bare = HEADER.pack(MAGIC, FORMAT, kind, schema, len(payload), first_seq, count, prev_crc, 0)
    header_crc = zlib.crc32(bare[:-4], salt)
    crc = zlib.crc32(payload, header_crc)
    return b"".join((bare[:-4], CRC.pack(header_crc), payload, CRC.pack(crc))), crc


def read(buffer: bytes, offset: int, salt: int | None = 0) -> Frame | None:
    """Return the frame at this offset; None where only zeros follow; raise ``BadFrame``.

    Without a salt the header goes unchecked: only for salvage of a file that lost its own.
    """
    if len(buffer) - offset < HEADER.size or buffer[offset : offset + 4] != MAGIC:
        if not any(buffer[offset : offset + HEADER.size]) and is_blank(buffer, offset):
            return None
        raise BadFrame(offset, "no frame begins here")
    fields = HEADER.unpack_from(buffer, offset)
    _magic, layout, kind, schema, length, first_seq, count, prev_crc, header_crc = fields
    header = buffer[offset : offset + HEADER.size - 4]
    if salt is not None and zlib.crc32(header, salt) != header_crc:
        raise BadFrame(offset, "the frame's header fails its checksum")
    if layout != FORMAT:
        raise BadFrame(offset, f"frame format {layout} is unknown", unknown_format=layout)
    start = offset + HEADER.size
    end = start + length + CRC.size
    if length > MAX_FRAME_BYTES or end > len(buffer):
        raise BadFrame(offset, f"a frame of {length} bytes does not fit in the file")
    if first_seq > MAX_SEQ:
        raise BadFrame(offset, f"sequence number {first_seq} is out of range")
    payload = buffer[start : start + length]
    crc = zlib.crc32(payload, header_crc)
    if crc != CRC.unpack_from(buffer, start + length)[0]:
        raise BadFrame(offset, "the frame's content fails its checksum")
    return Frame(kind, schema, first_seq, count, prev_crc, crc, payload, offset, end)


def is_blank(buffer: bytes, offset: int) -> bool:
    """Whether nothing but zeros follows: allocated, never written."""
    # Compared in pieces: a segment is tens of megabytes, and strip looks at each byte.
    while offset < len(buffer):
        piece = _ZEROS[: len(buffer) - offset]
        if not buffer.startswith(piece, offset):
            return False
        offset += len(piece)
    return True


_ZEROS = bytes(1 << 16)


def find_after(buffer: bytes, offset: int, salt: int | None) -> int | None:
    """Return where the next whole frame begins after this offset, if there is one."""
    position = buffer.find(MAGIC, offset + 1)
    while position != -1:
        try:
            if read(buffer, position, salt) is not None:
                return position
        except BadFrame as bad:
            if bad.unknown_format is not None:
                return position
        position = buffer.find(MAGIC, position + 1)
    return None


SECTOR = 512


def looks_torn(buffer: bytes, offset: int, salt: int) -> bool:
    """Whether the bad frame at this offset was never written whole.

    The file was zeros before, and no stored text has a zero byte. A write that a crash cut short
    lacks its end, or leaves at least one sector of the frame as it was; a frame of which every
    sector arrived and that fails its checksum was whole once and has been damaged since.
    """
    written = len(buffer.rstrip(b"\0"))
    end = max(written, min(offset + OVERHEAD, len(buffer)))
    header = buffer[offset : offset + HEADER.size]
    if len(header) == HEADER.size and header[:4] == MAGIC:
        length, stored_crc = HEADER.unpack(header)[4], HEADER.unpack(header)[8]
        if zlib.crc32(header[:-4], salt) == stored_crc:
            end = max(end, min(offset + OVERHEAD + length, len(buffer)))
    if written <= max(end - CRC.size, offset + HEADER.size - CRC.size):
        return True  # the write stopped part-way: its last bytes, a checksum, are missing
    while offset < end:
        stop = min((offset // SECTOR + 1) * SECTOR, end)
        if not any(buffer[offset:stop]):
            return True
        offset = stop
    return False
