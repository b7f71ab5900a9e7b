"""A Bloom filter over job names: it tells in a microsecond that a new id is not stored."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Sequence

from .rows import Name

LEAST_CAPACITY = 1 << 20
_BITS_PER_NAME = 16
_PATTERNS = [
    1 << first | 1 << (first + 1 + second) % 64 | 1 << (first + 1 + 37 * second) % 64
    for first in range(64)
    for second in range(64)
]
"""The bits of a word that belong to a name, by twelve bits of its hash."""


class BloomFilter:
    """A set of names with about two per cent of false positives.

    All bits of a name are in one word, so that a query reads the array once.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = max(LEAST_CAPACITY, capacity)
        self.added = 0
        words = 1 << (self.capacity * _BITS_PER_NAME // 64 - 1).bit_length()
        self._mask = words - 1
        self._words = array("Q", bytes(8 * words))

    @property
    def full(self) -> bool:
        """Whether it holds more names than its capacity."""
        return self.added > self.capacity

    def add_all(self, names: Sequence[Name]) -> None:
        """Add names. One thread at a time."""
        words, mask, patterns = self._words, self._mask, _PATTERNS
        for number in map(hash, names):
            words[number >> 12 & mask] |= patterns[number & 4095]
        self.added += len(names)

    def may_hold(self, name: Name) -> bool:
        """Whether the name may have been added; False is certain."""
        number = hash(name)
        bits = _PATTERNS[number & 4095]
        return self._words[number >> 12 & self._mask] & bits == bits


class KnownNames:
    """The names in the store, in a filter that is filled while the store is in use.

    Until it is filled, every name may be known. A name that is stored during a refill is added to
    the old filter and to the new one.
    """

    def __init__(self) -> None:
        self._ready: BloomFilter | None = None
        self._filling: BloomFilter | None = None
        self._lock = threading.Lock()

    def may_hold(self, tenant: str, job_id: str) -> bool:
        """Whether this name may be in the store; False is certain."""
        return self._ready is None or self._ready.may_hold((tenant, job_id))

    @property
    def full(self) -> bool:
        """Whether a larger filter is needed."""
        return self._filling is None and self._ready is not None and self._ready.full

    def begin(self, count: int) -> None:
        """Start to fill a filter for four times this many names."""
        with self._lock:
            self._filling = BloomFilter(4 * count)

    def fill(self, names: Sequence[Name]) -> None:
        """Add names that were stored before."""
        with self._lock:
            if self._filling is not None:
                self._filling.add_all(names)

    def abandon(self) -> None:
        """Stop filling; keep the old filter, if any."""
        with self._lock:
            self._filling = None

    def finish(self) -> None:
        """Use the filled filter."""
        with self._lock:
            self._ready, self._filling = self._filling, None

    def add_all(self, names: Sequence[Name]) -> None:
        """Add names that were just stored."""
        with self._lock:
            for bloom in (self._ready, self._filling):
                if bloom is not None:
                    bloom.add_all(names)
