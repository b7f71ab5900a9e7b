"""Lists arrive as they were sent, packed or as literals."""

import asyncio

import psycopg

from holdfast.engines.postgres.connection.arrays import with_arrays
from holdfast.engines.postgres.connection.pipeline import BoundStatement, PipelineConnection
from holdfast.engines.postgres.connection.statements import NumberedStatement

TEXTS = ["", "a", "mü\\ll", '"quoted"', "{,}", "NULL", None, "\N{PILE OF POO}", "two\nlines"]
BLOBS = [b"", b"\0\xff", None, b"\\x00", bytes(1_000)]
LISTS = [
    ("text[]", TEXTS),
    ("text[]", ["all", "there"]),
    ("text[]", [None, None]),
    ("text[]", []),
    ("bytea[]", BLOBS),
    ("bytea[]", [None]),
    ("bytea[]", []),
    ("bigint[]", [1, None, -(2**63)]),
    ("boolean[]", [True, None, False]),
    ("float8[]", [0.1, None, 1e300]),
]


def test_a_list_arrives_as_a_literal(server18):
    with server18.fresh() as url, psycopg.connect(url) as connection:
        for kind, items in LISTS:
            query = f"SELECT %(items)s::{kind}".encode()
            assert connection.execute(query, with_arrays({"items": items})).fetchone() == (items,)


def test_a_list_arrives_over_the_wire(server18):
    async def run(url: str) -> None:
        async with await PipelineConnection.connect(
            url, autocommit=True, client_encoding="UTF8"
        ) as wire:
            for kind, items in LISTS:
                query = NumberedStatement(f"SELECT $1::{kind}".encode(), ("items",))
                assert await wire.execute_batch([BoundStatement(query, {"items": items})], 60) == [
                    [(items,)]
                ]

    with server18.fresh() as url:
        asyncio.run(run(url))
