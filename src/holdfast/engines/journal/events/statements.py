"""The SQL of the event store: one statement per file, named by what it does."""

from __future__ import annotations

from functools import cache, lru_cache
from importlib.resources import files

_SQL = files(__package__) / "sql"


@cache
def statement(name: str) -> str:
    """Return the statement of this name."""
    return (_SQL / f"{name}.sql").read_text("utf-8")


@lru_cache(maxsize=512)
def composed(name: str, where: str, order: str = "ASC") -> str:
    """Return the statement with these conditions, which are our own fragments, in this order."""
    return statement(name).replace("{where}", where).replace("{order}", order)


@cache
def inserting(rows: int) -> str:
    """Return the statement that inserts this many rows of bound values."""
    head, _values, row = statement("insert_events").rpartition("VALUES")
    return f"{head}VALUES{','.join([row] * rows)}"


def schema() -> list[str]:
    """Return the statements that create the schema, in order."""
    names = sorted(entry.name for entry in (_SQL / "schema").iterdir())
    return [statement(f"schema/{name.removesuffix('.sql')}") for name in names]
