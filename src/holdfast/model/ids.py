"""Job ids: any string the caller chooses; by default a UUIDv7 (RFC 9562)."""

from __future__ import annotations

RANDOM_BYTES = 10


def uuid7(now_us: int, random: bytes) -> str:
    """Return the UUIDv7 of this time and these ``RANDOM_BYTES`` random bytes.

    Ids made at later milliseconds sort after earlier ones.
    """
    tail = int.from_bytes(random, "big")
    value = (now_us // 1000 & 0xFFFF_FFFF_FFFF) << 80 | tail
    # Version 7 in bits 76-79, variant 0b10 in bits 62-63.
    value = value & ~(0xF << 76 | 0x3 << 62) | 0x7 << 76 | 0x2 << 62
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
