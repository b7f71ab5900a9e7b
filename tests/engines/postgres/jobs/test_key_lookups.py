"""Statements on keyed jobs find them by key or by id, on tables that were never analysed too."""

from __future__ import annotations

import re

import psycopg
import pytest

from holdfast.engines.postgres.connection.database import _PINNED
from holdfast.engines.postgres.connection.statements import numbered
from tests.engines.postgres.servers import Databases, store_of

STATEMENTS = ("promote_key_heads", "lock_claimable", "lock_lease_keys", "complete_keyed")
FOUND_BY = re.compile(r"\(key = |\(id = |waiting_for &&|TID Cond|ctid")
SCAN = re.compile(r"Scan.* on (jobs|dead|jobs_waiting)\b")
HALF_BLIND = """
SELECT count(*) FROM holdfast.jobs AS f
WHERE NOT EXISTS (
    SELECT FROM holdfast.dead AS d WHERE d.state = 5 AND d.key = f.key AND d.key_seq < f.key_seq
)
"""


def blind_scans(connection: psycopg.Connection, text: str, parameters: int) -> list[str]:
    """Return the scans of the plan that read more than the rows of a key, or of a name."""
    connection.execute(f"PREPARE looked AS {text}".encode())
    values = ", ".join(["NULL"] * parameters)
    call = f"EXPLAIN (COSTS OFF) EXECUTE looked ({values})" if parameters else ""
    plan = connection.execute((call or "EXPLAIN (COSTS OFF) EXECUTE looked").encode()).fetchall()
    connection.execute("DEALLOCATE looked")
    lines = [line for (line,) in plan]
    return [
        line
        for line, below in zip(lines, [*lines[1:], ""], strict=True)
        if SCAN.search(line) and "Bitmap Heap" not in line and not FOUND_BY.search(below)
    ]


@pytest.fixture
def pinned(server18: Databases):
    options = " ".join(f"-c {pin}" for pin in _PINNED)
    with (
        server18.fresh() as database,
        psycopg.connect(store_of(database), autocommit=True, options=options) as connection,
    ):
        yield connection


@pytest.mark.parametrize("name", STATEMENTS)
def test_every_scan_has_a_key_or_a_name(pinned, name):
    text, names = numbered(name)
    assert blind_scans(pinned, text.decode(), len(names)) == []


def test_control_a_join_that_the_planner_may_turn_around_is_noticed(pinned):
    assert blind_scans(pinned, HALF_BLIND, 0)
