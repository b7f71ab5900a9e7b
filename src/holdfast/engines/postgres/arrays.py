"""Lists as PostgreSQL takes them: in one piece, and many times as fast as item by item."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import psycopg
from psycopg.adapt import AdaptersMap, Dumper
from psycopg.pq import Format


def with_arrays(parameters: Mapping[str, object]) -> dict[str, object]:
    """Return parameters whose lists are literals, for any connection.

    Every statement says what they are lists of.
    """
    return {
        name: literal(value) if type(value) is list else value for name, value in parameters.items()
    }


def packed(parameters: Mapping[str, object]) -> dict[str, object]:
    """Return parameters whose lists are packed, for connections that have ``ADAPTERS``."""
    return {
        name: _packed(value) if type(value) is list else value for name, value in parameters.items()
    }


class _Texts(bytes):
    """A list of texts in the format of the wire."""


class _Blobs(bytes):
    """A list of byte strings in the format of the wire."""


class _TextsDumper(Dumper):
    format = Format.BINARY
    oid = psycopg.postgres.types["text"].array_oid

    def dump(self, obj: bytes) -> bytes:
        return obj


class _BlobsDumper(_TextsDumper):
    oid = psycopg.postgres.types["bytea"].array_oid


ADAPTERS = AdaptersMap(psycopg.adapters)
ADAPTERS.register_dumper(_Texts, _TextsDumper)
ADAPTERS.register_dumper(_Blobs, _BlobsDumper)

_TEXT = psycopg.postgres.types["text"].oid
_BYTEA = psycopg.postgres.types["bytea"].oid
_HEAD = struct.Struct(">iiIii").pack
_LENGTH = struct.Struct(">i").pack
_NULL = _LENGTH(-1)


def _packed(items: list[object]) -> object:
    """Return texts and bytes packed, anything else as a literal."""
    kind = next((type(item) for item in items if item is not None), None)
    if kind is str:
        texts: list[str | None] = items  # type: ignore[assignment]
        return _Texts(_array(_TEXT, [None if text is None else text.encode() for text in texts]))
    if kind is bytes:
        return _Blobs(_array(_BYTEA, items))  # type: ignore[arg-type]
    return literal(items)


def _array(element: int, items: list[bytes | None]) -> bytes:
    parts = [_HEAD(1, None in items, element, len(items), 1)]
    for item in items:
        if item is None:
            parts.append(_NULL)
        else:
            parts.append(_LENGTH(len(item)))
            parts.append(item)
    return b"".join(parts)


def literal(items: Sequence[object]) -> str:
    """Return the literal of an array of numbers, truth values, texts or bytes, or of nothing."""
    kind = next((type(item) for item in items if item is not None), None)
    if kind is None:
        return "{" + ",".join(["NULL"] * len(items)) + "}"
    if kind is str:
        return _texts(items)
    if kind is bytes:
        return _bytes(items)
    return "{" + ",".join(["NULL" if item is None else str(item) for item in items]) + "}"


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
