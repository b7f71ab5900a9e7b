"""The name of the schema in which work is kept on a server: one that needs no quotes."""

from __future__ import annotations

import re

from .errors import InvalidInput

DEFAULT_SCHEMA = "holdfast"


def check_schema(field: str, value: str) -> str:
    """Return the name, or raise ``InvalidInput``."""
    if type(value) is not str or not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", value):
        problem = "is not a name of small letters, digits and _, 63 at most"
        raise InvalidInput(field, f"{value!r} {problem}")
    if value.startswith("pg_"):
        raise InvalidInput(field, f"{value!r}: names that begin with pg_ are PostgreSQL's own")
    return value
