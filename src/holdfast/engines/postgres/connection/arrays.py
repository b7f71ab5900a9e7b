"""Lists as array parameters: encoded in one piece, many times as fast as item by item."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import psycopg


def with_arrays(parameters: Mapping[str, object]) -> dict[str, object]:
    """Return parameters with lists as array literals, for any connection.

    Every statement casts them to the type of the array.
    """
    return {
        name: literal(value) if type(value) is list else value for name, value in parameters.items()
    }


def packed(items: list[object]) -> bytes | str:
    """Return a list in the binary format if it has texts or bytes, else as a literal."""
    kind = _kind_of(items)
    if kind is str:
        texts: list[str | None] = items  # type: ignore[assignment]
        return _array(_TEXT, [None if text is None else text.encode() for text in texts])
    if kind is bytes:
        return _array(_BYTEA, items)  # type: ignore[arg-type]
    return literal(items)


_TEXT = psycopg.postgres.types["text"].oid
_BYTEA = psycopg.postgres.types["bytea"].oid
_HEAD = struct.Struct(">iiIii").pack
_LENGTH = struct.Struct(">i").pack
_NULL = _LENGTH(-1)


def _array(element: int, items: list[bytes | None]) -> bytes:
    missing = None in items
    head = _HEAD(1, missing, element, len(items), 1)
    if not missing:
        whole: list[bytes] = items  # type: ignore[assignment]
        if len(lengths := set(map(len, whole))) == 1:
            length = _LENGTH(lengths.pop())
            return head + length + length.join(whole)
    parts = [head]
    for item in items:
        if item is None:
            parts.append(_NULL)
        else:
            parts.append(_LENGTH(len(item)))
            parts.append(item)
    return b"".join(parts)


def literal(items: Sequence[object]) -> str:
    """Return the literal of an array of numbers, booleans, texts or bytes, or of NULLs."""
    kind = _kind_of(items)
    if kind is None:
        return "{" + ",".join(["NULL"] * len(items)) + "}"
    if kind is str:
        return _texts(items)
    if kind is bytes:
        return _bytes(items)
    return "{" + ",".join(["NULL" if item is None else str(item) for item in items]) + "}"


def _kind_of(items: Sequence[object]) -> type | None:
    if items and items[0] is not None:
        return type(items[0])
    return next((type(item) for item in items if item is not None), None)


def _texts(items: Sequence[object]) -> str:
    if None not in items:
        texts: list[str] = items  # type: ignore[assignment]
        joined = '","'.join(texts)
        if "\\" not in joined and joined.count('"') == 2 * (len(texts) - 1):
            return '{"' + joined + '"}'
    return "{" + ",".join(["NULL" if item is None else _quoted(str(item)) for item in items]) + "}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _bytes(items: Sequence[object]) -> str:
    parts = [
        "NULL" if item is None else '"\\\\x' + item.hex() + '"'  # type: ignore[attr-defined]
        for item in items
    ]
    return "{" + ",".join(parts) + "}"
