"""The statements, each a file named by what it does, for the schema that is asked for."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from holdfast.model.schema_name import DEFAULT_SCHEMA

MIGRATIONS = "migrations"


@cache
def statement(name: str, schema: str = DEFAULT_SCHEMA) -> bytes:
    """Return the statement of this name."""
    return in_schema(_read("sql", name), schema).encode()


def in_schema(text: str, schema: str) -> str:
    """Return the SQL, which is written for the usual schema, for this one."""
    return text if schema == DEFAULT_SCHEMA else text.replace(f"{DEFAULT_SCHEMA}.", f"{schema}.")


def _read(directory: str, name: str) -> str:
    return files(__package__).joinpath(directory, f"{name}.sql").read_text()
