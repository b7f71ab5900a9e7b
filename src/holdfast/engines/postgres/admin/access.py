"""Who may do what on the server: for ``holdfast doctor``."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.engines.postgres.connection.sansio import SansIO, execute
from holdfast.engines.postgres.connection.statements import in_schema
from holdfast.engines.postgres.schema.rights import RUN_FUNCTIONS


class ServerAccess(NamedTuple):
    """What this user has, who else may connect, and what could get in the way."""

    user: str
    superuser: bool
    powerful: bool
    """Whether it may make roles or databases, replicate, or pass by row security."""
    owner: bool
    """Whether it has the rights of the owner of the tables."""
    everybody_connects: bool
    denied_functions: list[str]
    """What running needs and this user may not call."""
    foreign_locks: list[str]
    """Who holds advisory locks and has no rights in the schema."""
    shadows: list[str]
    """Functions and operators outside of pg_catalog that have the name of one in it."""


def read_access(schema: str) -> SansIO[ServerAccess]:
    """Read what ``ServerAccess`` tells."""
    functions = [in_schema(f"holdfast.{one}", schema) for one in RUN_FUNCTIONS]
    [row] = yield from execute("read_access", schema=schema, functions=functions)
    return ServerAccess(*row)
