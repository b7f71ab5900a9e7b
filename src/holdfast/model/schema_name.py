"""The name of the schema on a PostgreSQL server: lower-case letters, digits and _."""

from __future__ import annotations

import re

from .errors import InvalidInput

DEFAULT_SCHEMA = "holdfast"
DEFAULT_PROJECTION_SCHEMA = "public"


def check_schema(field: str, value: str) -> str:
    """Return the name, or raise ``InvalidInput``."""
    if type(value) is not str or not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", value):
        problem = "is not a name of at most 63 lower-case letters, digits and _"
        raise InvalidInput(field, f"{value!r} {problem}")
    if value.startswith("pg_") or value == "information_schema":
        raise InvalidInput(field, f"{value!r} is reserved by PostgreSQL: choose another one")
    return value
