"""Coverage-guided fuzz of everything that reads stored bytes: ``python fuzz_journal.py [options]``.

Checksums are stamped anew around what the fuzzer makes up: otherwise it would never get past
them. Whatever the bytes, recovery, verify, dump and salvage answer or raise a HoldfastError.
"""

import contextlib
import sys
import zlib
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["holdfast"]):
    from holdfast.engines.journal.inspection import dump, salvage, verify
    from holdfast.engines.journal.snapshots.snapshot import SnapshotHead, snapshot_name
    from holdfast.engines.journal.wal import frames, segments
    from holdfast.engines.journal.wal.frames import FrameKind
    from holdfast.engines.journal.wal.recovery import recover
    from holdfast.model.errors import HoldfastError
    from holdfast.testing.disk import SimDisk

import msgspec

SIZE = 16_384
HEAD = segments.SegmentHead(1, SIZE, 7)
GOLDEN = Path(__file__).parent.parent / "golden"


def segment(*written: bytes) -> bytes:
    """Return a segment that holds these frames."""
    head = frames.encode(FrameKind.HEAD, 1, msgspec.msgpack.encode(HEAD))[0]
    return b"".join((head, *written)).ljust(SIZE, b"\0")


def as_records(data: bytes) -> SimDisk:
    """Take the bytes for the records of one or two frames."""
    disk = SimDisk()
    prev_crc, first_seq, written = 0, 1, []
    for part in data.split(b"\xff\xfe", 2):
        count = max(1, part[0] & 15) if part else 1
        frame, prev_crc = frames.encode(
            FrameKind.RECORDS, 1, part, first_seq=first_seq, count=count, prev_crc=prev_crc, salt=7
        )
        first_seq += count
        written.append(frame)
    disk.put(segments.segment_name(1), segment(*written))
    return disk


def as_snapshot(data: bytes) -> SimDisk:
    """Take the bytes for the jobs of a snapshot, and some for its head."""
    disk = SimDisk()
    head = SnapshotHead(int.from_bytes(data[:2], "big"), 5, 0, 1, 7)
    first, crc = frames.encode(FrameKind.HEAD, 1, msgspec.msgpack.encode(head))
    body, count = zlib.compress(data[2:], 1), max(1, data[2] & 15) if len(data) > 2 else 1
    jobs, crc = frames.encode(FrameKind.JOBS, 1, body, count=count, prev_crc=crc, salt=7)
    end, _crc = frames.encode(FrameKind.END, 1, b"", first_seq=count, prev_crc=crc, salt=7)
    disk.put(snapshot_name(head.last_seq), first + jobs + end)
    return disk


def as_headers(data: bytes) -> SimDisk:
    """Take the bytes for header fields of a row of frames, rightly stamped."""
    disk = SimDisk()
    written, prev_crc = [], 0
    for at in range(0, len(data) - 7, 8):
        kind, schema, seq, count, crc, layout, *_ = data[at : at + 8]
        bare = frames.HEADER.pack(
            frames.MAGIC,
            1 if layout else 2,
            kind & 7,
            schema & 3,
            data[at + 7],
            seq & 7,
            count & 7,
            prev_crc if crc & 1 else crc,
            0,
        )[:-4]
        header_crc = zlib.crc32(bare, 7)
        payload = data[at : at + data[at + 7]].ljust(data[at + 7], b"\x90")
        prev_crc = zlib.crc32(payload, header_crc)
        written.append(bare + frames.CRC.pack(header_crc) + payload + frames.CRC.pack(prev_crc))
    disk.put(segments.segment_name(1), segment(*written)[: SIZE + 1])
    return disk


def as_files(data: bytes) -> SimDisk:
    """Take the bytes as they are, for a segment and a snapshot."""
    disk = SimDisk()
    first, _, second = data.partition(b"\xff\xfe")
    disk.put(segments.segment_name(1), first)
    if second:
        disk.put(snapshot_name(3), second)
    return disk


WAYS = (as_records, as_snapshot, as_headers, as_files)


def try_one(data: bytes) -> None:
    """Read what these bytes make; anything but a HoldfastError is a finding."""
    if not data:
        return
    disk = WAYS[data[0] % len(WAYS)](data[1:])
    for read in (recover, verify, lambda d: list(dump(d)), lambda d: salvage(d, SimDisk())):
        with contextlib.suppress(HoldfastError):
            read(disk)


def seeds(directory: Path) -> None:
    """Write a corpus to start from: the golden files, taken apart."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, path in enumerate(sorted(GOLDEN.rglob("*.*"))):
        data, offset, salt = path.read_bytes(), 0, 0
        (directory / f"file{number}").write_bytes(b"\x03" + data)
        while (frame := frames.read(data, offset, salt)) is not None and frame.end < len(data):
            if frame.kind == FrameKind.HEAD:
                salt = msgspec.msgpack.decode(frame.payload)["salt"]
            body = frame.payload
            if frame.kind == FrameKind.RECORDS:
                (directory / f"records{number}-{offset}").write_bytes(b"\x00" + body)
            elif frame.kind == FrameKind.JOBS:
                (directory / f"jobs{number}").write_bytes(b"\x01\x00\x05" + zlib.decompress(body))
            offset = frame.end
    (directory / "headers").write_bytes(b"\x02" + bytes([2, 1, 1, 1, 1, 1, 0, 3] * 4))


def main() -> None:
    """Fuzz; the corpus is the first argument."""
    seeds(Path(sys.argv[1]))
    atheris.Setup(sys.argv, try_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
