"""Lists arrive as they were sent, packed or as literals."""

import psycopg
import pytest

from holdfast.engines.postgres.arrays import ADAPTERS, packed, with_arrays

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


@pytest.mark.parametrize("made", [packed, with_arrays])
def test_a_list_arrives(server18, made):
    with (
        server18.fresh() as url,
        psycopg.connect(url, context=ADAPTERS, client_encoding="UTF8") as connection,
    ):
        for kind, items in LISTS:
            query = f"SELECT %(items)s::{kind}".encode()
            assert connection.execute(query, made({"items": items})).fetchone() == (items,)
