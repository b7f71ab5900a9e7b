"""Lists in the binary format, as the engine sends them, for plain psycopg."""

from collections.abc import Mapping

import psycopg
from psycopg.adapt import AdaptersMap, Dumper
from psycopg.pq import Format

from holdfast.engines.postgres.connection.arrays import packed


def with_lists(parameters: Mapping[str, object]) -> dict[str, object]:
    """Return parameters whose lists are packed, for connections that have ``ADAPTERS``."""
    return {
        name: _typed(value) if type(value) is list else value for name, value in parameters.items()
    }


class _Texts(bytes):
    pass


class _Blobs(bytes):
    pass


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


def _typed(items: list[object]) -> object:
    made = packed(items)
    if isinstance(made, str):
        return made
    return _Texts(made) if isinstance(items[0], str) else _Blobs(made)
