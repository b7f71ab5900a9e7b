"""A digest of dumped records that does not depend on their order, to compare two dumps."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from .format import DumpedJob, DumpHead, DumpRecord, kind_of

_ENCODER = msgspec.msgpack.Encoder()
_HASH_BITS = 256


class DumpDigest:
    """The number of records of each kind, and a hash of all, without the head."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._sum = 0

    def add(self, record: DumpRecord) -> bytes:
        """Add a record; return its canonical bytes, the same for every engine."""
        encoded = canonical_bytes(record)
        if not isinstance(record, DumpHead):
            self.counts[kind_of(record)] += 1
            # A sum does not depend on the order, but does change with a repeated record.
            self._sum += int.from_bytes(hashlib.sha256(encoded).digest())
        return encoded

    @property
    def sha256(self) -> str:
        """The hash of everything."""
        return f"{self._sum % (1 << _HASH_BITS):064x}"

    def __eq__(self, other: object) -> bool:
        """Whether both have the same content."""
        return isinstance(other, DumpDigest) and (self.counts, self.sha256) == (
            other.counts,
            other.sha256,
        )

    __hash__ = None  # type: ignore[assignment]


def canonical_bytes(record: DumpRecord) -> bytes:
    """Return a record as bytes; an int number of seconds becomes a float, as when it is decoded."""
    encoded = _ENCODER.encode(record)
    if isinstance(record, DumpedJob):
        seconds: tuple[object, ...] = (
            record.job.estimated_seconds,
            record.job.max_processing_seconds,
        )
        if not any(type(value) is int for value in seconds):
            return encoded
    return _ENCODER.encode(msgspec.msgpack.decode(encoded, type=type(record)))


async def digest_of(
    batches: AsyncIterator[Sequence[DumpRecord]], progress: Callable[[int], None]
) -> DumpDigest:
    """Return the digest of a dump; ``progress`` takes the number of jobs so far."""
    contents = DumpDigest()
    async for batch in batches:
        for record in batch:
            contents.add(record)
        progress(contents.counts["job"])
    return contents
