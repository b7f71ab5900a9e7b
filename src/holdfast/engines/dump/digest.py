"""What is in a stream of dumped records, so that two can be compared whatever their order."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from .format import DumpedJob, DumpHead, DumpRecord, kind_of

_ENCODER = msgspec.msgpack.Encoder()
_HASH_BITS = 256


class DumpDigest:
    """How many records of each kind there are, and a hash of all. The head does not count."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._sum = 0

    def add(self, record: DumpRecord) -> bytes:
        """Take a record in; return it encoded, in a form that does not go by where it was kept."""
        encoded = encoded_evenly(record)
        if not isinstance(record, DumpHead):
            self.counts[kind_of(record)] += 1
            # A sum: the same whatever comes first, and not the same if something comes twice.
            self._sum += int.from_bytes(hashlib.sha256(encoded).digest())
        return encoded

    @property
    def sha256(self) -> str:
        """The hash of everything."""
        return f"{self._sum % (1 << _HASH_BITS):064x}"

    def __eq__(self, other: object) -> bool:
        """Whether both have the same in them."""
        return isinstance(other, DumpDigest) and (self.counts, self.sha256) == (
            other.counts,
            other.sha256,
        )

    __hash__ = None  # type: ignore[assignment]


def encoded_evenly(record: DumpRecord) -> bytes:
    """Return a record as bytes. A whole number that stands for seconds is a float, as when read."""
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
    batches: AsyncIterator[Sequence[DumpRecord]], told: Callable[[int], None]
) -> DumpDigest:
    """Return what is in a dump; ``told`` is told how many jobs were seen so far."""
    contents = DumpDigest()
    async for batch in batches:
        for record in batch:
            contents.add(record)
        told(contents.counts["job"])
    return contents
