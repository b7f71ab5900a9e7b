"""Job ids: any string the caller chooses; by default a UUIDv7 (RFC 9562)."""

from __future__ import annotations

from functools import lru_cache

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
    front = _front(now_us // 1000)
    digits = random.hex()
    return [
        f"{front}{digits[at : at + 3]}-{_VARIANT[digits[at + 3]]}{digits[at + 4 : at + 7]}"
        f"-{digits[at + 7 : at + 19]}"
        for at in range(0, len(digits), 2 * RANDOM_BYTES)
    ]
