"""The SQL of the store: one statement per file, named by what it does."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files

import msgspec

Value = str | int | None
"""What is bound to a parameter."""

_SQL = files(__package__) / "sql"


@cache
def statement(name: str) -> str:
    """Return the statement of this name."""
    return (_SQL / f"{name}.sql").read_text("utf-8")


@lru_cache(maxsize=512)
def composed(
    name: str, where: str, by: str = "created_at_us", order: str = "ASC", indexed: str = ""
) -> str:
    """Return the statement with these conditions, which are our own fragments, in this order."""
    sql = statement(name).replace("{where}", where).replace("{indexed}", indexed)
    return sql.replace("{by}", by).replace("{order}", order)


@cache
def inserting(table: str, rows: int) -> str:
    """Return the statement that inserts this many rows of bound values."""
    head, _values, row = statement(f"insert_{table}").rpartition("VALUES")
    return f"{head}VALUES{','.join([row] * rows)}"


def schema() -> list[str]:
    """Return the statements that create the schema, in order."""
    names = sorted(entry.name for entry in (_SQL / "schema").iterdir())
    return [statement(f"schema/{name.removesuffix('.sql')}") for name in names]


def run(
    connection: sqlite3.Connection, name: str, values: Mapping[str, Value | bytes] | None = None
) -> int:
    """Run a statement that changes something; return how many rows it changed."""
    return connection.execute(statement(name), bound(values)).rowcount


def ask(
    connection: sqlite3.Connection, sql: str, values: Mapping[str, Value | bytes] | None = None
) -> bytes:
    """Return the one text that a statement finds.

    Many rows come as one JSON array: each row that Python fetches costs a switch of the
    interpreter lock, for which a thread beside a busy event loop waits milliseconds.
    """
    found = connection.execute(sql, bound(values)).fetchall()[0][0]
    return found if isinstance(found, bytes) else b"null"


def bound(values: Mapping[str, Value | bytes] | None) -> dict[str, Value]:
    """Return the values with JSON bytes as text."""
    if values is None:
        return {}
    return {
        name: value.decode() if isinstance(value, bytes) else value
        for name, value in values.items()
    }


_ENCODER = msgspec.json.Encoder()


def as_json(rows: object) -> bytes:
    """Return rows as JSON for a statement."""
    return _ENCODER.encode(rows)
