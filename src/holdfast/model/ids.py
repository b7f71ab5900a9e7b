"""Job ids: any string the caller chooses; by default a UUIDv7 (RFC 9562)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from .lazy_sequence import LazySequence

RANDOM_BYTES = 10
"""How many random bytes one id takes."""

# The variant, 0b10, goes into the two upper bits of a random nibble.
_VARIANT = {f"{nibble:x}": "89ab"[nibble & 3] for nibble in range(16)}


@lru_cache(maxsize=2)
def _front(milliseconds: int) -> str:
    return f"{milliseconds >> 16 & 0xFFFF_FFFF:08x}-{milliseconds & 0xFFFF:04x}-7"


def uuid7s(now_us: int, random: bytes) -> list[str]:
    """Return a UUIDv7 of this time for every ``RANDOM_BYTES`` of these random bytes.

    Ids made at later milliseconds sort after earlier ones.
    """
    return list(_uuid7s(now_us, random))


def rising_uuid7s(now_us: int, random: bytes) -> Sequence[str]:
    """Return what ``uuid7s`` does, in rising order, made on demand.

    An index inserts rising keys faster. ``rand_a`` counts the ids (RFC 9562, 6.2); of more than
    4,096 some share a count, and have any order.
    """
    count = len(random) // RANDOM_BYTES
    if count == 1:
        return uuid7s(now_us, random)
    return LazySequence(_uuid7s(now_us, random, count), count)


def _uuid7s(now_us: int, random: bytes, count: int = 0) -> Iterator[str]:
    front = _front(now_us // 1000)
    digits = random.hex()
    for number, at in enumerate(range(0, len(digits), 2 * RANDOM_BYTES)):
        rand_a = f"{4096 * number // count:03x}" if count else digits[at : at + 3]
        rand_b = f"{_VARIANT[digits[at + 3]]}{digits[at + 4 : at + 7]}-{digits[at + 7 : at + 19]}"
        yield f"{front}{rand_a}-{rand_b}"
