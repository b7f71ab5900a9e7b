"""The statements, each a file named by what it does, for the schema that is asked for."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from holdfast.model.errors import InvalidInput

DEFAULT_SCHEMA = "holdfast"
MIGRATIONS = "migrations"


def check_schema(schema: str) -> str:
    """Return the name of a schema that needs no quotes, or raise ``InvalidInput``."""
    plain = type(schema) is str and schema.isascii() and schema.replace("_", "a").isalnum()
    if not plain or not schema.islower() or schema[0].isdigit() or len(schema) > 63:
        raise InvalidInput(
            "schema",
            f"{schema!r} is not a name of small letters, digits and _, 63 at most",
        )
    if schema.startswith("pg_"):
        raise InvalidInput("schema", f"{schema!r}: names that begin with pg_ are PostgreSQL's own")
    return schema


@cache
def statement(name: str, schema: str = DEFAULT_SCHEMA) -> bytes:
    """Return the statement of this name."""
    return in_schema(_read("sql", name), schema).encode()


def in_schema(text: str, schema: str) -> str:
    """Return the SQL, which is written for the usual schema, for this one."""
    return text if schema == DEFAULT_SCHEMA else text.replace(f"{DEFAULT_SCHEMA}.", f"{schema}.")


def _read(directory: str, name: str) -> str:
    return files(__package__).joinpath(directory, f"{name}.sql").read_text()
